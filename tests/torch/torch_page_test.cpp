// SPDX-License-Identifier: MIT
#include "nets.hpp"

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

// The pieces of programs in docs/torch.md and README.md, which tests/docs_test.py looks for in this file. Ranks as
// processes, so that the pieces need no group; no case may use LibTorch before the ranks are forked.

namespace {

/// Points of a plane, whose label says on which side of a line they are.
struct page_data : torch::data::datasets::Dataset<page_data> {
  torch::data::Example<> get(std::size_t index) override {
    const auto number = static_cast<double>(index);
    const auto point = torch::sin(torch::tensor({number, 2 * number + 1})).to(torch::kFloat32);
    return {point, (point[0] > point[1]).to(torch::kInt64)};
  }
  torch::optional<std::size_t> size() const override { return 101; }
};

struct page_net : torch::nn::Module {
  page_net() : layer(register_module("layer", torch::nn::Linear(2, 2))) {}
  torch::Tensor forward(torch::Tensor x) { return torch::log_softmax(layer(x), 1); }
  torch::nn::Linear layer;
};

void require_of_page(bool condition, const char* text) {
  if (!condition) {
    throw std::runtime_error(text);
  }
}

torch::Device device_of_page() {
  torch::Device device("cpu");
  if (torch::cuda::is_available()) {
    device = torch::Device("cuda:" + std::to_string(hfcomm::local_rank()));
  }
  const c10::DeviceGuard current(device);
  return device;
}

/// Accumulates the gradients of two passes, and returns their norm.
double accumulate_as_page(const std::shared_ptr<page_net>& net) {
  const auto x = torch::full({4, 2}, hfcomm::rank() + 1.0);
  const auto y = torch::zeros({4}, torch::kInt64);
  const auto x1 = x.slice(0, 0, 2);
  const auto x2 = x.slice(0, 2, 4);
  const auto y1 = y.slice(0, 0, 2);
  const auto y2 = y.slice(0, 2, 4);
  hfcomm::torch::distributed_data_parallel ddp(net);
  net->zero_grad();
  {
    const auto guard = ddp.no_sync();
    torch::nll_loss(ddp.forward(x1), y1).backward();
  }
  torch::nll_loss(ddp.forward(x2), y2).backward();
  return net->parameters()[0].grad().norm().item<double>();
}

/// Runs a pass in which rank 1 throws: rank 0 throws peer_error.
void abandon_as_page(const std::shared_ptr<page_net>& net) {
  struct bad_batch {};
  hfcomm::torch::distributed_data_parallel ddp(net);
  const auto x = torch::ones({4, 2});
  const auto y = torch::zeros({4}, torch::kInt64);
  const auto loss_fn = [](const torch::Tensor& found, const torch::Tensor& wanted) {
    if (hfcomm::rank() == 1) {
      throw bad_batch();
    }
    return torch::nll_loss(found, wanted);
  };
  bool has_thrown = false;
  try {
    try {
      loss_fn(ddp.forward(x), y).backward();
    } catch (const bad_batch&) {
      ddp.abandon_pass();  // the others throw peer_error in this pass
    }
    has_thrown = hfcomm::rank() == 1;
  } catch (const hfcomm::peer_error&) {
    has_thrown = hfcomm::rank() == 0;
  }
  require_of_page(has_thrown, "no error of the other rank");
}

double loss_of_page(hfcomm::torch::distributed_data_parallel<page_net>& ddp) {
  const torch::NoGradGuard no_grad;
  page_data data;
  double loss = 0;
  for (std::size_t index = 0; index < data.size().value(); ++index) {
    const auto sample = data.get(index);
    loss += torch::nll_loss(ddp.forward(sample.data.unsqueeze(0)), sample.target.unsqueeze(0)).item<double>();
  }
  return loss / static_cast<double>(data.size().value());
}

void train_as_page(std::uint64_t epochs) {
  using Net = page_net;
  const torch::Device device("cpu");
  page_data data;
  const std::size_t size = data.size().value();

  auto net = std::make_shared<Net>();
  net->to(device);
  hfcomm::torch::distributed_data_parallel ddp(net);
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));

  hfcomm::torch::distributed_sampler sampler(size, {.seed = 1});
  auto loader = torch::data::make_data_loader(data.map(torch::data::transforms::Stack<>()), sampler, 32);

  const double before = loss_of_page(ddp);
  for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) {
    sampler.set_epoch(epoch);
    for (auto& batch : *loader) {
      const auto x = batch.data.to(device);
      const auto y = batch.target.to(device);
      optimizer.zero_grad();
      auto loss = torch::nll_loss(ddp.forward(x), y);
      loss.backward();
      torch::nn::utils::clip_grad_norm_(net->parameters(), 1.0);
      optimizer.step();
    }
  }
  require_of_page(loss_of_page(ddp) < before / 2, "it does not learn");
  const auto weights = hfcomm::torch::all_gather(net->parameters()[0]);
  require_of_page(torch::equal(weights[0], weights[1]), "the ranks have different parameters");

  hfcomm::run_master_only([&] {
    torch::save(net, "net.pt");
    torch::save(optimizer, "optimizer.pt");
  });

  torch::nn::init::zeros_(net->parameters()[0]);
  hfcomm::run_master_first([&] {
    torch::load(net, "net.pt", device);
    torch::load(optimizer, "optimizer.pt", device);
  });
  require_of_page(torch::equal(net->parameters()[0], weights[0]), "the checkpoint has other parameters");

  auto shares = torch::data::make_data_loader(page_data().map(torch::data::transforms::Stack<>()),
                                              hfcomm::torch::distributed_sampler(size, {.shuffle = false}), 32);
  net->eval();
  const torch::NoGradGuard no_grad;
  std::vector<int> answers;
  for (auto& batch : *shares) {
    const auto found = ddp.forward(batch.data).argmax(1);
    for (std::int64_t row = 0; row < found.size(0); ++row) {
      answers.push_back(found[row].item<int>());
    }
  }
  answers = hfcomm::collect_results(answers, size);
  require_of_page(answers.size() == (hfcomm::rank() == 0 ? size : 0), "not every sample has one answer");
}

/// Trains for an epoch with the piece in README.md.
void train_as_readme() {
  const auto net = std::make_shared<page_net>();
  page_data data;
  const hfcomm::torch::distributed_sampler sampler(data.size().value());
  const auto loader = torch::data::make_data_loader(data.map(torch::data::transforms::Stack<>()), sampler, 32);
  torch::optim::SGD optimizer(net->parameters(), 0.1);

  hfcomm::torch::distributed_data_parallel ddp(net);  // every rank gets rank 0's parameters
  for (auto& batch : *loader) {                       // hfcomm::torch::distributed_sampler shares the data
    optimizer.zero_grad();
    torch::nll_loss(ddp.forward(batch.data), batch.target).backward();  // averages the gradients meanwhile
    optimizer.step();
  }

  const auto weights = hfcomm::torch::all_gather(net->parameters()[0]);
  require_of_page(torch::equal(weights[0], weights[1]), "the ranks have different parameters");
}

TEST_CASE("torch page: the pieces of programs train, write a checkpoint, evaluate and recover") {
  std::string folder = (std::filesystem::temp_directory_path() / "hfcomm-page-XXXXXX").string();
  REQUIRE(::mkdtemp(folder.data()) != nullptr);
  const int status = hfcomm::launch(2, [&] {
    std::filesystem::current_path(folder);
    hfcomm::torch::set_threads_for_ranks();
    require_of_page(device_of_page().is_cpu() != torch::cuda::is_available(), "another device");
    train_as_page(20);
    train_as_readme();
    const auto net = std::make_shared<page_net>();
    abandon_as_page(net);
    const auto norms = hfcomm::all_gather(accumulate_as_page(net));
    require_of_page(norms[0] > 0 && norms[0] == norms[1], "the gradients are not averages");
  });
  std::filesystem::remove_all(folder);
  CHECK(status == 0);
}

TEST_CASE("torch page: a process that joins no job is a world of one") {
  auto session = hfcomm::init();
  const int rank = hfcomm::rank();
  CHECK(rank == 0);
  CHECK(hfcomm::world_size() == 1);
}

}  // namespace
