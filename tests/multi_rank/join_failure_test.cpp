// SPDX-License-Identifier: MIT
#include "ranks.hpp"
#include "toy_model.hpp"

#include <atomic>
#include <optional>

#include <hfcomm/ddp.hpp>

namespace {

using namespace hfcomm;
using namespace multi_rank;

const ddp_options one_element_buckets{.first_bucket_bytes = 1, .bucket_bytes = 1};

void mark(toy_model& model, distributed_data_parallel& ddp, int rank, int pass, std::size_t from = 0) {
  for (std::size_t index = model.size(); index-- > from;) {
    model.set_gradient(rank, index, pass);
    ddp.mark_ready(index);
  }
}
void pass(toy_model& model, distributed_data_parallel& ddp, int rank, int number) {
  ddp.begin_forward();
  mark(model, ddp, rank, number);
  ddp.finish();
}

/// Checks that the group and ddp still work.
void check_trains_on(toy_model& model, distributed_data_parallel& ddp, const process_group& world) {
  check_usable(world);
  for (int number = 0; number < 2; ++number) {
    pass(model, ddp, world.rank(), number);
    for (std::size_t index = 0; index < model.size(); ++index) {
      CHECK(model.is_average(world.size(), index, number));
    }
  }
  check_usable(world);
}

/// The point of its second pass at which a rank fails.
enum class moment { before, begun, some_marked, all_marked, finished, in_no_sync };
constexpr std::array moments{moment::before,     moment::begun,    moment::some_marked,
                             moment::all_marked, moment::finished, moment::in_no_sync};

/// Runs two passes; calls `fail` at the moment, if one is given.
template <class Fail>
void two_passes(toy_model& model, distributed_data_parallel& ddp, int rank, std::optional<moment> when, bool no_sync,
                Fail fail) {
  pass(model, ddp, rank, 0);
  const auto at = [&](moment now) {
    if (when == now) {
      fail();
    }
  };
  std::optional<distributed_data_parallel::no_sync_scope> off;
  if (no_sync) {
    off.emplace(ddp);
  }
  at(moment::before);
  ddp.begin_forward();
  at(moment::begun);
  at(moment::in_no_sync);
  mark(model, ddp, rank, 1, 2);
  at(moment::some_marked);
  for (const std::size_t index : each_of(1, 0)) {
    model.set_gradient(rank, index, 1);
    ddp.mark_ready(index);
  }
  at(moment::all_marked);
  ddp.finish();
  at(moment::finished);
}

TEST_CASE("join: an exception in one rank's loop is an error on every rank, and ddp stays usable") {
  for (const int ranks : rank_counts) {
    for (const moment when : moments) {
      for (const int odd : {0, ranks - 1}) {
        for (const bool find_unused : {false, true}) {
          run_noted(ranks, "moment " + std::to_string(static_cast<int>(when)), [&](const process_group& world) {
            toy_model model({5, 3, 70'000, 2});
            std::vector<int> buffer(1);
            distributed_data_parallel ddp(
                model.views(), {named_buffer("buffer", buffer)},
                {.first_bucket_bytes = 1, .bucket_bytes = 30, .find_unused_parameters = find_unused});
            const bool no_sync = when == moment::in_no_sync;
            const auto loop = [&] {
              if (world.rank() == odd) {
                two_passes(model, ddp, odd, when, no_sync, [] { throw std::domain_error("bad batch"); });
              } else if (world.rank() % 2 == 1) {  // the others have no data
                two_passes(model, ddp, world.rank(), std::nullopt, no_sync, [] {});
                // Where rank `odd` failed late, the second pass succeeded.
                ddp.begin_forward();
              }
            };
            if (world.rank() == odd) {
              CHECK_THROWS_WITH_AS(run_joined(ddp, {}, loop), "bad batch", std::domain_error);
            } else {
              const auto problem = error_of<peer_error>([&] { run_joined(ddp, {}, loop); });
              CHECK(problem.peer() == odd);
              CHECK_FALSE(problem.fatal());
              CHECK_CONTAINS(problem.what(), "bad batch");
              CHECK_CONTAINS(problem.what(), "join_failure_test.cpp");
            }
            check_trains_on(model, ddp, world);
          });
        }
      }
    }
  }
}

TEST_CASE("join: leaving a scope without finish at any moment is an error on the others") {
  for (const int ranks : {2, 3, 8}) {
    for (const moment when : moments) {
      run_noted(ranks, "moment " + std::to_string(static_cast<int>(when)), [&](const process_group& world) {
        toy_model model({5, 3, 70'000, 2});
        distributed_data_parallel ddp(model.views(), {}, one_element_buckets);
        const bool no_sync = when == moment::in_no_sync;
        struct leaves {};
        if (world.rank() == 1) {
          std::optional<join_scope> scope(std::in_place, ddp);
          try {
            two_passes(model, ddp, 1, when, no_sync, [] { throw leaves(); });
          } catch (const leaves&) {
            scope.reset();  // as if the loop had been left with `break`
          }
        } else {
          const auto problem = error_of<peer_error>([&] {
            join_scope scope(ddp);
            if (world.rank() != 2) {
              two_passes(model, ddp, world.rank(), std::nullopt, no_sync, [] {});
            }
            scope.finish();
          });
          CHECK(problem.peer() == 1);
          CHECK_CONTAINS(problem.what(), "left its join scope without calling finish()");
          CHECK_CONTAINS(problem.what(), "join_failure_test.cpp");
        }
        check_trains_on(model, ddp, world);
      });
    }
  }
}

TEST_CASE("join: several ranks may fail at once in different places") {
  for (const int ranks : rank_counts_from(2)) {
    for (int shift = 0; shift < 5; ++shift) {
      run_noted(ranks, "shift " + std::to_string(shift), [&](const process_group& world) {
        toy_model model({5, 3, 70'000, 2});
        distributed_data_parallel ddp(model.views(), {}, one_element_buckets);
        const moment when = moments[static_cast<std::size_t>((world.rank() + shift) % 5)];
        bool failed = false;
        try {
          run_joined(ddp, {}, [&] {
            two_passes(model, ddp, world.rank(), when, false, [] { throw std::domain_error("bad batch"); });
          });
        } catch (const std::domain_error&) {
          failed = true;
        } catch (const peer_error& problem) {
          CHECK_CONTAINS(problem.what(), "bad batch");
          failed = true;
        }
        CHECK(failed);
        check_trains_on(model, ddp, world);
      });
    }
  }
}

TEST_CASE("join: an exception of a callback on a rank without data is an error on every rank") {
  at_every_size(
      [](const process_group& world) {
        toy_model model({5});
        distributed_data_parallel ddp(model.views());
        const auto loop = [&] {
          for (int number = 0; number < (world.rank() == 0 ? 0 : 3); ++number) {
            pass(model, ddp, world.rank(), number);
          }
        };
        const join_options options{.on_shadow = [] { throw std::domain_error("no optimizer"); }};
        if (world.rank() == 0) {
          CHECK_THROWS_WITH_AS(run_joined(ddp, options, loop), "no optimizer", std::domain_error);
        } else {
          const auto problem = error_of<peer_error>([&] { run_joined(ddp, options, loop); });
          CHECK(problem.peer() == 0);
          CHECK_CONTAINS(problem.what(), "no optimizer");
        }
        check_trains_on(model, ddp, world);
      },
      2);
}

TEST_CASE("join: with throw_on_early_end every rank names the rank that ran out of data") {
  for (const int ranks : rank_counts_from(2)) {
    run_noted(ranks, {}, [](const process_group& world) {
      toy_model model({5});
      distributed_data_parallel ddp(model.views());
      const bool odd = world.rank() % 2 == 1;
      const auto train = [&](int passes) {
        run_joined(ddp, {.throw_on_early_end = true}, [&] {
          for (int number = 0; number < passes; ++number) {
            pass(model, ddp, world.rank(), number);
          }
        });
      };
      train(2);  // all at once: no error
      const std::string who = world.size() < 4    ? "rank 1 ran out"
                              : world.size() == 4 ? "ranks 1 and 3 ran out"
                                                  : "ranks 1, 3, 5 and 7 ran out";
      if (odd) {
        const auto problem = error_of<usage_error>([&] { train(2); });
        CHECK_CONTAINS(problem.what(), who + " of data before backward pass 5");
      } else {
        const auto problem = error_of<peer_error>([&] { train(3); });
        CHECK(problem.peer() == 1);
        CHECK_CONTAINS(problem.what(), who + " of data before backward pass 5");
        CHECK_CONTAINS(problem.what(), "join_failure_test.cpp");
      }
      check_trains_on(model, ddp, world);
    });
  }
}

TEST_CASE("join: disagreement about no_sync is an error on every rank, with data or without") {
  for (const int ranks : rank_counts_from(2)) {
    run_noted(ranks, {}, [](const process_group& world) {
      toy_model model({5});
      distributed_data_parallel ddp(model.views());
      const auto problem = error_of<mismatch_error>([&] {
        join_scope scope(ddp);
        if (world.rank() != 2) {
          pass(model, ddp, world.rank(), 0);
          std::optional<distributed_data_parallel::no_sync_scope> off;
          if (world.rank() == 1) {
            off.emplace(ddp);
          }
          pass(model, ddp, world.rank(), 1);
        }
        scope.finish();
      });
      CHECK(problem.first_rank() == 0);
      CHECK(problem.second_rank() == 1);
      CHECK_CONTAINS(problem.what(), "rank 0 averages its gradients, rank 1 is inside no_sync");
      CHECK_CONTAINS(problem.what(), "in backward pass 2");
      CHECK_CONTAINS(problem.what(), "join_failure_test.cpp");
      check_same_everywhere(problem.detail(), world);
      check_trains_on(model, ddp, world);
    });
  }
}

TEST_CASE("join: different options are an error on every rank") {
  at_every_size(
      [](const process_group& world) {
        toy_model model({5});
        distributed_data_parallel ddp(model.views());
        const bool odd = world.rank() == 1;
        for (const join_options& options :
             {join_options{.divisor = divide_by::live_ranks}, join_options{.throw_on_early_end = true},
              join_options{.synchronize_final_model = false}}) {
          const auto problem = error_of<mismatch_error>(
              [&] { run_joined(ddp, odd ? options : join_options{}, [&] { pass(model, ddp, world.rank(), 0); }); });
          CHECK(problem.second_rank() == 1);
          CHECK_CONTAINS(problem.what(),
                         "the join_options differ: rank 0 has divide_by::initial_world, "
                         "throw_on_early_end = false, synchronize_final_model = true");
          check_trains_on(model, ddp, world);
        }
      },
      2);
}

TEST_CASE("join: a pass without begin_forward, with two of them or across no_sync is a usage_error") {
  at_every_size([](const process_group& world) {
    toy_model model({5});
    distributed_data_parallel ddp(model.views());
    join_scope scope(ddp, {.on_shadow = [] {}});  // some passes end inside no_sync
    const auto text_of = [](auto call) { return std::string(error_of<usage_error>(call).what()); };
    CHECK_CONTAINS(text_of([&] { ddp.mark_ready("p0"); }), "mark_ready without begin_forward");
    CHECK_CONTAINS(text_of([&] { ddp.finish(); }), "finish without begin_forward");
    ddp.begin_forward();
    CHECK_CONTAINS(text_of([&] { ddp.begin_forward(); }), "twice without finish");
    CHECK_CONTAINS(text_of([&] { scope.finish(); }), "between begin_forward and finish");
    CHECK_CONTAINS(text_of([&] { const join_scope inner(ddp); }), "open already");
    {
      const auto off = ddp.no_sync();
      CHECK_CONTAINS(text_of([&] { ddp.mark_ready("p0"); }), "outside no_sync, mark_ready inside of it");
      CHECK_CONTAINS(text_of([&] { ddp.finish(); }), "outside no_sync, finish inside of it");
    }
    mark(model, ddp, world.rank(), 0);
    ddp.finish();
    CHECK(model.is_average(world.size(), 0));
    {
      const auto off = ddp.no_sync();
      ddp.begin_forward();
    }
    CHECK_CONTAINS(text_of([&] { ddp.finish(); }), "inside no_sync, finish outside of it");
    {
      const auto off = ddp.no_sync();
      ddp.finish();
    }
    scope.finish();
    CHECK_CONTAINS(text_of([&] { scope.finish(); }), "closed already");
    check_trains_on(model, ddp, world);
  });
}

TEST_CASE("join: a parameter that never became ready is an error also on ranks without data") {
  at_every_size([](const process_group& world) {
    toy_model model({5, 6});
    distributed_data_parallel ddp(model.views(), {}, one_element_buckets);
    const int last = world.size() - 1;
    const auto loop = [&] {
      if (world.rank() == last) {
        ddp.begin_forward();
        ddp.mark_ready("p1");
        ddp.finish();
      }
    };
    if (world.rank() == last) {
      CHECK_CONTAINS(error_of<usage_error>([&] { run_joined(ddp, {}, loop); }).what(), "never became ready");
    } else {
      CHECK_CONTAINS(error_of<peer_error>([&] { run_joined(ddp, {}, loop); }).what(), "never became ready");
    }
    check_trains_on(model, ddp, world);
  });
}

TEST_CASE("join: another collective, which ranks without data cannot answer, is an error and not a hang") {
  at_every_size(
      [](const process_group& world) {
        toy_model model({5});
        distributed_data_parallel ddp(model.views());
        const auto train = [&](auto other) {
          join_scope scope(ddp);
          if (world.rank() != 1) {
            pass(model, ddp, world.rank(), 0);
            if (world.rank() == 0) {
              other();
            }
          }
          scope.finish();
        };
        const auto mismatch = error_of<mismatch_error>([&] { train([] { barrier(); }); });
        CHECK_CONTAINS(mismatch.what(), "barrier");
        check_trains_on(model, ddp, world);
        int value = 0;
        const auto bad_root = [&] { train([&] { broadcast(value, 99); }); };
        if (world.rank() == 0) {
          CHECK_CONTAINS(error_of<usage_error>(bad_root).what(), "root 99");
        } else {
          CHECK_CONTAINS(error_of<peer_error>(bad_root).what(), "root 99");
        }
        check_trains_on(model, ddp, world);
      },
      2);
}

TEST_CASE("join: after a common failure the scope refuses further passes instead of waiting") {
  run_noted(2, {}, [](const process_group& world) {
    toy_model model({5});
    distributed_data_parallel ddp(model.views());
    {
      join_scope scope(ddp);
      {
        std::optional<distributed_data_parallel::no_sync_scope> off;
        if (world.rank() == 1) {
          off.emplace(ddp);
        }
        CHECK_THROWS_AS(ddp.begin_forward(), mismatch_error);
      }
      CHECK_CONTAINS(error_of<usage_error>([&] { ddp.begin_forward(); }).what(), "failed together");
      CHECK_CONTAINS(error_of<usage_error>([&] { scope.finish(); }).what(), "failed together");
    }
    check_trains_on(model, ddp, world);
  });
}

TEST_CASE("join: a rank that ends is a peer_error on ranks without data") {
  for (const int ranks : {2, 4}) {
    for (const bool in_the_middle : {false, true}) {
      std::atomic<int> told{0};
      const auto rank_main = [&](const process_group& world) {
        toy_model model({1000, 5});
        distributed_data_parallel ddp(model.views(), {}, one_element_buckets);
        try {
          join_scope scope(ddp);
          if (world.rank() == 1) {
            pass(model, ddp, 1, 0);
            if (in_the_middle) {
              ddp.begin_forward();
            }
            throw std::domain_error("out of memory");
          }
          scope.finish();
        } catch (const peer_error& problem) {
          CHECK(problem.peer() == 1);
          told += contains(problem.what(), "out of memory") ? 1 : 0;
          throw;
        }
      };
      CHECK_THROWS_WITH_AS(run_ranks(ranks, rank_main), "out of memory", std::domain_error);
      CHECK(told == ranks - 1);
    }
  }
}

/// Leaves an error of rank 1 that its next collective throws.
void leave_error_behind(const process_group& world) {
  const failing_object object{.fails_to_save = world.rank() == 1};
  if (world.rank() == 1) {
    (void)all_gather_async(object, world);
  } else {
    CHECK_CONTAINS(error_of<peer_error>([&] { (void)all_gather(object, world); }).what(), "cannot save this");
  }
}

TEST_CASE("join: the error of an earlier asynchronous operation ends the scope on every rank at once") {
  at_every_size(
      [](const process_group& world) {
        toy_model model({5});
        distributed_data_parallel ddp(model.views());
        for (const bool has_data : {true, false}) {
          leave_error_behind(world);
          const auto train = [&] {
            join_scope scope(ddp);
            if (has_data || world.rank() != 1) {
              pass(model, ddp, world.rank(), 0);
            }
            scope.finish();
          };
          if (world.rank() == 1) {
            CHECK_THROWS_WITH_AS(train(), "cannot save this", std::domain_error);
          } else {
            const auto problem = error_of<peer_error>(train);
            CHECK(problem.peer() == 1);
            CHECK_CONTAINS(problem.what(), "an earlier operation of this rank failed");
          }
          check_trains_on(model, ddp, world);
        }
      },
      2);
}

TEST_CASE("join: leaving the scope keeps an earlier error for the next operation") {
  at_every_size(
      [](const process_group& world) {
        toy_model model({5});
        distributed_data_parallel ddp(model.views());
        const auto train = [&] {
          join_scope scope(ddp);
          pass(model, ddp, world.rank(), 0);
          leave_error_behind(world);
          if (world.rank() == 1) {
            throw std::domain_error("bad batch");
          }
          scope.finish();
        };
        if (world.rank() == 1) {
          CHECK_THROWS_WITH_AS(train(), "bad batch", std::domain_error);
          CHECK_THROWS_WITH_AS(barrier(), "cannot save this", std::domain_error);
        } else {
          CHECK(error_of<peer_error>(train).peer() == 1);
          CHECK(error_of<peer_error>([] { barrier(); }).peer() == 1);
        }
        check_trains_on(model, ddp, world);
      },
      2);
}

}  // namespace
