// SPDX-License-Identifier: MIT
#include "ranks.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <hfcomm/ddp.hpp>

#include "memory_maps.hpp"
#include "toy_model.hpp"

namespace {

using namespace hfcomm;
using namespace multi_rank;

/// Returns whether the middle of a gradient is in memory that the ranks share.
bool is_gradient_shared(const std::vector<float>& gradient) {
  return permissions_at(gradient.data() + gradient.size() / 2) == "rw-s";
}

ddp_options with_shared_memory(std::size_t bucket_bytes) {
  ddp_options options;
  options.first_bucket_bytes = bucket_bytes;
  options.bucket_bytes = bucket_bytes;
  options.share_memory = true;
  return options;
}

/// Runs passes in which all gradients become ready, in the order of the parameters, and checks the averages.
void check_passes(distributed_data_parallel& ddp, toy_model& model, const process_group& world) {
  for (int pass = 0; pass < 3; ++pass) {
    ddp.begin_forward();
    for (std::size_t index = 0; index < model.size(); ++index) {
      model.set_gradient(world.rank(), index, pass);
      ddp.mark_ready(index);
    }
    ddp.finish();
    for (std::size_t index = 0; index < model.size(); ++index) {
      CHECK(model.is_average(world.size(), index, pass));
    }
  }
}

TEST_CASE(
    "ddp share_memory: gradients with a bucket of their own are shared and averaged to the bit, also in new buckets") {
  at_every_size([](const process_group& world) {
    toy_model model({50'000, 15'000, 12'500, 15'001, 60'001, 3});
    const bool together = world.size() > 1;
    const auto check_alone = [&](bool first) {
      CHECK(is_gradient_shared(model[0].gradient) == together);
      CHECK(is_gradient_shared(model[1].gradient) == (together && first));
      CHECK_FALSE(is_gradient_shared(model[2].gradient));
      CHECK(is_gradient_shared(model[3].gradient) == (together && !first));
      CHECK(is_gradient_shared(model[4].gradient) == together);
    };
    {
      distributed_data_parallel ddp(model.views(), {}, with_shared_memory(120'000), world);
      check_alone(true);  // the last parameters have filled buckets first: 5 | 4 | 3 and 2 | 1 | 0
      check_passes(ddp, model, world);
      check_alone(!together);  // 0 | 1 and 2 | 3 | 4 | 5
    }
    for (std::size_t index = 0; index < model.size(); ++index) {
      CHECK_FALSE(is_gradient_shared(model[index].gradient));
      CHECK(model.is_average(world.size(), index, 2));
    }
  });
}

TEST_CASE("ddp share_memory: without a place for it, gradients are averaged as before") {
  run_ranks(3,
            [](const process_group& world) {
              toy_model model({30'000, 40'000});
              distributed_data_parallel ddp(model.views(), {}, with_shared_memory(1), world);
              CHECK_FALSE(is_gradient_shared(model[0].gradient));
              check_passes(ddp, model, world);
            },
            {.machines = {2, 1}});
  run_ranks(2, [](const process_group& world) {
    toy_model model({30'000, 40'000});
    auto options = with_shared_memory(1);
    options.find_unused_parameters = true;
    distributed_data_parallel ddp(model.views(), {}, options, world);
    CHECK_FALSE(is_gradient_shared(model[0].gradient));
    check_passes(ddp, model, world);
  });
}

TEST_CASE("ddp share_memory: a gradient that cannot be shared is an error on all ranks") {
  at_every_size(
      [](const process_group& world) {
        const std::size_t count = 10'000;
        std::vector<float> value(count);
        auto shared = world.allocate<float>(count);
        std::vector<float> ordinary(count);
        const bool is_bad = world.rank() == 1;
        const std::span<float> gradient = is_bad ? std::span<float>(shared) : std::span<float>(ordinary);
        const auto make = [&] {
          distributed_data_parallel ddp({named_parameter("weights", value, gradient)}, {}, with_shared_memory(1),
                                        world);
        };
        if (is_bad) {
          CHECK_CONTAINS(error_of<engine_error>(make).what(), "it is shared memory already");
        } else {
          const auto problem = error_of<peer_error>(make);
          CHECK(problem.peer() == 1);
          CHECK_CONTAINS(problem.what(), "share_memory: ");
          CHECK_CONTAINS(problem.what(), "the gradient of weights: ");
          CHECK_CONTAINS(problem.what(), "it is shared memory already");
        }
        CHECK_FALSE(is_gradient_shared(ordinary));
        check_usable(world);
      },
      2);
}

}  // namespace
