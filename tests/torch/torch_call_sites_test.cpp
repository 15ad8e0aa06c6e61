// SPDX-License-Identifier: MIT
#include "nets.hpp"

namespace {

using namespace torch_ranks;
using hfcomm::peer_error;
using hfcomm::usage_error;
namespace ht = hfcomm::torch;

/// A linear layer whose forward takes up to five inputs, which are added up.
struct many_inputs : torch::nn::Module {
  many_inputs() { layer = register_module("layer", torch::nn::Linear(4, 2)); }
  at::Tensor forward() { return layer(at::ones({1, 4})).sum(); }
  template <class... Rest>
  at::Tensor forward(const at::Tensor& first, const Rest&... rest) {
    return layer((first + ... + rest)).sum();
  }

  torch::nn::Linear layer{nullptr};
};

/// Checks that an error names a line of this file. A reference, because making the error may note the line.
void check_line(const hfcomm::error& problem, const std::uint_least32_t& line) {
  CHECK(problem.where().line() == line);
  CHECK_CONTAINS(problem.where().file_name(), "torch_call_sites_test.cpp");
}

TEST_CASE("torch call sites: an error of forward names the line that called it, with up to four arguments") {
  at_each_size(
      [](const process_group& /*world*/) {
        auto net = make_net<many_inputs>(0);
        const std::uint_least32_t made_at = __LINE__ + 1;
        ht::distributed_data_parallel ddp(net);
        net->layer->weight.set_data(at::ones({3, 4}));  // refused by every rank's forward
        const at::Tensor x = at::ones({1, 4});
        std::uint_least32_t line = 0;
        const auto error_here = [&](auto call) {
          const auto problem = error_of<usage_error>(call);
          CHECK_CONTAINS(problem.what(), "\"layer.weight\"");
          check_line(problem, line);
        };
        error_here([&] {
          line = __LINE__ + 1;
          (void)ddp.forward();
        });
        error_here([&] {
          line = __LINE__ + 1;
          (void)ddp.forward(x);
        });
        error_here([&] {
          line = __LINE__ + 1;
          (void)ddp.forward(x, x);
        });
        error_here([&] {
          line = __LINE__ + 1;
          (void)ddp.forward(x, x, x);
        });
        error_here([&] {
          line = __LINE__ + 1;
          (void)ddp.forward(x, x, x, x);
        });
        error_here([&] {
          const auto guard = ddp.no_sync();
          line = __LINE__ + 1;
          (void)ddp.forward(x);
        });
        line = made_at;
        error_here([&] { (void)ddp.forward(x, x, x, x, x); });
      },
      2);
}

TEST_CASE("torch call sites: an error in backward names the line of that pass's forward, on every rank") {
  at_each_size(
      [](const process_group& world) {
        auto net = make_net<two_parts>(0);
        ht::distributed_data_parallel ddp(net);
        const at::Tensor x = numbers({4, 4});
        for (int pass = 0; pass < 2; ++pass) {
          ddp.forward(x, true, true).backward();
          const std::uint_least32_t line = __LINE__ + 1;
          const at::Tensor loss = ddp.forward(x, true, world.rank() != 0);
          if (world.rank() == 0) {
            check_line(error_of<usage_error>([&] { loss.backward(); }), line);
          } else {
            check_line(error_of<peer_error>([&] { loss.backward(); }), line);
          }
        }
      },
      2);
}

TEST_CASE("torch call sites: errors of finish, abandoned passes and join scopes name their own lines") {
  at_each_size(
      [](const process_group& world) {
        auto net = make_net<two_parts>(0);
        ht::distributed_data_parallel ddp(net, {.automatic_finish = false});
        const at::Tensor x = numbers({4, 4});
        std::uint_least32_t line = 0;
        const auto finish = [&] {
          line = __LINE__ + 1;
          ddp.finish();
        };
        const std::uint_least32_t forward_line = __LINE__ + 1;
        ddp.forward(x, true, world.rank() != 0).backward();
        if (world.rank() == 0) {
          check_line(error_of<usage_error>(finish), line);
        } else {
          check_line(error_of<peer_error>(finish), forward_line);  // the reduction began in backward
        }
        hfcomm::join_scope scope(ddp.averager());
        ddp.forward(x, true, true).backward();
        check_line(error_of<usage_error>([&] {
                     line = __LINE__ + 1;
                     scope.finish();
                   }),
                   line);
        ddp.finish();
        scope.finish();
        check_line(error_of<usage_error>([&] {
                     line = __LINE__ + 1;
                     hfcomm::run_joined(ddp.averager(), {}, [&] { (void)hfcomm::join_scope(ddp.averager()); });
                   }),
                   line);
      },
      2);
}

}  // namespace
