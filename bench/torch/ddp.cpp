// SPDX-License-Identifier: MIT
// A process of bench/torch_ddp: trains a model of LibTorch on some ranks, and prints rank 0's median time of a step in
// milliseconds, and that of the time that communication adds after backward.
//   ddp MODEL WAY RANKS STEPS     MODEL: mlp, cnn, block; WAY: bare, averaged, calling_thread, no_sync

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <hfcomm/torch.hpp>

namespace {

namespace nn = torch::nn;
using clock_type = std::chrono::steady_clock;

constexpr int warmup = 3;

nn::Sequential make_mlp() {
  nn::Sequential net;
  for (int layer = 0; layer < 6; ++layer) {
    net->push_back(nn::Linear(2048, 2048));
    net->push_back(nn::ReLU());
  }
  return net;
}

nn::Sequential make_cnn() {
  nn::Sequential net;
  int channels = 3;
  for (const int next : {32, 64, 64, 128}) {
    net->push_back(nn::Conv2d(nn::Conv2dOptions(channels, next, 3).padding(1)));
    net->push_back(nn::BatchNorm2d(next));
    net->push_back(nn::ReLU());
    net->push_back(nn::MaxPool2d(2));
    channels = next;
  }
  net->push_back(nn::Flatten());
  net->push_back(nn::Linear(128 * 4, 10));
  return net;
}

struct block_impl : nn::Module {
  block_impl()
      : layer(register_module(
            "layer",
            nn::TransformerEncoderLayer(nn::TransformerEncoderLayerOptions(256, 4).dim_feedforward(1024).dropout(0)))) {
  }
  at::Tensor forward(const at::Tensor& x) { return layer(x); }
  nn::TransformerEncoderLayer layer;
};

at::Tensor input_of(const std::string& model) {
  if (model == "mlp") {
    return torch::randn({16, 2048});
  }
  return model == "cnn" ? torch::randn({32, 3, 32, 32}) : torch::randn({64, 8, 256});
}

double milliseconds(clock_type::duration time) { return std::chrono::duration<double, std::milli>(time).count(); }

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// Trains, and prints the medians on rank 0.
template <class Forward>
void train(nn::Module& net, const at::Tensor& x, const Forward& forward, int steps,
           hfcomm::torch::distributed_data_parallel_base* ddp, bool averages) {
  torch::optim::SGD optimizer(net.parameters(), 1e-4);
  std::vector<double> times;
  std::vector<double> exposed;
  for (int step = 0; step < warmup + steps; ++step) {
    const auto begin = clock_type::now();
    net.zero_grad(true);
    {
      std::optional<hfcomm::distributed_data_parallel::no_sync_scope> guard;
      if (ddp != nullptr && !averages) {
        guard.emplace(ddp->averager());
      }
      forward(x).pow(2).mean().backward();
    }
    optimizer.step();
    if (step >= warmup) {
      times.push_back(milliseconds(clock_type::now() - begin));
      exposed.push_back(ddp != nullptr && averages ? milliseconds(ddp->last_pass().exposed) : 0);
    }
  }
  hfcomm::print_main(median(times), ' ', median(exposed));
}

template <class Holder>
void run(Holder net, const std::string& model, const std::string& way, int steps) {
  const at::Tensor x = input_of(model);
  if (way == "bare") {
    train(*net, x, [&](const at::Tensor& in) { return net->forward(in); }, steps, nullptr, false);
    return;
  }
  hfcomm::torch::distributed_data_parallel ddp(net, {.ddp = {.reduce_on_calling_thread = way == "calling_thread"}});
  train(*net, x, [&](const at::Tensor& in) { return ddp.forward(in); }, steps, &ddp, way != "no_sync");
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 5) {
    std::fputs("ddp MODEL WAY RANKS STEPS\n", stderr);
    return 2;
  }
  const std::string model = arguments[1];
  const std::string way = arguments[2];
  const int steps = std::atoi(arguments[4]);
  return hfcomm::launch(std::atoi(arguments[3]), [&] {
    at::set_num_threads(1);
    torch::manual_seed(hfcomm::rank());
    if (model == "mlp") {
      run(make_mlp(), model, way, steps);
    } else if (model == "cnn") {
      run(make_cnn(), model, way, steps);
    } else {
      run(std::make_shared<block_impl>(), model, way, steps);
    }
  });
}
