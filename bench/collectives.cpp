// SPDX-License-Identifier: MIT
// Measures hfcomm's host operations and prints a table like that of nccl-tests.
//   collectives --processes 2
//   torchrun --nproc-per-node 2 --no-python collectives

#include <algorithm>
#include <cstdio>
#include <exception>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/comm.hpp>

#include "benchmark.hpp"
#include "command_line.hpp"
#include "hfcomm_library.hpp"
#include "machine.hpp"
#include "object_operations.hpp"
#include "runner.hpp"
#include "span_operations.hpp"

namespace {

using bench::library;

template <class T>
std::vector<bench::operation> reductions(const bench::span_operations<library>& spans, const std::string& type) {
  return {spans.reduce<T>(type), spans.all_reduce<T>(type), spans.all_reduce_in_place<T>(type)};
}

std::vector<bench::operation> all_operations(const bench::span_operations<library>& spans,
                                             const bench::object_operations& objects,
                                             const std::vector<std::string>& types) {
  std::vector<bench::operation> all{spans.barrier(), spans.broadcast<float>("float32"),
                                    spans.all_gather<float>("float32"), spans.gather<float>("float32")};
  std::vector<bench::operation> sums;
  for (const auto& type : types) {
    for (auto& one : type == "bfloat16"  ? reductions<hfcomm::bfloat16>(spans, type)
                     : type == "float64" ? reductions<double>(spans, type)
                     : type == "int32"   ? reductions<int>(spans, type)
                                         : reductions<float>(spans, type)) {
      sums.push_back(std::move(one));
    }
  }
  // All types of an operation side by side.
  for (const char* name : {"reduce", "all_reduce", "all_reduce_in_place"}) {
    std::copy_if(sums.begin(), sums.end(), std::back_inserter(all), [&](const auto& one) { return one.name == name; });
  }
  for (auto& one : objects.all()) {
    all.push_back(std::move(one));
  }
  return all;
}

int run_rank(const bench::settings& wanted) {
  if (wanted.bind) {
    bench::bind_to_core(hfcomm::local_rank());
  }
  const bench::peers others = bench::peers_of_world();
  const bench::span_operations<library> spans(others);
  const bench::object_operations objects(others);
  const std::string version = std::to_string(HFCOMM_VERSION_MAJOR) + '.' + std::to_string(HFCOMM_VERSION_MINOR) + '.' +
                              std::to_string(HFCOMM_VERSION_PATCH);
  return bench::run_benchmarks("hfcomm " + version, all_operations(spans, objects, wanted.types), wanted, others);
}

}  // namespace

int main(int argc, char** argv) {
  bench::settings wanted;
  int processes = 2;
  try {
    wanted = bench::command_line(argc, argv).parse();
    if (wanted.help) {
      std::printf(
          "collectives: times of hfcomm's host operations\n"
          "  --processes N      ranks (2, or what a launcher such as torchrun says)\n%s",
          bench::command_line::help);
      return 0;
    }
    const auto found = hfcomm::detect_environment();
    if (wanted.processes && found.world_size > 1) {
      throw bench::bad_argument("--processes: by the " + found.source + " variables this is one of " +
                                std::to_string(found.world_size) + " ranks already; leave the option out");
    }
    processes = wanted.processes.value_or(found.source == "none" ? 2 : 1);
    const int ranks_here = found.source == "none" ? processes : found.local_size;
    if (wanted.bind && ranks_here > bench::allowed_cores()) {
      throw bench::bad_argument("--bind-to-core: " + std::to_string(ranks_here) + " ranks have only " +
                                std::to_string(bench::allowed_cores()) + " cores");
    }
    const bench::peers nobody;
    const bench::span_operations<library> spans(nobody);
    const bench::object_operations objects(nobody);
    (void)bench::select_operations(wanted.operations, bench::names_of(all_operations(spans, objects, wanted.types)));
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "collectives: %s\nTry --help.\n", problem.what());
    return 2;
  }
  try {
    return hfcomm::launch(processes, [&wanted] { return run_rank(wanted); });
  } catch (const hfcomm::usage_error& problem) {
    std::fprintf(stderr, "collectives: %s\n", problem.detail().c_str());
    return 2;
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "collectives: %s\n", problem.what());
    return 1;
  }
}
