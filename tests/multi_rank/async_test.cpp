// SPDX-License-Identifier: MIT
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <type_traits>

#include "parts.hpp"

#include <hfcomm/call/async.hpp>
#include <hfcomm/collectives/all_gather.hpp>
#include <hfcomm/collectives/all_reduce.hpp>
#include <hfcomm/collectives/all_to_all.hpp>
#include <hfcomm/collectives/barrier.hpp>
#include <hfcomm/collectives/broadcast.hpp>
#include <hfcomm/collectives/gather.hpp>
#include <hfcomm/collectives/reduce.hpp>
#include <hfcomm/collectives/reduce_scatter.hpp>
#include <hfcomm/collectives/scatter.hpp>
#include <hfcomm/collectives/shared_random_seed.hpp>

// Every asynchronous form, and the order of completion. work_test.cpp has the tests of `work` itself.
namespace {

using namespace hfcomm;
using namespace multi_rank;

using words = std::vector<std::string>;

TEST_CASE("async: barrier and shared_random_seed work") {
  at_every_size([](const process_group& world) {
    barrier_async(world).wait();
    const std::uint64_t seed = shared_random_seed_async(world).wait();
    check_same_everywhere(seed, world);
    CHECK(seed != shared_random_seed_async().wait());
  });
}

TEST_CASE("async: broadcast takes an object and a view") {
  at_every_size([](const process_group& world) {
    const int root = world.size() - 1;
    std::string text = text_of(world.rank(), 1000 * as_index(world.rank()));
    std::vector<float> numbers(70'000, static_cast<float>(world.rank()));
    auto first = broadcast_async(text, root, world);
    auto second = broadcast_async(std::span(numbers), root, world);
    first.wait();
    second.wait();
    CHECK(text == text_of(root, 1000 * as_index(root)));
    CHECK((numbers == std::vector<float>(70'000, static_cast<float>(root))));
  });
}

TEST_CASE("async: all_gather takes objects, equal and uneven parts") {
  at_every_size([](const process_group& world) {
    std::vector<std::size_t> counts;
    words expected_words;
    std::vector<std::uint32_t> expected;
    std::vector<std::uint32_t> expected_uneven;
    for (int rank = 0; rank < world.size(); ++rank) {
      counts.push_back(as_index(rank) * 40'000 % 90'000);
      expected_words.push_back(text_of(rank, as_index(rank) * 100));
      append(expected, part_of(rank, 0, 333));
      append(expected_uneven, part_of(rank, 1, counts.back()));
    }
    const auto in = part_of(world.rank(), 0, 333);
    const auto in_uneven = part_of(world.rank(), 1, counts[as_index(world.rank())]);
    std::vector<std::uint32_t> out(expected.size());
    std::vector<std::uint32_t> out_uneven(expected_uneven.size());
    auto one = all_gather_async(text_of(world.rank(), as_index(world.rank()) * 100), world);
    auto two = all_gather_async(in, out, world);
    auto three = all_gather_async(in_uneven, out_uneven, counts, world);
    CHECK((one.wait() == expected_words));
    two.wait();
    CHECK((out == expected));
    three.wait();
    CHECK((out_uneven == expected_uneven));
  });
}

TEST_CASE("async: gather takes objects, equal and uneven parts") {
  at_every_size([](const process_group& world) {
    const int root = world.size() / 2;
    const bool is_root = world.rank() == root;
    std::vector<std::size_t> counts;
    words expected_words;
    std::vector<std::uint32_t> expected;
    std::vector<std::uint32_t> expected_uneven;
    for (int rank = 0; rank < world.size(); ++rank) {
      counts.push_back(as_index(rank) * 40'000 % 90'000);
      if (is_root) {
        expected_words.push_back(text_of(rank, as_index(rank) * 100));
        append(expected, part_of(rank, 0, 333));
        append(expected_uneven, part_of(rank, 1, counts.back()));
      }
    }
    const auto in = part_of(world.rank(), 0, 333);
    const auto in_uneven = part_of(world.rank(), 1, counts[as_index(world.rank())]);
    std::vector<std::uint32_t> out(expected.size());
    std::vector<std::uint32_t> out_uneven(expected_uneven.size());
    auto one = gather_async(text_of(world.rank(), as_index(world.rank()) * 100), root, world);
    auto two = gather_async(in, out, root, world);
    auto three = gather_async(in_uneven, out_uneven, counts, root, world);
    three.wait();
    CHECK((out_uneven == expected_uneven));
    CHECK((one.wait() == expected_words));
    two.wait();
    CHECK((out == expected));
  });
}

TEST_CASE("async: scatter takes objects, equal and uneven parts") {
  at_every_size([](const process_group& world) {
    const int root = world.size() / 2;
    const bool is_root = world.rank() == root;
    std::vector<std::size_t> counts;
    words texts;
    std::vector<std::uint32_t> in;
    std::vector<std::uint32_t> in_uneven;
    for (int rank = 0; rank < world.size(); ++rank) {
      counts.push_back(as_index(rank) * 40'000 % 90'000);
      if (is_root) {
        texts.push_back(text_of(rank, as_index(rank) * 100));
        append(in, part_of(root, rank, 333));
        append(in_uneven, part_of(root, rank, counts.back()));
      }
    }
    std::vector<std::uint32_t> out(333);
    std::vector<std::uint32_t> out_uneven(counts[as_index(world.rank())]);
    auto one = scatter_async(texts, root, world);
    texts.assign(texts.size(), "too late");
    auto two = scatter_async(in, out, root, world);
    auto three = scatter_async(in_uneven, out_uneven, counts, root, world);
    CHECK(one.wait() == text_of(world.rank(), as_index(world.rank()) * 100));
    two.wait();
    CHECK((out == part_of(root, world.rank(), 333)));
    three.wait();
    CHECK((out_uneven == part_of(root, world.rank(), out_uneven.size())));
  });
}

TEST_CASE("async: all_to_all takes objects, equal and uneven parts") {
  at_every_size([](const process_group& world) {
    const auto count = [](int from, int to) { return as_index(from * 3 + to) * 7'000; };
    words texts;
    words expected_texts;
    std::vector<std::size_t> in_counts;
    std::vector<std::size_t> out_counts;
    std::vector<std::uint32_t> in;
    std::vector<std::uint32_t> expected;
    std::vector<std::uint32_t> in_uneven;
    std::vector<std::uint32_t> expected_uneven;
    for (int other = 0; other < world.size(); ++other) {
      texts.push_back(text_of(world.rank() + other, 50));
      expected_texts.push_back(texts.back());
      in_counts.push_back(count(world.rank(), other));
      out_counts.push_back(count(other, world.rank()));
      append(in, part_of(world.rank(), other, 100));
      append(expected, part_of(other, world.rank(), 100));
      append(in_uneven, part_of(world.rank(), other, in_counts.back()));
      append(expected_uneven, part_of(other, world.rank(), out_counts.back()));
    }
    std::vector<std::uint32_t> out(expected.size());
    std::vector<std::uint32_t> out_uneven(expected_uneven.size());
    auto one = all_to_all_async(texts, world);
    auto two = all_to_all_async(in, out, world);
    auto three = all_to_all_async(in_uneven, in_counts, out_uneven, out_counts, world);
    CHECK((one.wait() == expected_texts));
    two.wait();
    CHECK((out == expected));
    three.wait();
    CHECK((out_uneven == expected_uneven));
  });
}

TEST_CASE("async: all_reduce works in all its forms") {
  at_every_size([](const process_group& world) {
    const int ranks = world.size();
    const int sum = ranks * (ranks - 1) / 2;
    const std::vector<int> in(50'000, world.rank());
    std::vector<int> out(in.size());
    std::vector<double> data(5, world.rank());
    std::vector<std::int64_t> folded(1000, world.rank() + 1);
    auto out_of_place = all_reduce_async(in, out, reduce_op::sum, world);
    auto in_place = all_reduce_async(data, reduce_op::average, world);
    auto number = all_reduce_async(world.rank(), reduce_op::max, world);
    auto object = all_reduce_async(
        std::string(1, static_cast<char>('a' + world.rank())),
        [](std::string left, const std::string& right) { return left + right; }, world);
    auto view = all_reduce_async(
        std::span(folded), [](std::int64_t left, std::int64_t right) { return 3 * left + right; }, world);
    out_of_place.wait();
    CHECK((out == std::vector<int>(in.size(), sum)));
    in_place.wait();
    CHECK((data == std::vector<double>(5, static_cast<double>(sum) / ranks)));
    CHECK(number.wait() == ranks - 1);
    CHECK(object.wait() == std::string("abcdefgh").substr(0, as_index(ranks)));
    view.wait();
    std::int64_t expected = 1;
    for (int rank = 1; rank < ranks; ++rank) {
      expected = 3 * expected + rank + 1;
    }
    CHECK((folded == std::vector<std::int64_t>(1000, expected)));
  });
}

TEST_CASE("async: reduce works in all its forms") {
  at_every_size([](const process_group& world) {
    const int ranks = world.size();
    const int sum = ranks * (ranks - 1) / 2;
    const int root = ranks - 1;
    const bool is_root = world.rank() == root;
    const std::vector<int> in(50'000, world.rank());
    std::vector<int> out(is_root ? in.size() : 0);
    std::vector<int> data(5, world.rank());
    std::vector<int> folded(7, world.rank());
    auto out_of_place = hfcomm::reduce_async(in, out, root, reduce_op::sum, world);
    auto in_place = hfcomm::reduce_async(data, root, reduce_op::max, world);
    auto number = hfcomm::reduce_async(world.rank(), root, reduce_op::sum, world);
    auto object = hfcomm::reduce_async(
        std::string(1, static_cast<char>('a' + world.rank())), root,
        [](std::string left, const std::string& right) { return left + right; }, world);
    auto view = hfcomm::reduce_async(std::span(folded), root, [](int left, int right) { return left - right; }, world);
    out_of_place.wait();
    CHECK((out == std::vector<int>(out.size(), sum)));
    in_place.wait();
    CHECK((data == std::vector<int>(5, world.rank())));  // the root's is the highest
    CHECK((number.wait() == (is_root ? std::optional(sum) : std::nullopt)));
    CHECK((object.wait() ==
           (is_root ? std::optional(std::string("abcdefgh").substr(0, as_index(ranks))) : std::nullopt)));
    view.wait();
    CHECK((folded == std::vector<int>(7, is_root ? -sum : world.rank())));
  });
}

TEST_CASE("async: reduce_scatter takes equal and uneven parts") {
  at_every_size([](const process_group& world) {
    const int sum = world.size() * (world.size() - 1) / 2;
    std::vector<std::size_t> counts(as_index(world.size()), 2);
    counts.front() = 100'000;
    const std::vector<int> in(3 * as_index(world.size()), world.rank());
    const std::vector<int> in_uneven(sum_of(counts), world.rank());
    std::vector<int> out(3);
    std::vector<int> out_uneven(counts[as_index(world.rank())]);
    auto one = reduce_scatter_async(in, out, reduce_op::sum, world);
    auto two = reduce_scatter_async(in_uneven, out_uneven, counts, reduce_op::sum, world);
    one.wait();
    CHECK((out == std::vector<int>(3, sum)));
    two.wait();
    CHECK((out_uneven == std::vector<int>(out_uneven.size(), sum)));
  });
}

TEST_CASE("async: objects and callables may be move-only") {
  at_every_size([](const process_group& world) {
    std::vector<std::unique_ptr<int>> list;
    for (int to = 0; to < world.size(); ++to) {
      list.push_back(std::make_unique<int>(10 * world.rank() + to));
    }
    auto exchanged = all_to_all_async(std::move(list), world);
    auto gathered = all_gather_async(std::make_unique<int>(world.rank()), world);
    auto summed = all_reduce_async(
        1, [scale = std::make_unique<int>(2)](int left, int right) { return left + *scale * right; }, world);
    const auto parts = exchanged.wait();
    const auto all = gathered.wait();
    for (int from = 0; from < world.size(); ++from) {
      CHECK(*parts[as_index(from)] == 10 * from + world.rank());
      CHECK(*all[as_index(from)] == from);
    }
    CHECK(summed.wait() == 2 * world.size() - 1);
  });
}

TEST_CASE("async: a callable is destroyed by the time its work is done") {
  at_every_size([](const process_group& world) {
    for (int round = 0; round < 50; ++round) {
      auto held = std::make_shared<int>(0);
      const std::weak_ptr<int> watch = held;
      auto done = all_reduce_async(
          round, [held = std::move(held)](int left, int right) { return left + right + *held; }, world);
      CHECK(done.wait() == round * world.size());
      CHECK(watch.expired());
    }
  });
}

TEST_CASE("async: operations in flight complete in the order of the calls") {
  at_every_size([](const process_group& world) {
    constexpr int count = 200;
    std::mutex mutex;
    std::vector<int> order;
    std::vector<work<int>> works;
    for (int i = 0; i < count; ++i) {
      works.push_back(all_reduce_async(
          i,
          [&, i, is_first = true](int left, int right) mutable {
            if (std::exchange(is_first, false)) {
              const std::scoped_lock lock(mutex);
              order.push_back(i);
            }
            return left + right;
          },
          world));
    }
    for (int i = count - 1; i >= 0; --i) {
      CHECK(works[as_index(i)].wait() == i * world.size());
      for (int before = 0; before < i; before += 17) {
        CHECK(works[as_index(before)].done());
      }
    }
    if (world.size() > 1) {  // a single value needs no folding
      std::vector<int> expected(count);
      std::iota(expected.begin(), expected.end(), 0);
      CHECK((order == expected));
    }
  });
}

TEST_CASE("async: a blocking collective runs after the operations started before it") {
  at_every_size([](const process_group& world) {
    for (int round = 0; round < 20; ++round) {
      std::vector<std::int64_t> data(100'000, round);
      auto doubled = all_reduce_async(data, reduce_op::sum, world);
      auto again = all_reduce_async(data, reduce_op::sum, world);
      const auto last = all_gather(round, world);
      CHECK(doubled.done());
      CHECK(again.done());
      CHECK(last.size() == as_index(world.size()));
      CHECK((data == std::vector<std::int64_t>(100'000, std::int64_t{round} * world.size() * world.size())));
      // Making a group is a blocking collective, too.
      auto before = barrier_async(world);
      const auto copy = world.split(0);
      CHECK(before.done());
      check_usable(copy);
    }
  });
}

TEST_CASE("async: several groups may be in flight, in another order on every rank") {
  at_every_size([](const process_group& world) {
    std::vector<process_group> groups;
    for (int i = 0; i < 4; ++i) {
      groups.push_back(world.split(0, i % 2 == 0 ? 0 : -world.rank()));
    }
    std::map<int, work<std::vector<int>>> works;
    for (int i = 0; i < 4; ++i) {  // would deadlock if each waited for the one before
      const int which = (i + world.rank()) % 4;
      const auto& group = groups[as_index(which)];
      works.emplace(which, all_gather_async(100 * which + group.rank(), group));
    }
    for (auto& [which, one] : works) {
      const auto all = one.wait();
      for (int rank = 0; rank < world.size(); ++rank) {
        CHECK(all[as_index(rank)] == 100 * which + rank);
      }
    }
  });
}

TEST_CASE("async: world() inside a callable is the world of the rank that started it") {
  at_every_size([](const process_group& world) {
    std::atomic<bool> right = true;
    const auto look = [&](int left, int right_side) {
      right = right && hfcomm::rank() == world.rank() && hfcomm::world() == world && is_initialized();
      return left + right_side;
    };
    CHECK(all_reduce_async(1, look, world).wait() == world.size());
    const auto half = world.split(world.rank() % 2);
    CHECK(all_reduce_async(1, look, half).wait() == half.size());
    CHECK(right);
  });
}

TEST_CASE("async: the group's deadline applies to asynchronous operations") {
  std::atomic<bool> gave_up{false};
  run_noted(2, {}, [&](const process_group& world) {
    if (world.rank() == 0) {
      auto late = barrier_async(world.with_timeout(std::chrono::milliseconds(100)));
      CHECK((error_of<timeout_error>([&] { late.wait(); }).missing() == std::vector{1}));
      gave_up = true;
    } else {
      wait_until([&] { return gave_up.load(); });
    }
    CHECK(world.broken());
    auto doomed = all_gather_async(1, world);
    CHECK((error_of<timeout_error>([&] { (void)doomed.wait(); }).missing() == std::vector{1}));
  });
}

TEST_CASE("async: calls that do not match are a mismatch_error from wait, and the group stays usable") {
  at_every_size(
      [](const process_group& world) {
        const int last = world.size() - 1;
        std::vector<int> numbers(world.rank() == last ? 3 : 2, 1);
        line_note note;
        auto before = all_reduce_async(1, reduce_op::sum, world);
        auto wrong = all_reduce_async(numbers, reduce_op::sum, note(world));
        auto after = all_reduce_async(2, reduce_op::sum, world);
        CHECK(before.wait() == world.size());
        const auto problem = error_of<mismatch_error>([&] { wrong.wait(); });
        CHECK(problem.first_rank() == 0);
        CHECK(problem.second_rank() == last);
        CHECK_CONTAINS(problem.what(), note.text());
        CHECK((numbers == std::vector<int>(numbers.size(), 1)));
        CHECK(after.wait() == 2 * world.size());
        check_usable(world);
      },
      2);
}

TEST_CASE("async: a usage error or an exception in a callable on one rank is an error on every rank") {
  at_every_size([](const process_group& world) {
    const int last = world.size() - 1;
    const bool is_odd = world.rank() == last;
    expect_fault<usage_error>(world, last, "the output has 3 elements", [&](line_note& note) {
      std::vector<int> in(2);
      std::vector<int> out(is_odd ? 3 : 2);
      all_reduce_async(in, out, reduce_op::sum, note(world)).wait();
    });
    expect_fault<std::domain_error>(world, last, "cannot save this", [&](line_note& note) {
      (void)all_gather_async(failing_object{.fails_to_save = is_odd}, note(world)).wait();
    });
    if (world.size() > 1) {
      expect_fault<std::domain_error>(world, last, "not these two", [&](line_note& note) {
        std::vector<int> data(10);
        all_reduce_async(
            std::span(data),
            [&](int left, int right) { return is_odd ? throw std::domain_error("not these two") : left + right; },
            note(world))
            .wait();
      });
    }
  });
}

}  // namespace
