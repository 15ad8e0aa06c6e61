// SPDX-License-Identifier: MIT
#include "ranks.hpp"
#include "toy_model.hpp"

#include <atomic>
#include <optional>

#include <hfcomm/ddp.hpp>

namespace {

using namespace hfcomm;
using namespace multi_rank;

const ddp_options tiny_buckets{.first_bucket_bytes = 1, .bucket_bytes = 1};

TEST_CASE("ddp: marking twice, a bad index and an unknown name are usage_errors") {
  at_every_size([](const process_group& world) {
    toy_model model({3, 4});
    distributed_data_parallel ddp(model.views());
    model.set_gradient(world.rank(), 1);
    ddp.mark_ready(std::size_t{1});
    const auto twice = error_of<usage_error>([&] { ddp.mark_ready("p1"); });
    CHECK_CONTAINS(twice.what(), "\"p1\" was marked ready twice");
    CHECK_CONTAINS(twice.what(), "ddp_failure_test.cpp");
    CHECK_CONTAINS(error_of<usage_error>([&] { ddp.mark_ready(std::size_t{2}); }).what(), "no parameter 2");
    CHECK_CONTAINS(error_of<usage_error>([&] { ddp.mark_ready("p2"); }).what(), "\"p2\"");
    model.set_gradient(world.rank(), 0);
    ddp.mark_ready(std::size_t{0});
    ddp.finish();
    CHECK(model.is_average(world.size(), 0));
    CHECK(model.is_average(world.size(), 1));
    // A new pass, a new mark.
    check_a_pass(model, ddp, world, 1);
  });
}

TEST_CASE("ddp: a parameter that never became ready is named on every rank, and the next pass works") {
  for (const bool tiny : {true, false}) {
    at_every_size([&](const process_group& world) {
      toy_model model({3, 4, 5, 100'000});
      distributed_data_parallel ddp(model.views(), {}, tiny ? tiny_buckets : ddp_options{});
      for (int round = 0; round < 3; ++round) {
        const int odd = (world.size() - 1 + round) % world.size();
        for (const std::size_t index : each_of(3, 2, 1, 0)) {
          model.set_gradient(world.rank(), index);
          if (world.rank() != odd || index == 3 || index == 1) {
            ddp.mark_ready(index);
          }
        }
        if (world.rank() == odd) {
          const auto problem = error_of<usage_error>([&] { ddp.finish(); });
          CHECK_CONTAINS(problem.what(), "\"p0\", \"p2\"");
          CHECK_CONTAINS(problem.what(), "find_unused_parameters");
          CHECK_CONTAINS(problem.what(), "ddp_failure_test.cpp");
        } else {
          const auto problem = error_of<peer_error>([&] { ddp.finish(); });
          CHECK(problem.peer() == odd);
          CHECK_FALSE(problem.fatal());
          CHECK_CONTAINS(problem.what(), "\"p0\", \"p2\"");
        }
        check_usable(world);
        check_a_pass(model, ddp, world, round);
      }
    });
  }
}

TEST_CASE("ddp: parameters that never became ready may differ from rank to rank") {
  at_every_size([](const process_group& world) {
    toy_model model(std::vector<std::size_t>(8, 3));
    distributed_data_parallel ddp(model.views(), {}, tiny_buckets);
    for (std::size_t index = 0; index < model.size(); ++index) {
      if (index != as_index(world.rank())) {
        ddp.mark_ready(index);
      }
    }
    const auto problem = error_of<usage_error>([&] { ddp.finish(); });
    CHECK_CONTAINS(problem.what(), "\"p" + std::to_string(world.rank()) + "\"");
    check_a_pass(model, ddp, world, 1);
  });
}

TEST_CASE("ddp: its destructor does not wait for ranks that never arrive") {
  for (const int ranks : {2, 3, 8}) {
    std::atomic<bool> destroyed{false};
    run_noted(ranks, {}, [&](const process_group& world) {
      toy_model model({1000, 100'000, 3});
      std::optional<distributed_data_parallel> ddp(std::in_place, model.views(), std::vector<ddp_buffer>(),
                                                   tiny_buckets);
      if (world.rank() == 0) {
        mark_all(model, *ddp, 0, 0);
        // With the worker in the middle of a reduction and without.
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        ddp.reset();
        destroyed = true;
      } else {
        wait_until([&] { return destroyed.load(); });
        mark_all(model, *ddp, world.rank(), 0);
        const auto problem = error_of<peer_error>([&] { ddp->finish(); });
        CHECK(problem.peer() == 0);
        CHECK_CONTAINS(problem.what(), "left the group");
        ddp.reset();
      }
      check_usable(world);
    });
  }
}

TEST_CASE("ddp: all ranks may destroy it at once in the middle of a pass") {
  at_every_size([](const process_group& world) {
    for (int round = 0; round < 5; ++round) {
      toy_model model({100'000, 3, 100'000});
      {
        distributed_data_parallel ddp(model.views(), {}, tiny_buckets);
        if (world.rank() <= round) {
          mark_all(model, ddp, world.rank(), 0);
        }
      }
      check_usable(world);
    }
  });
}

TEST_CASE("ddp: finish reports a rank that has ended") {
  for (const int ranks : {2, 4}) {
    std::atomic<int> told{0};
    const auto rank_main = [&](const process_group& world) {
      toy_model model({1000, 5});
      distributed_data_parallel ddp(model.views(), {}, tiny_buckets);
      check_a_pass(model, ddp, world, 0);
      mark_all(model, ddp, world.rank(), 1);
      if (world.rank() == 1) {
        barrier();
        throw std::domain_error("out of memory");
      }
      barrier();
      try {
        // All have marked, but whether rank 1 gets that far is a matter of luck.
        ddp.finish();
        mark_all(model, ddp, world.rank(), 2);
        ddp.finish();
      } catch (const peer_error& problem) {
        CHECK(problem.peer() == 1);
        CHECK(problem.fatal());
        told += contains(problem.what(), "out of memory") ? 1 : 0;
        throw;
      }
    };
    CHECK_THROWS_WITH_AS(run_ranks(ranks, rank_main), "out of memory", std::domain_error);
    CHECK(told == ranks - 1);
  }
}

TEST_CASE("ddp: the group's deadline applies to the gradients") {
  std::atomic<bool> gave_up{false};
  run_noted(3, {}, [&](const process_group& world) {
    toy_model model({10});
    distributed_data_parallel ddp(model.views(), {}, {}, world.with_timeout(std::chrono::milliseconds(200)));
    if (world.rank() == 1) {
      wait_until([&] { return gave_up.load(); });
    }
    mark_all(model, ddp, world.rank(), 0);
    CHECK((error_of<timeout_error>([&] { ddp.finish(); }).missing() == std::vector{1}));
    gave_up = true;
    check_usable(world);
  });
}

TEST_CASE("ddp: a pass that an exception ended is abandoned and reported to the others, and all continue") {
  enum class moment { begun, some_marked, all_marked };
  for (const bool explicitly : {true, false}) {
    for (const moment when : {moment::begun, moment::some_marked, moment::all_marked}) {
      if (!explicitly && when == moment::begun) {
        continue;  // a forward without a backward looks like an evaluation
      }
      for (const bool everyone : {false, true}) {
        at_every_size([&](const process_group& world) {
          toy_model model({3, 4, 5});
          std::vector<int> buffer(1);
          distributed_data_parallel ddp(model.views(), {named_buffer("buffer", buffer)}, tiny_buckets);
          const int odd = world.size() - 1;
          for (int number = 0; number < 3; ++number) {
            const bool told = !everyone && when != moment::all_marked;
            try {
              ddp.begin_forward();
              const bool fails = everyone || world.rank() == odd;
              for (const std::size_t index : each_of(2, 1, 0)) {
                if (fails && (when == moment::begun || (when == moment::some_marked && index == 0))) {
                  break;
                }
                model.set_gradient(world.rank(), index, number);
                ddp.mark_ready(index);
              }
              if (fails) {
                throw std::domain_error("bad batch");
              }
              if (told) {
                const auto problem = error_of<peer_error>([&] { ddp.finish(); });
                CHECK(problem.peer() == odd);
                CHECK_CONTAINS(problem.what(), explicitly ? "bad batch" : "began another pass");
              } else {
                ddp.finish();
              }
              ddp.abandon_pass();  // already ended: does nothing
            } catch (const std::domain_error&) {
              if (explicitly) {
                ddp.abandon_pass();
                ddp.abandon_pass();
              } else {
                CHECK_CONTAINS(error_of<usage_error>([&] { ddp.begin_forward(); }).what(), "before finish");
              }
            }
            ddp.begin_forward();
            check_a_pass(model, ddp, world, number + 1);
          }
          check_usable(world);
        });
      }
    }
  }
}

TEST_CASE("ddp: a pass inside no_sync that an exception ended counts once it is abandoned") {
  at_every_size([](const process_group& world) {
    toy_model model({3, 4});
    distributed_data_parallel ddp(model.views());
    try {
      const auto off = ddp.no_sync();
      ddp.begin_forward();
      if (world.rank() == 0) {
        throw std::domain_error("bad batch");
      }
      ddp.finish();
    } catch (const std::domain_error&) {
      ddp.abandon_pass();
    }
    ddp.begin_forward();
    check_a_pass(model, ddp, world, 1);
  });
}

}  // namespace
