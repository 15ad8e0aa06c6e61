// SPDX-License-Identifier: MIT
#include "ranks.hpp"

#include <cstdint>
#include <map>
#include <span>

namespace {

using namespace hfcomm;
using namespace multi_rank;

/// One rank calls `odd`, the others `usual`, each handing the group to its operation through a line_note. Every rank
/// must get a mismatch_error with both calls (which begin as `usual_call` and `odd_call`) and both lines, the same one
/// everywhere; and the group must be usable as if nothing had happened.
template <class Usual, class Odd>
void expect_disagreement(Usual usual, Odd odd, const std::string& usual_call, const std::string& odd_call) {
  for (const int ranks : rank_counts) {
    for (const int odd_rank : {0, 1, ranks - 1}) {
      if (ranks < 2 || (odd_rank == 1 && ranks == 2)) {
        continue;
      }
      run_noted(ranks, "odd is " + std::to_string(odd_rank), [&](const process_group& world) {
        for (int round = 0; round < 2; ++round) {
          line_note note;
          const auto problem = error_of<mismatch_error>([&] {
            if (world.rank() == odd_rank) {
              odd(world, note);
            } else {
              usual(world, note);
            }
          });
          const int second = odd_rank == 0 ? 1 : odd_rank;
          CHECK(problem.first_rank() == 0);
          CHECK(problem.second_rank() == second);
          CHECK(problem.rank() == world.rank());
          CHECK(problem.sequence() > 0);
          CHECK(problem.where().line() > 0);
          CHECK(problem.context().size == world.size());
          CHECK_CONTAINS(problem.what(), "rank " + std::to_string(world.rank()) + '/' + std::to_string(world.size()));
          CHECK_CONTAINS(problem.what(), "mismatch_test.cpp");
          check_usable(world);
          const auto sites = all_gather(note.text());
          for (const int rank : {0, second}) {
            const std::string& call = rank == odd_rank ? odd_call : usual_call;
            CHECK_CONTAINS(problem.what(), "rank " + std::to_string(rank) + " called " + call);
            CHECK_CONTAINS(problem.what(), ") at " + sites[as_index(rank)]);
          }
          CHECK_FALSE(contains(problem.what(), " of )"));
          check_same_everywhere(problem.detail(), world);
          check_same_everywhere(problem.sequence(), world);
        }
      });
    }
  }
}

TEST_CASE("mismatch: different operations are a mismatch_error on every rank") {
  expect_disagreement([](auto& world, auto& note) { (void)all_gather(1, note(world)); },
                      [](auto& world, auto& note) {
                        int value = 1;
                        broadcast(value, 0, note(world));
                      },
                      "all_gather(an object of type int)", "broadcast(an object of type int, root 0)");
  expect_disagreement([](auto& world, auto& note) { barrier(note(world)); },
                      [](auto& world, auto& note) { (void)shared_random_seed(note(world)); }, "barrier()",
                      "shared_random_seed(1 x uint64, root 0)");
  expect_disagreement([](auto& world, auto& note) { (void)gather(std::string("x"), 0, note(world)); },
                      [](auto& world, auto& note) { (void)all_gather(std::string("x"), note(world)); },
                      "gather(an object of type ", "all_gather(an object of type ");
  expect_disagreement([](auto& world, auto& note) { (void)note(world).split(0); },
                      [](auto& world, auto& note) { barrier(note(world)); }, "split(", "barrier()");
}

TEST_CASE("mismatch: an operation with much data against one with none is a mismatch_error on every rank") {
  const std::string large(1'000'000, 'x');
  expect_disagreement([&](auto& world, auto& note) { (void)all_gather(large, note(world)); },
                      [](auto& world, auto& note) { barrier(note(world)); }, "all_gather(", "barrier()");
  expect_disagreement(
      [](auto& world, auto& note) {
        std::vector<float> data(300'000, 1.0F);
        all_reduce(data, reduce_op::sum, note(world));
        CHECK(false);
      },
      [&](auto& world, auto& note) { (void)all_gather(large, note(world)); }, "all_reduce(300000 x float32, sum)",
      "all_gather(");
}

TEST_CASE("mismatch: different roots are a mismatch_error on every rank") {
  expect_disagreement(
      [](auto& world, auto& note) {
        std::string text = "mine";
        CHECK_THROWS_AS(broadcast(text, 0, note(world)), mismatch_error);
        CHECK(text == "mine");
        broadcast(text, 0, note(world));
      },
      [](auto& world, auto& note) {
        std::string text = "mine";
        CHECK_THROWS_AS(broadcast(text, 1, note(world)), mismatch_error);
        CHECK(text == "mine");
        broadcast(text, 1, note(world));
      },
      "broadcast(an object of type ", "broadcast(an object of type ");
  expect_disagreement([](auto& world, auto& note) { (void)gather(1, 1, note(world)); },
                      [](auto& world, auto& note) { (void)gather(1, 0, note(world)); },
                      "gather(an object of type int, root 1)", "gather(an object of type int, root 0)");
  expect_disagreement([](auto& world, auto& note) { (void)reduce(1.0F, 0, reduce_op::sum, note(world)); },
                      [](auto& world, auto& note) { (void)reduce(1.0F, 1, reduce_op::sum, note(world)); },
                      "reduce(1 x float32, sum, root 0)", "reduce(1 x float32, sum, root 1)");
  expect_disagreement(
      [](auto& world, auto& note) { (void)reduce_dict(std::map<int, float>{}, reduce_op::sum, 0, note(world)); },
      [](auto& world, auto& note) { (void)reduce_dict(std::map<int, float>{}, reduce_op::sum, 1, note(world)); },
      "reduce_dict(an object of type ", "reduce_dict(an object of type ");
}

TEST_CASE("mismatch: different counts are a mismatch_error on every rank") {
  for (const std::size_t count : each_of(3, 4096, 200'000)) {
    const auto reduces = [](std::size_t elements) {
      return [=](auto& world, auto& note) {
        std::vector<float> data(elements, 2.0F);
        const std::vector<float> before = data;
        CHECK_THROWS_AS(all_reduce(data, reduce_op::sum, world), mismatch_error);
        CHECK((data == before));
        all_reduce(data, reduce_op::sum, note(world));
      };
    };
    expect_disagreement(reduces(count), reduces(count + 1), "all_reduce(" + std::to_string(count) + " x float32, sum)",
                        "all_reduce(" + std::to_string(count + 1) + " x float32, sum)");
  }
  const auto gathers = [](std::size_t elements) {
    return [=](auto& world, auto& note) {
      std::vector<std::int16_t> out(elements * as_index(world.size()));
      all_gather(std::vector<std::int16_t>(elements), out, note(world));
    };
  };
  expect_disagreement(gathers(0), gathers(1), "all_gather(0 x int16)", "all_gather(1 x int16)");
  const auto broadcasts = [](std::size_t elements) {
    return [=](auto& world, auto& note) {
      std::vector<double> data(elements);
      broadcast(std::span(data), 0, note(world));
    };
  };
  expect_disagreement(broadcasts(10), broadcasts(11), "broadcast(10 x float64, root 0)",
                      "broadcast(11 x float64, root 0)");
}

TEST_CASE("mismatch: different types are a mismatch_error on every rank") {
  expect_disagreement([](auto& world, auto& note) { (void)all_gather(1, note(world)); },
                      [](auto& world, auto& note) { (void)all_gather(1.0F, note(world)); },
                      "all_gather(an object of type int)", "all_gather(an object of type float)");
  expect_disagreement([](auto& world, auto& note) { (void)all_gather(std::vector<int>{}, note(world)); },
                      [](auto& world, auto& note) { (void)all_gather(std::vector<unsigned>{}, note(world)); },
                      "all_gather(an object of type ", "all_gather(an object of type ");
  expect_disagreement([](auto& world, auto& note) { (void)all_reduce(1, reduce_op::sum, note(world)); },
                      [](auto& world, auto& note) { (void)all_reduce(1.0F, reduce_op::sum, note(world)); },
                      "all_reduce(1 x int32, sum)", "all_reduce(1 x float32, sum)");
  expect_disagreement(
      [](auto& world, auto& note) { (void)all_reduce_dict(std::map<int, float>{}, reduce_op::sum, note(world)); },
      [](auto& world, auto& note) { (void)all_reduce_dict(std::map<int, double>{}, reduce_op::sum, note(world)); },
      "all_reduce_dict(an object of type ", "all_reduce_dict(an object of type ");
  // An object and a buffer of the same bytes are different.
  expect_disagreement(
      [](auto& world, auto& note) {
        int value = 0;
        broadcast(value, 0, note(world));
      },
      [](auto& world, auto& note) {
        int value = 0;
        broadcast(std::span(&value, 1), 0, note(world));
      },
      "broadcast(an object of type int, root 0)", "broadcast(1 x int32, root 0)");
}

TEST_CASE("mismatch: different reductions are a mismatch_error on every rank") {
  expect_disagreement([](auto& world, auto& note) { (void)all_reduce(1.0, reduce_op::sum, note(world)); },
                      [](auto& world, auto& note) { (void)all_reduce(1.0, reduce_op::max, note(world)); },
                      "all_reduce(1 x float64, sum)", "all_reduce(1 x float64, max)");
  expect_disagreement(
      [](auto& world, auto& note) { (void)all_reduce(1.0, reduce_op::premultiplied_sum(0.1), note(world)); },
      [](auto& world, auto& note) { (void)all_reduce(1.0, reduce_op::sum, note(world)); },
      "all_reduce(1 x float64, premultiplied sum by 0.1)", "all_reduce(1 x float64, sum)");
  const auto reduces = [](reduce_op op) {
    return [=](auto& world, auto& note) { (void)reduce_dict(std::map<int, float>{{1, 1.0F}}, op, 0, note(world)); };
  };
  expect_disagreement(reduces(reduce_op::average), reduces(reduce_op::sum), "reduce_dict(", "reduce_dict(");
}

TEST_CASE("mismatch: different tags of a premultiplied sum are a mismatch_error on every rank") {
  expect_disagreement(
      [](auto& world, auto& note) {
        (void)all_reduce(1.0, reduce_op::premultiplied_sum(0.5), note(world.with_tag(1)));
      },
      [](auto& world, auto& note) {
        (void)all_reduce(1.0, reduce_op::premultiplied_sum(0.5), note(world.with_tag(2)));
      },
      "all_reduce(1 x float64, premultiplied sum by 0.5, tag 1)",
      "all_reduce(1 x float64, premultiplied sum by 0.5, tag 2)");
}

TEST_CASE("mismatch: when every rank calls something else, the first that differs is named") {
  at_every_size(
      [](const process_group& world) {
        std::vector<float> data(as_index(world.rank() + 1));
        const auto problem = error_of<mismatch_error>([&] { all_reduce(data); });
        CHECK(problem.first_rank() == 0);
        CHECK(problem.second_rank() == 1);
        CHECK_CONTAINS(problem.what(), "rank 0 called all_reduce(1 x float32, sum)");
        CHECK_CONTAINS(problem.what(), "rank 1 called all_reduce(2 x float32, sum)");
        check_usable(world);
      },
      2);
}

TEST_CASE("mismatch: scopes are compared like operations") {
  expect_disagreement([](auto& world, auto& note) { const barrier_scope guard(note(world)); },
                      [](auto& world, auto& note) { (void)all_gather(1, note(world)); }, "barrier()", "all_gather(");
}

TEST_CASE("mismatch: a master_first section that others do not enter is an error on every rank") {
  at_every_size(
      [](const process_group& world) {
        // Rank 0 waits for nobody in its section, and a waiting rank only for rank 0: some of them notice only with
        // their next operation, whose partners then get peer_error.
        const auto calls = [&] {
          if (world.rank() == 1) {
            barrier();
          } else {
            const master_first guard;
          }
          barrier();
        };
        if (world.rank() == 1) {
          CHECK(error_of<mismatch_error>(calls).second_rank() == 1);
          CHECK_THROWS_AS(barrier(), peer_error);
        } else {
          const auto problem = error_of<mismatch_error>(calls);
          CHECK(problem.second_rank() == 1);
          CHECK_CONTAINS(problem.what(), "master_first(");
          CHECK_CONTAINS(problem.what(), "barrier(");
        }
        check_usable(world);
      },
      2);
}

TEST_CASE("mismatch: a root outside the group is a usage_error on its rank and an error on the others") {
  at_every_size([](const process_group& world) {
    const int odd = world.size() - 1;
    for (const int wrong : {-1, world.size(), 1'000'000}) {
      const auto expect = [&](auto call) {
        line_note note;
        const std::string said = "root " + std::to_string(wrong) + " is not a rank";
        if (world.rank() == odd) {
          const auto problem = error_of<usage_error>([&] { call(wrong, note); });
          CHECK_CONTAINS(problem.what(), said);
          CHECK_CONTAINS(problem.what(), note.text());
        } else {
          const auto problem = error_of<peer_error>([&] { call(0, note); });
          CHECK(problem.peer() == odd);
          CHECK_FALSE(problem.fatal());
          CHECK_CONTAINS(problem.what(), said);
          CHECK_CONTAINS(problem.what(), note.text());
        }
        check_usable(world);
      };
      expect([&](int root, line_note& note) { (void)gather(text_of(world.rank(), 5), root, note(world)); });
      expect([&](int root, line_note& note) { (void)reduce(1.0, root, reduce_op::sum, note(world)); });
      expect([&](int root, line_note& note) {
        (void)reduce_dict(std::map<int, float>{}, reduce_op::sum, root, note(world));
      });
      expect([&](int root, line_note& note) {
        std::string text;
        broadcast(text, root, note(world));
      });
      expect([&](int root, line_note& note) {
        std::array<int, 3> data{};
        broadcast(std::span(data), root, note(world));
      });
      expect([&](int root, line_note& note) {
        std::vector<int> out(as_index(world.size()));
        gather(std::array{1}, out, root, note(world));
      });
      expect([&](int root, line_note& note) { (void)reduce(std::string("x"), root, std::plus<>(), note(world)); });
    }
  });
}

}  // namespace
