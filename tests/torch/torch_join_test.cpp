// SPDX-License-Identifier: MIT
#include "nets.hpp"

namespace {

using namespace torch_ranks;
namespace ht = hfcomm::torch;

at::Tensor batch_of(int rank, int number) { return numbers({2, 6}, at::kDouble, 10 * rank + number); }
at::Tensor target_of(int rank, int number) { return numbers({2, 3}, at::kDouble, 5 + 10 * rank + number); }

void drop_gradients(torch::nn::Module& net) {
  for (auto& parameter : net.parameters()) {
    parameter.mutable_grad().reset();
  }
}

/// Returns the two samples of a rank's batch of that number, up to 3 of each.
template <class Net>
at::Tensor samples_of(int rank, int number) {
  return Net::batch(18, at::kDouble).narrow(0, 2 * (3 * rank + number), 2);
}

/// Returns the model that one process trains, where rank r has r + 1 batches.
template <class Net>
std::shared_ptr<Net> train_alone(int ranks) {
  auto net = make_net<Net>(0, at::kDouble);
  net->eval();
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  for (int step = 0; step < ranks; ++step) {
    optimizer.zero_grad();
    for (int rank = step; rank < ranks; ++rank) {
      (loss_of(net->forward(samples_of<Net>(rank, step)), target_of(rank, step)) / ranks).backward();
    }
    optimizer.step();
  }
  return net;
}

/// Checks that ranks with unequal numbers of batches train as one process, and step their optimizers too.
template <class Net>
void check_uneven() {
  at_each_size([](const process_group& world) {
    auto net = make_net<Net>(0, at::kDouble);
    net->eval();
    ht::distributed_data_parallel ddp(net);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    hfcomm::join_options options;
    options.synchronize_final_model = false;
    options.on_shadow = [&] {
      ddp.bind_gradients();
      optimizer.step();
      drop_gradients(*net);
    };
    hfcomm::run_joined(ddp.averager(), options, [&] {
      for (int step = 0; step <= world.rank(); ++step) {
        loss_of(ddp.forward(samples_of<Net>(world.rank(), step)), target_of(world.rank(), step)).backward();
        optimizer.step();
        drop_gradients(*net);
      }
    });
    const auto expected = train_alone<Net>(world.size())->parameters();
    for (std::size_t index = 0; index < expected.size(); ++index) {
      check_same_tensor(net->parameters()[index], world);
      CHECK(difference(net->parameters()[index], expected[index]) < 1e-9);
    }
  });
}

TEST_CASE("torch join: uneven inputs of linear layers and layer norm") { check_uneven<mlp>(); }
TEST_CASE("torch join: uneven inputs of convolution and batch norm") { check_uneven<cnn>(); }
TEST_CASE("torch join: uneven inputs of GRU") { check_uneven<recurrent>(); }
TEST_CASE("torch join: uneven inputs of a transformer encoder layer") { check_uneven<encoder>(); }
TEST_CASE("torch join: uneven inputs of an embedding that is tied to the output") { check_uneven<tied>(); }

TEST_CASE("torch join: gradients that a rank left in no_sync are added, and no older ones") {
  run_noted(2, "", [](const process_group& world) {
    auto net = make_net<two_parts>(0);
    ht::distributed_data_parallel ddp(net);
    const auto input = [](int rank) { return numbers({4, 4}, at::kFloat, rank); };
    const auto own = [&](int rank) { return input(rank).sum(0).expand({2, 4}); };
    hfcomm::run_joined(ddp.averager(), {}, [&] {
      ddp.forward(input(world.rank()), true, true).backward();
      drop_gradients(*net);
      {
        const auto guard = ddp.no_sync();
        ddp.forward(input(world.rank()), true, world.rank() == 1).backward();
      }
      if (world.rank() == 1) {
        ddp.forward(input(1), true, true).backward();
      }
    });
    ddp.bind_gradients();
    CHECK(difference(net->one->weight.grad(), (own(0) + 2 * own(1)) / 2) < 1e-6);
    CHECK(difference(net->other->weight.grad(), own(1)) < 1e-6);
  });
}

TEST_CASE("torch join: accumulate averages in every second pass") {
  at_each_size([](const process_group& world) {
    auto net = make_net<mlp>(0, at::kDouble);
    auto single = make_net<mlp>(0, at::kDouble);
    ht::distributed_data_parallel ddp(net);
    hfcomm::accumulate cycle(ddp.averager(), 2);
    int averaged = 0;
    for (int number = 0; number < 4; ++number) {
      const auto step = cycle.step(false);
      (loss_of(ddp.forward(batch_of(world.rank(), number)), target_of(world.rank(), number)) / 2).backward();
      for (int rank = 0; rank < world.size(); ++rank) {
        (loss_of(single->forward(batch_of(rank, number)), target_of(rank, number)) / 2 / world.size()).backward();
      }
      CHECK(step.synchronizes() == (number % 2 == 1));
      if (step.synchronizes()) {
        ++averaged;
        for (std::size_t index = 0; index < net->parameters().size(); ++index) {
          check_same_tensor(net->parameters()[index].grad(), world);
          CHECK(difference(net->parameters()[index].grad(), single->parameters()[index].grad()) < 1e-9);
        }
        drop_gradients(*net);
        drop_gradients(*single);
      }
    }
    CHECK(averaged == 2);
    CHECK(ddp.averager().finished_passes() == 4);
  });
}

TEST_CASE("torch ddp: in a group of one there is no memory, and gradients are the module's") {
  run_noted(1, "", [](const process_group& /*world*/) {
    auto net = make_net<mlp>(0);
    ht::distributed_data_parallel ddp(net);
    CHECK(ddp.averager().bucket_count() == 0);
    const at::Tensor x = mlp::batch(2, at::kFloat);
    loss_of(ddp.forward(x), numbers({2, 3})).backward();
    const at::Tensor gradient = net->first->weight.grad();
    net->to(at::kDouble);  // nothing is bound to its memory
    (void)ddp.forward(x.to(at::kDouble));
    CHECK(gradient.defined());
    CHECK(ddp.averager().finished_passes() == 2);
  });
}

}  // namespace
