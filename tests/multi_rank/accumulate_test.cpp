// SPDX-License-Identifier: MIT
#include "ranks.hpp"
#include "toy_model.hpp"

#include <optional>

#include <hfcomm/ddp.hpp>

namespace {

using namespace hfcomm;
using namespace multi_rank;

TEST_CASE("accumulate: every k-th pass and the last one average, and the passes between only sum") {
  at_every_size([](const process_group& world) {
    for (const std::size_t every : each_of(1, 2, 3, 5)) {
      toy_model model({3, 400});
      distributed_data_parallel ddp(model.views());
      accumulate cycle(ddp, every);
      const auto mine = static_cast<float>(world.rank());
      const auto mean = static_cast<float>(world.size() - 1) / 2.0F;
      for (int epoch = 0; epoch < 2; ++epoch) {
        const int batches = 7;
        std::size_t in_cycle = 0;
        for (int batch = 0; batch < batches; ++batch) {
          const bool last = batch + 1 == batches;
          const auto step = cycle.step(last);
          ++in_cycle;
          REQUIRE(step.synchronizes() == (in_cycle == every || last));
          CHECK(ddp.synchronizes() == step.synchronizes());
          add_and_finish(model, ddp, mine + 1.0F);
          const float expected = static_cast<float>(in_cycle) * ((step.synchronizes() ? mean : mine) + 1.0F);
          CHECK((model[1].gradient == std::vector<float>(400, expected)));
          if (step.synchronizes()) {
            model[0].gradient.assign(3, 0.0F);
            model[1].gradient.assign(400, 0.0F);
            in_cycle = 0;
          }
        }
      }
      CHECK(ddp.synchronizes());
      CHECK(ddp.finished_passes() == 14);
    }
  });
}

TEST_CASE("accumulate: a step left by an exception or without a finished pass is repeated") {
  at_every_size([](const process_group& world) {
    toy_model model({4});
    distributed_data_parallel ddp(model.views());
    accumulate cycle(ddp, 2);
    const auto mine = static_cast<float>(world.rank());
    const auto synchronizes = [&](bool fails, bool skips) {
      bool result = false;
      try {
        const auto step = cycle.step();
        result = step.synchronizes();
        if (fails) {
          throw std::domain_error("bad batch");
        }
        if (!skips) {
          add_and_finish(model, ddp, mine);
        }
      } catch (const std::domain_error&) {
        CHECK(ddp.synchronizes());
      }
      return result;
    };
    CHECK_FALSE(synchronizes(true, false));
    CHECK_FALSE(synchronizes(false, true));
    CHECK_FALSE(synchronizes(false, false));
    CHECK(synchronizes(true, false));
    CHECK(synchronizes(false, true));
    CHECK(synchronizes(false, false));
    CHECK((model[0].gradient == std::vector<float>(4, static_cast<float>(world.size() - 1))));
    CHECK_FALSE(synchronizes(false, false));
  });
}

TEST_CASE("accumulate: steps inside no_sync do not average, and the next step outside averages their sum") {
  at_every_size([](const process_group& world) {
    toy_model model({4});
    distributed_data_parallel ddp(model.views());
    accumulate cycle(ddp, 2);
    const auto mine = static_cast<float>(world.rank());
    {
      const auto off = ddp.no_sync();
      for (int i = 0; i < 3; ++i) {
        const auto step = cycle.step();
        CHECK_FALSE(step.synchronizes());
        add_and_finish(model, ddp, mine);
      }
    }
    {
      const auto step = cycle.step();
      CHECK(step.synchronizes());
      add_and_finish(model, ddp, mine);
    }
    CHECK((model[0].gradient == std::vector<float>(4, 2.0F * static_cast<float>(world.size() - 1))));
    CHECK_FALSE(cycle.step().synchronizes());
  });
}

TEST_CASE("accumulate: zero steps are a usage_error") {
  at_every_size([](const process_group& world) {
    toy_model model({4});
    distributed_data_parallel ddp(model.views());
    const auto problem = error_of<usage_error>([&] { const accumulate cycle(ddp, 0); });
    CHECK(problem.rank() == world.rank());
    CHECK_CONTAINS(problem.what(), "accumulate_test.cpp");
    check_usable(world);
  });
}

}  // namespace
