// SPDX-License-Identifier: MIT
// Mistakes that are neither a different operation nor different arguments of one (see mismatch_test.cpp): every rank
// gets a named error, nothing hangs, and no data is harmed.
#include "ranks.hpp"

#include <cstdint>
#include <limits>
#include <map>
#include <span>

#include <hfcomm/engine/shared_memory/memory.hpp>
#include <hfcomm/machine/shared_segment.hpp>

namespace {

using namespace hfcomm;
using namespace multi_rank;

/// The last rank must get a usage_error with `text` from `misuse(world)`, all others a peer_error that quotes it from
/// `use(world)`. Then the group must still work.
template <class Misuse, class Use>
void refused(const std::string& text, Misuse misuse, Use use) {
  at_every_size([&](const process_group& world) {
    const int odd = world.size() - 1;
    if (world.rank() == odd) {
      const auto problem = error_of<usage_error>([&] { misuse(world); });
      CHECK_CONTAINS(problem.what(), text);
      CHECK_CONTAINS(problem.what(), "misuse_test.cpp");
    } else {
      const auto problem = error_of<peer_error>([&] { use(world); });
      CHECK(problem.peer() == odd);
      CHECK_FALSE(problem.fatal());
      CHECK_CONTAINS(problem.what(), text);
    }
    check_usable(world);
  });
}

}  // namespace

TEST_CASE("misuse: skipping an operation is an error on every rank") {
  at_every_size(
      [](const process_group& world) {
        std::vector<float> values(1000, 1.0F);
        const auto problem = error_of<mismatch_error>([&] {
          if (world.rank() != 1) {
            all_reduce(values, reduce_op::sum, world);
          } else {
            broadcast(std::span(values), 0, world);
          }
        });
        CHECK_CONTAINS(problem.what(), "all_reduce(1000 x float32, sum)");
        CHECK_CONTAINS(problem.what(), "broadcast(1000 x float32, root 0)");
        CHECK(values == std::vector<float>(1000, 1.0F));
        check_usable(world);
      },
      2);
}

TEST_CASE("misuse: skipping an iteration of a loop is noticed at once with tags") {
  at_every_size(
      [](const process_group& world) {
        for (std::uint64_t i = 1; i <= 5; ++i) {
          if (world.rank() == 1 && i == 3) {
            continue;
          }
          const auto add = [&] { return all_reduce(static_cast<int>(i), reduce_op::sum, world.with_tag(i)); };
          if (i < 3) {
            CHECK(add() == static_cast<int>(i) * world.size());
          } else {
            const auto problem = error_of<mismatch_error>(add);
            const int other = world.rank() == 1 ? static_cast<int>(i) - 1 : static_cast<int>(i);
            CHECK_CONTAINS(problem.what(), "tag " + std::to_string(other));
            CHECK_CONTAINS(problem.what(), "tag " + std::to_string(other + 1));
            if (world.rank() != 1 && i == 4) {
              break;  // rank 1 has called twice since
            }
          }
        }
        check_usable(world);
      },
      2);
}

TEST_CASE("misuse: one call more than the others make is a peer_error") {
  // The others have returned, which rank 0's extra call notices at once.
  for (const int ranks : rank_counts_from(2)) {
    CHECK_THROWS_AS(run_ranks(ranks,
                              [](const process_group& world) {
                                barrier(world);
                                if (world.rank() == 0) {
                                  const auto problem = error_of<peer_error>([&] { barrier(world); });
                                  CHECK(problem.fatal());
                                  CHECK_CONTAINS(problem.what(), "has left");
                                  CHECK_CONTAINS(problem.what(), "barrier() at misuse_test.cpp");
                                  throw problem;
                                }
                              }),
                    peer_error);
  }
}

TEST_CASE("misuse: using two groups in opposite orders is a deadlock until their deadline") {
  for (const int ranks : {2, 3, 4}) {
    run_noted(ranks, {}, [](const process_group& world) {
      const auto first = world.split(0).with_timeout(std::chrono::milliseconds(300));
      const auto second = world.split(0).with_timeout(std::chrono::milliseconds(300));
      const bool odd = world.rank() == 1;
      // The first rank whose deadline passes breaks the group it waits in. All ranks may then still reach the other
      // group.
      int errors = 0;
      for (const auto& group : {odd ? second : first, odd ? first : second}) {
        try {
          barrier(group);
        } catch (const timeout_error& problem) {
          ++errors;
          CHECK_FALSE(problem.missing().empty());
          CHECK_CONTAINS(problem.what(), "did not arrive at barrier");
          CHECK(group.broken());
        }
      }
      CHECK(errors >= 1);
      check_usable(world);
    });
  }
}

TEST_CASE("misuse: two threads may use two groups in any order") {
  at_every_size([](const process_group& world) {
    const auto first = world.split(0);
    const auto second = world.split(0);
    const bool odd = world.rank() % 2 == 1;
    int sums[2]{};
    std::thread helper([&] { sums[0] = all_reduce(1, reduce_op::sum, odd ? second : first); });
    sums[1] = all_reduce(1, reduce_op::sum, odd ? first : second);
    helper.join();
    CHECK(sums[0] == world.size());
    CHECK(sums[1] == world.size());
  });
}

TEST_CASE("misuse: two ranks that both send first time out") {
  for (const int ranks : {2, 4}) {
    run_noted(ranks, {}, [](const process_group& world) {
      const auto pairs = world.split(world.rank() / 2).with_timeout(std::chrono::milliseconds(200));
      const int other = 1 - pairs.rank();
      const auto problem = error_of<timeout_error>([&] { send(pairs.rank(), other, pairs); });
      CHECK_CONTAINS(problem.what(), "did not take the message of send<int>");
      CHECK_CONTAINS(problem.what(), "misuse_test.cpp");
      CHECK(pairs.broken());
      // The correct way.
      const auto again = world.split(world.rank() / 2);
      CHECK(send_receive(again.rank(), 1 - again.rank(), 1 - again.rank(), again) == 1 - again.rank());
      check_usable(world);
    });
  }
}

TEST_CASE("misuse: a buffer at address 0 is an error on every rank") {
  const auto null = [] { return std::span<float>(static_cast<float*>(nullptr), 3); };
  std::vector<float> three(3);
  refused(
      "at address 0", [&](const process_group& world) { all_reduce(null(), reduce_op::sum, world); },
      [&](const process_group& world) {
        std::vector<float> mine(3);
        all_reduce(mine, reduce_op::sum, world);
      });
  refused(
      "at address 0", [&](const process_group& world) { broadcast(null(), 0, world); },
      [&](const process_group& world) {
        std::vector<float> mine(3);
        broadcast(std::span(mine), 0, world);
      });
  refused(
      "at address 0",
      [&](const process_group& world) {
        std::vector<float> out(3 * as_index(world.size()));
        all_gather(null(), out, world);
      },
      [&](const process_group& world) {
        std::vector<float> mine(3);
        std::vector<float> out(3 * as_index(world.size()));
        all_gather(mine, out, world);
      });
}

TEST_CASE("misuse: a buffer without elements may be at address 0") {
  at_every_size([](const process_group& world) {
    std::span<float> none;
    all_reduce(none, reduce_op::sum, world);
    broadcast(none, 0, world);
    all_gather(none, none, world);
    gather(none, none, 0, world);
    scatter(none, none, 0, world);
    all_to_all(none, none, world);
    reduce_scatter(none, none, reduce_op::sum, world);
    check_usable(world);
  });
}

TEST_CASE("misuse: an output that overlaps the input is an error on every rank") {
  refused(
      "overlaps",
      [](const process_group& world) {
        std::vector<int> both(15, 1);
        all_reduce(std::span(both).first(10), std::span(both).last(10), reduce_op::sum, world);
      },
      [](const process_group& world) {
        std::vector<int> in(10, 1);
        all_reduce(in, in, reduce_op::sum, world);
      });
  refused(
      "overlaps",
      [](const process_group& world) {
        std::vector<int> both(5 * as_index(world.size()) + 1, 1);
        all_gather(std::span(both).subspan(5 * as_index(world.rank()) + 1, 5),
                   std::span(both).first(5 * as_index(world.size())), world);
      },
      [](const process_group& world) {
        std::vector<int> out(5 * as_index(world.size()));
        all_gather(std::span(out).subspan(5 * as_index(world.rank()), 5), out, world);
      });
  refused(
      "overlaps",
      [](const process_group& world) {
        std::vector<int> both(6 * as_index(world.size()));
        all_to_all(both, both, world);
      },
      [](const process_group& world) {
        std::vector<int> in(6 * as_index(world.size()));
        std::vector<int> out(in.size());
        all_to_all(in, out, world);
      });
}

TEST_CASE("misuse: more elements than memory can hold are an error on every rank") {
  refused(
      "no memory has room",
      [](const process_group& world) {
        double one = 0;
        all_reduce(std::span<double>(&one, std::numeric_limits<std::size_t>::max() / 4), reduce_op::sum, world);
      },
      [](const process_group& world) {
        std::vector<double> mine(1);
        all_reduce(mine, reduce_op::sum, world);
      });
}

TEST_CASE("misuse: lengths whose product overflows are an error on every rank") {
  run_noted(4, {}, [](const process_group& world) {
    char place = 0;
    const std::span<char> part(&place, std::size_t{1} << 62);
    const std::span<std::int8_t> numbers(reinterpret_cast<std::int8_t*>(&place), std::size_t{1} << 62);
    CHECK_THROWS_AS(all_gather(part, std::span<char>(), world), usage_error);
    CHECK_THROWS_AS(reduce_scatter(std::span<std::int8_t>(), numbers, reduce_op::sum, world), usage_error);
    const bool is_root = world.rank() == 0;
    const auto collect = [&] { gather(is_root ? part : std::span<char>(&place, 1), std::span<char>(), 0, world); };
    const auto distribute = [&] { scatter(std::span<char>(), is_root ? part : std::span<char>(), 0, world); };
    if (is_root) {
      CHECK_THROWS_AS(collect(), usage_error);
      CHECK_THROWS_AS(distribute(), usage_error);
    } else {
      CHECK_THROWS_AS(collect(), peer_error);
      CHECK_THROWS_AS(distribute(), peer_error);
    }
    check_usable(world);
  });
}

TEST_CASE("misuse: counts whose sum overflows or that lack a rank are an error on every rank") {
  refused(
      "no number can hold",
      [](const process_group& world) {
        std::vector<std::size_t> counts(as_index(world.size()) + 1, std::numeric_limits<std::size_t>::max() / 2 + 2);
        counts.resize(as_index(world.size()));
        std::vector<int> none;
        if (world.size() == 1) {  // one count cannot overflow
          throw usage_error({}, "no number can hold misuse_test.cpp");
        }
        reduce_scatter(none, none, counts, reduce_op::sum, world);
      },
      [](const process_group& world) {
        std::vector<int> none;
        reduce_scatter(none, none, std::vector<std::size_t>(as_index(world.size())), reduce_op::sum, world);
      });
  refused(
      "counts for",
      [](const process_group& world) {
        std::vector<int> none;
        all_gather(none, none, std::vector<std::size_t>(as_index(world.size()) + 1), world);
      },
      [](const process_group& world) {
        std::vector<int> none;
        all_gather(none, none, std::vector<std::size_t>(as_index(world.size())), world);
      });
}

TEST_CASE("misuse: a factor that is not a number is an error on every rank") {
  refused(
      "not a number",
      [](const process_group& world) {
        (void)all_reduce(1.0, reduce_op::premultiplied_sum(std::numeric_limits<double>::quiet_NaN()), world);
      },
      [](const process_group& world) { (void)all_reduce(1.0, reduce_op::premultiplied_sum(2), world); });
}

TEST_CASE("misuse: an average of integers chosen at run time is an error on every rank") {
  refused(
      "average", [](const process_group& world) { (void)all_reduce(1, reduce_op(reduce_kind::average), world); },
      [](const process_group& world) { (void)all_reduce(1, reduce_op::sum, world); });
}

TEST_CASE("misuse: memory laid out by another version is an engine_error") {
  const auto sizes = engines::layout::dimensions::for_ranks(2);
  auto segment = rendezvous::shared_segment::anonymous(sizes.total_bytes());
  engines::layout::create_in(*segment, sizes);
  CHECK_NOTHROW(engines::group_memory(std::shared_ptr<rendezvous::shared_segment>(segment), 2));
  auto* header = reinterpret_cast<engines::layout::group_header*>(segment->data());
  ++header->version;
  CHECK_THROWS_AS(engines::group_memory(segment, 2), engine_error);
  --header->version;
  CHECK_THROWS_AS(engines::group_memory(segment, 3), engine_error);
}
