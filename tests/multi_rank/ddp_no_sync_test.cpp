// SPDX-License-Identifier: MIT
#include "ranks.hpp"
#include "toy_model.hpp"

#include <hfcomm/ddp.hpp>

namespace {

using namespace hfcomm;
using namespace multi_rank;

bool all_gradients_are(toy_model& model, float expected) {
  for (std::size_t index = 0; index < model.size(); ++index) {
    if (model[index].gradient != std::vector<float>(model[index].gradient.size(), expected)) {
      return false;
    }
  }
  return true;
}

TEST_CASE("no_sync: gradients accumulate locally, and the first pass outside averages their sum") {
  at_every_size([](const process_group& world) {
    for (const bool find_unused : {false, true}) {
      toy_model model({3, 70'000, 5});
      distributed_data_parallel ddp(
          model.views(), {},
          {.first_bucket_bytes = 16, .bucket_bytes = 300'000, .find_unused_parameters = find_unused});
      const auto mine = static_cast<float>(world.rank());
      const auto mean = static_cast<float>(world.size() - 1) / 2.0F;
      for (int round = 0; round < 3; ++round) {
        for (std::size_t index = 0; index < model.size(); ++index) {
          model[index].gradient.assign(model[index].gradient.size(), 0.0F);
        }
        {
          const auto off = ddp.no_sync();
          add_and_finish(model, ddp, mine);
          CHECK(all_gradients_are(model, mine));
          add_and_finish(model, ddp, mine + 4.0F);
          CHECK(all_gradients_are(model, 2.0F * mine + 4.0F));
        }
        add_and_finish(model, ddp, 8.0F);
        CHECK(all_gradients_are(model, 2.0F * mean + 12.0F));
      }
    }
  });
}

TEST_CASE("no_sync: accumulated passes equal one large pass") {
  at_every_size([](const process_group& world) {
    toy_model small({40, 3});
    toy_model large({40, 3});
    distributed_data_parallel ddp_small(small.views());
    distributed_data_parallel ddp_large(large.views());
    const auto example = [&](int step) { return static_cast<float>(world.rank() * 10 + step); };
    {
      const auto off = ddp_small.no_sync();
      add_and_finish(small, ddp_small, example(0));
      add_and_finish(small, ddp_small, example(1));
    }
    add_and_finish(small, ddp_small, example(2));
    add_and_finish(large, ddp_large, example(0) + example(1) + example(2));
    for (const std::size_t index : each_of(0, 1)) {
      CHECK((small[index].gradient == large[index].gradient));
    }
  });
}

TEST_CASE("no_sync: scopes nest") {
  at_every_size([](const process_group& world) {
    toy_model model({4});
    distributed_data_parallel ddp(model.views());
    const auto mine = static_cast<float>(world.rank());
    {
      const auto outer = ddp.no_sync();
      {
        const auto inner = ddp.no_sync();
        add_and_finish(model, ddp, mine);
      }
      add_and_finish(model, ddp, mine);
      CHECK(all_gradients_are(model, 2.0F * mine));
    }
    add_and_finish(model, ddp, 0.0F);
    CHECK(all_gradients_are(model, static_cast<float>(world.size() - 1)));
  });
}

TEST_CASE("no_sync: an exception that leaves the scope switches averaging on again") {
  at_every_size([](const process_group& world) {
    toy_model model({4});
    distributed_data_parallel ddp(model.views());
    for (int round = 0; round < 2; ++round) {
      try {
        const auto outer = ddp.no_sync();
        const auto inner = ddp.no_sync();
        add_and_finish(model, ddp, 0.0F);
        throw std::domain_error("bad batch");
      } catch (const std::domain_error&) {
        model[0].gradient.assign(4, static_cast<float>(world.rank()));
      }
      add_and_finish(model, ddp, 0.0F);
      CHECK(all_gradients_are(model, static_cast<float>(world.size() - 1) / 2.0F));
    }
  });
}

TEST_CASE("no_sync: buffers are not broadcast inside, and are rank 0's again right after") {
  at_every_size([](const process_group& world) {
    toy_model model({4});
    std::vector<int> buffer(1);
    distributed_data_parallel ddp(model.views(), {named_buffer("buffer", buffer)});
    buffer[0] = world.rank();
    {
      const auto off = ddp.no_sync();
      add_and_finish(model, ddp, 1.0F);
      CHECK(buffer[0] == world.rank());
    }
    CHECK(buffer[0] == world.rank());
    add_and_finish(model, ddp, 1.0F);
    CHECK(buffer[0] == 0);
  });
}

TEST_CASE("no_sync: marks are not checked inside, since nothing is averaged") {
  run_noted(2, {}, [](const process_group& world) {
    toy_model model({4, 5});
    distributed_data_parallel ddp(model.views());
    {
      const auto off = ddp.no_sync();
      ddp.mark_ready("p0");
      ddp.mark_ready("p0");
      ddp.finish();
      CHECK_THROWS_AS(ddp.mark_ready("p2"), usage_error);
    }
    add_and_finish(model, ddp, static_cast<float>(world.rank()));
    CHECK(all_gradients_are(model, 0.5F));
  });
}

TEST_CASE("no_sync: one rank inside while the others are outside is an error on every rank and mixes no gradients") {
  for (const int ranks : {2, 3, 8}) {
    for (const bool find_unused : {false, true}) {
      run_noted(ranks, {}, [&](const process_group& world) {
        toy_model model({5, 100'000});
        distributed_data_parallel ddp(model.views(), {}, {.find_unused_parameters = find_unused});
        add_and_finish(model, ddp, 1.0F);
        if (world.rank() == 1) {
          const auto off = ddp.no_sync();
          add_and_finish(model, ddp, 1.0F);
        }
        // Rank 1 is one pass ahead of the others now, who meet it in their last one.
        const auto problem = error_of<mismatch_error>([&] { add_and_finish(model, ddp, 1.0F); });
        CHECK(problem.first_rank() == 0);
        CHECK(problem.second_rank() == 1);
        CHECK_CONTAINS(problem.what(), "ddp_no_sync_test.cpp");
        CHECK_CONTAINS(problem.what(), "backward pass 2");
        CHECK_CONTAINS(problem.what(), "backward pass 3");
        CHECK(all_gradients_are(model, world.rank() == 1 ? 3.0F : 2.0F));
        check_usable(world);
      });
    }
  }
}

TEST_CASE("no_sync: different numbers of passes inside are a mismatch_error") {
  run_noted(2, {}, [](const process_group& world) {
    toy_model model({5});
    distributed_data_parallel ddp(model.views());
    {
      const auto off = ddp.no_sync();
      for (int pass = 0; pass <= world.rank(); ++pass) {
        add_and_finish(model, ddp, 1.0F);
      }
    }
    CHECK_THROWS_AS(add_and_finish(model, ddp, 1.0F), mismatch_error);
    check_usable(world);
  });
}

}  // namespace
