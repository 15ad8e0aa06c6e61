// SPDX-License-Identifier: MIT
#include "../multi_rank/ranks.hpp"
#include "../multi_rank/toy_model.hpp"

#include <string>

#include <hfcomm/ddp.hpp>

namespace {

using namespace hfcomm;
using namespace multi_rank;

void check_passes(toy_model& model, distributed_data_parallel& ddp, const process_group& world) {
  for (int pass = 0; pass < 3; ++pass) {
    ddp.begin_forward();
    check_a_pass(model, ddp, world, pass);
  }
}

TEST_CASE("a forgotten finish: the next begin_forward is a usage_error on every rank, and the pass after it works") {
  at_every_size([](const process_group& world) {
    toy_model model({3, 4});
    distributed_data_parallel ddp(model.views());
    for (int time = 0; time < 3; ++time) {
      ddp.begin_forward();
      mark_all(model, ddp, world.rank(), 0);
      const auto problem = error_of<usage_error>([&] { ddp.begin_forward(); });
      CHECK_CONTAINS(problem.what(), "Call finish() before the optimizer's step");
      CHECK_CONTAINS(problem.what(), "training_pass_test.cpp");
    }
    check_passes(model, ddp, world);
  });
}

TEST_CASE("a forgotten finish: inside no_sync it is an error, too") {
  at_every_size([](const process_group& world) {
    toy_model model({3, 4});
    distributed_data_parallel ddp(model.views());
    {
      const auto off = ddp.no_sync();
      ddp.begin_forward();
      mark_all(model, ddp, world.rank(), 0);
      CHECK_CONTAINS(error_of<usage_error>([&] { ddp.begin_forward(); }).what(), "before finish");
    }
    check_passes(model, ddp, world);
  });
}

TEST_CASE("a skipped backward: the next pass is a mismatch_error on every rank") {
  for (const int ranks : {2, 3, 8}) {
    run_noted(ranks, {}, [](const process_group& world) {
      toy_model model({3, 4});
      distributed_data_parallel ddp(model.views());
      check_passes(model, ddp, world);
      ddp.begin_forward();
      if (world.rank() == 1) {
        ddp.begin_forward();  // its loss was no number, so it goes on with the next batch
      }
      mark_all(model, ddp, world.rank(), 3);
      const auto problem = error_of<mismatch_error>([&] { ddp.finish(); });
      CHECK_CONTAINS(problem.what(), "backward pass 4");
      CHECK_CONTAINS(problem.what(), "backward pass 5");
      check_usable(world);
    });
  }
}

TEST_CASE("a skipped backward: forward passes that no rank follows by a backward are no error") {
  at_every_size([](const process_group& world) {
    toy_model model({3, 4});
    distributed_data_parallel ddp(model.views());
    ddp.begin_forward();
    ddp.begin_forward();
    check_passes(model, ddp, world);
  });
}

TEST_CASE("accumulation: a scope that is not active averages, and a model without buffers needs none") {
  at_every_size([](const process_group& world) {
    toy_model model({3, 4});
    distributed_data_parallel ddp(model.views(), ddp_options{.bucket_bytes = 8});
    for (int step = 0; step < 4; ++step) {
      const auto off = ddp.no_sync(step % 2 == 0);
      CHECK(ddp.synchronizes() == (step % 2 != 0));
      ddp.begin_forward();
      mark_all(model, ddp, world.rank(), step);
      ddp.finish();
      CHECK((step % 2 == 0 || model.is_average(world.size(), 0, step)));
    }
    check_usable(world);
  });
}

}  // namespace
