// SPDX-License-Identifier: MIT
// Several processes evaluate a model on their shares of a data set; rank 0 gets all predictions in the data set's
// order, and every rank the metrics.
//
//   evaluate --processes 4
//
// test: --processes 3

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include <hfcomm/comm.hpp>

#include "command_line.hpp"

namespace {

constexpr std::size_t data_size = 1001;  // no multiple of the number of ranks

double input(std::size_t index) { return static_cast<double>(index) / 1000; }
double predict(double x) { return x - x * x * x / 6; }  // for the sine

void evaluate() {
  hfcomm::distributed_sampler sampler(data_size, {.shuffle = false});
  const auto indices = sampler.indices();
  std::vector<double> predictions;
  hfcomm::weighted_mean error;
  double worst = 0;
  for (const std::size_t index : indices) {
    predictions.push_back(predict(input(index)));
    const double off = std::abs(predictions.back() - std::sin(input(index)));
    error.add(off);
    worst = std::max(worst, off);
  }
  // The sampler pads the last ranks' shares; the indices tell which results are the same.
  const auto all = hfcomm::collect_results(std::span<const std::size_t>(indices), predictions, data_size);
  const std::map<std::string, std::variant<hfcomm::weighted_mean, std::size_t>> mine{{"error", error},
                                                                                     {"evaluated", indices.size()}};
  const auto metrics = hfcomm::all_reduce_dict(mine, hfcomm::reduce_op::sum);
  worst = hfcomm::all_reduce(worst, hfcomm::reduce_op::max);
  if (hfcomm::is_main_process() && (all.size() != data_size || all[500] != predict(input(500)))) {
    std::abort();
  }
  hfcomm::print_main(all.size(), " results of ", std::get<std::size_t>(metrics.at("evaluated")),
                     " evaluations; mean error ", std::get<hfcomm::weighted_mean>(metrics.at("error")).value(),
                     ", worst ", worst);
}

}  // namespace

int main(int count, char** arguments) {
  int processes = 2;
  examples::command_line options("evaluate");
  options.add("--processes N", "ranks to start on this machine (default 2)", processes, 1);
  return options.run(count, arguments, [&] { return hfcomm::launch(processes, evaluate); });
}
