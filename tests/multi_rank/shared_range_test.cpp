// SPDX-License-Identifier: MIT
#include "ranks.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "memory_maps.hpp"

#include <hfcomm/engine/shared_memory/shared_memory.hpp>
#include <hfcomm/group/detail/group_state.hpp>

namespace {

using namespace hfcomm;
using namespace multi_rank;

const std::size_t page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));

/// A span of elements that begins `begin` elements after the begin of a page, in memory of its own.
template <class T>
class placed_span {
 public:
  placed_span(std::size_t count, std::size_t begin) : memory_(count + begin + 2 * page / sizeof(T)), count_(count) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    begin_ = ((address + page - 1) / page * page - address) / sizeof(T) + begin;
  }
  [[nodiscard]] std::span<T> get() { return std::span(memory_).subspan(begin_, count_); }
  /// Returns whether the memory around the span is as it was.
  [[nodiscard]] bool is_alone() {
    const auto is_zero = [](const T& one) { return same_bits(std::span(&one, 1), std::span(&zero, 1)); };
    const std::span<T> all(memory_);
    return std::ranges::all_of(all.first(begin_), is_zero) &&
           std::ranges::all_of(all.subspan(begin_ + count_), is_zero);
  }

 private:
  static constexpr T zero{};
  std::vector<T> memory_;
  std::size_t count_;
  std::size_t begin_;
};

/// Writes rank `rank`'s values. Their sums are exact in every type but the 8-bit floats.
template <class T>
void fill_range(std::span<T> data, int rank) {
  for (std::size_t i = 0; i < data.size(); ++i) {
    const auto value = static_cast<int>(i * 7 % 13) - 5 + rank;
    if constexpr (std::integral<T>) {
      data[i] = static_cast<T>(value);
    } else {
      data[i] = T(static_cast<float>(value) / 4);
    }
  }
}

std::uint64_t steps_of(const process_group& group) {
  const auto* engine =
      dynamic_cast<const hfcomm::engines::shared_memory*>(&hfcomm::detail::group_access::engine(group));
  return engine == nullptr ? 0 : engine->steps();
}

/// Elements from the begin of a page to the buffer's begin: another number on each rank, some of them 0.
std::size_t begin_on(int rank) { return as_index(rank) * 977 % 512; }

TEST_CASE_TEMPLATE("shared_range: reductions have the bits of ordinary buffers", T, float, double, bfloat16, float16,
                   std::int32_t, std::uint8_t, float8_e4m3) {
  at_every_size([](const process_group& world) {
    for (const std::size_t bytes : each_of(5000, 16'400, 70'007)) {
      if (world.size() > 3 && bytes > 16'400 && sizeof(T) != sizeof(float)) {
        continue;  // the loops are the same ones, and unoptimised they take their time
      }
      const std::size_t count = bytes / sizeof(T);
      CAPTURE(bytes);
      placed_span<T> ordinary(count, 3);
      placed_span<T> shared(count, begin_on(world.rank()));
      placed_span<T> out(count, begin_on(world.rank() + 3));
      const shared_range one = share(shared.get());
      const shared_range other = share(out.get());
      for (const reduce_op op : {reduce_op{reduce_op::sum}, reduce_op{reduce_op::max}}) {
        fill_range(ordinary.get(), world.rank());
        fill_range(shared.get(), world.rank());
        const std::vector<T> before(shared.get().begin(), shared.get().end());
        all_reduce(ordinary.get(), op);
        all_reduce(shared.get(), out.get(), op);
        CHECK(same_bits(out.get(), ordinary.get()));
        CHECK(same_bits(shared.get(), before));
        all_reduce(shared.get(), op);
        CHECK(same_bits(shared.get(), ordinary.get()));

        // To one rank; the others' buffers stay as they are.
        const int root = world.size() - 1;
        fill_range(shared.get(), world.rank());
        fill_range(out.get(), 77);
        const std::vector<T> untouched(out.get().begin(), out.get().end());
        hfcomm::reduce(shared.get(), out.get(), root, op);
        CHECK(same_bits(out.get(), world.rank() == root ? std::vector<T>(ordinary.get().begin(), ordinary.get().end())
                                                        : untouched));
        CHECK(same_bits(shared.get(), before));
      }
      CHECK(shared.is_alone());
      CHECK(out.is_alone());
    }
  });
}

/// Does every operation on `data`, which has elements for each rank, and returns all results.
std::vector<double> every_operation(std::span<double> data, std::span<double> other, const process_group& world) {
  const auto ranks = as_index(world.size());
  const std::size_t part = data.size() / ranks;
  const int last = world.size() - 1;
  const auto mine = data.subspan(part * as_index(world.rank()), part);
  std::vector<double> results;
  const auto keep = [&](std::span<double> values) {
    results.insert(results.end(), values.begin(), values.end());
    fill_range(data, world.rank());
    fill_range(other, world.rank() + 1);
  };
  keep({});
  broadcast(data, last, world);
  keep(data);
  all_gather(mine, other, world);
  keep(other);
  gather(data.first(part), other, last, world);
  keep(other);
  scatter(data, other.first(part), last, world);
  keep(other);
  all_to_all(data, other, world);
  keep(other);
  reduce_scatter(data, mine, reduce_op::sum, world);
  keep(data);
  all_reduce(data, reduce_op::premultiplied_sum(0.3 + world.rank()), world);
  keep(data);
  all_reduce(data, other, reduce_op::average, world);
  keep(other);
  all_reduce(data.subspan(1, data.size() - 2), reduce_op::sum, world);
  keep(data);
  all_reduce(data.first(data.size() / 2), reduce_op::sum, world);
  keep(data);
  all_reduce(data, [](double left, double right) { return left + 2 * right; }, world);
  keep(data);
  scan(data, other, reduce_op::sum, world);
  keep(other);
  exclusive_scan(data, reduce_op::sum, world);
  keep(data);
  const std::vector<std::span<double>> list{data.first(part), data.subspan(part)};
  all_reduce(list, reduce_op::sum, world);
  keep(data);
  std::vector<std::size_t> counts(ranks, 0);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    counts[rank] = part - rank;
  }
  all_gather(data.first(counts[as_index(world.rank())]), other.first(part * ranks - ranks * (ranks - 1) / 2), counts,
             world);
  keep(other);
  all_reduce_async(data, reduce_op::sum, world).wait();
  keep(data);
  send_receive(data, (world.rank() + 1) % world.size(), other, (world.rank() + last) % world.size(), world);
  keep(other);
  return results;
}

TEST_CASE("shared_range: every operation gives what it gives with ordinary buffers, whichever ranks share theirs") {
  at_every_size([](const process_group& world) {
    const auto n = static_cast<unsigned>(world.size());
    const std::size_t count = 24'000 / n * n;
    placed_span<double> data(count, begin_on(world.rank()));
    placed_span<double> other(count, begin_on(world.rank() + 1));
    const auto expected = every_operation(data.get(), other.get(), world);
    for (unsigned who = 0; who < std::min(1U << n, 5U); ++who) {
      const bool mine = who == 4 || (who >> world.rank() & 1U) != 0;
      const shared_range one = mine ? share(data.get()) : shared_range();
      const shared_range two = mine ? share(other.get()) : shared_range();
      CHECK(one.is_shared() == (mine && world.size() > 1));
      CHECK(same_bits(every_operation(data.get(), other.get(), world), expected));
      CHECK(data.is_alone());
      CHECK(other.is_alone());
    }
    CHECK(same_bits(every_operation(data.get(), other.get(), world), expected));
  });
}

TEST_CASE("shared_range: reductions and exchanges are done in place, in two steps") {
  at_every_size(
      [](const process_group& world) {
        placed_span<float> memory(1'000'003, 1 + begin_on(world.rank()));
        const auto data = memory.get();
        placed_span<float> results(data.size() * as_index(world.size()), 5);
        const auto shared = share(data);
        barrier(world);
        const auto steps_in = [&](const auto& call) {
          const std::uint64_t before = steps_of(world);
          call();
          return steps_of(world) - before;
        };
        CHECK(steps_in([&] { all_reduce(data); }) == 2);
        CHECK(steps_in([&] { all_reduce(data.subspan(3, 99'999)); }) == 2);
        CHECK(steps_in([&] { hfcomm::reduce(data, 1); }) == 2);
        CHECK(steps_in([&] { broadcast(data, 1); }) == 2);
        CHECK(steps_in([&] { all_gather(data, results.get()); }) == 2);
        CHECK(steps_in([&] { gather(data, results.get(), 1); }) == 2);
        const std::size_t part = data.size() / as_index(world.size());
        const auto parts = data.first(part * as_index(world.size()));
        const auto result = results.get().first(part);
        CHECK(steps_in([&] { scatter(parts, result, 1); }) == 2);
        CHECK(steps_in([&] { all_to_all(parts, results.get().first(parts.size())); }) == 2);
        CHECK(steps_in([&] { reduce_scatter(parts, result); }) == 2);
      },
      2);
}

TEST_CASE("shared_range: the content is kept, and the memory is private again afterwards") {
  at_every_size([](const process_group& world) {
    const std::size_t count = 100'001;
    std::vector<int> data(count);
    const auto holds = [&](int value) {
      return std::count(data.begin(), data.end(), value) == static_cast<std::ptrdiff_t>(count);
    };
    const int* const inside = data.data() + count / 2;
    for (int round = 0; round < 3; ++round) {
      std::fill(data.begin(), data.end(), 1);
      {
        const auto shared = share(data);
        CHECK(shared.is_shared() == (world.size() > 1));
        CHECK(permissions_at(inside) == (world.size() > 1 ? "rw-s" : "rw-p"));
        CHECK(holds(1));
        all_reduce(std::span(data));
        CHECK(holds(world.size()));
      }
      CHECK(permissions_at(inside) == "rw-p");
      CHECK(holds(world.size()));
      all_reduce(std::span(data));
      CHECK(holds(world.size() * world.size()));
    }
  });
}

TEST_CASE("shared_range: there may be several, in one vector too, and operations on a part of one") {
  at_every_size([](const process_group& world) {
    std::vector<std::int64_t> data(90'000);
    const std::span<std::int64_t> all(data);
    std::vector<shared_range> ranges;
    for (const std::size_t begin : each_of(60'000, 0, 30'000)) {
      ranges.push_back(share(all.subspan(begin, 30'000)));
    }
    const std::int64_t n = world.size();
    const std::vector<std::pair<std::size_t, std::size_t>> parts{{0, 90'000},      {0, 30'000},      {30'000, 60'000},
                                                                 {29'000, 31'000}, {60'001, 89'999}, {30'300, 59'700},
                                                                 {89'000, 90'000}};
    for (const auto& [begin, end] : parts) {
      for (std::size_t i = 0; i < data.size(); ++i) {
        data[i] = static_cast<std::int64_t>(i);
      }
      all_reduce(all.subspan(begin, end - begin));
      bool right = true;
      for (std::size_t i = 0; i < data.size(); ++i) {
        right = right && data[i] == static_cast<std::int64_t>(i) * (i >= begin && i < end ? n : 1);
      }
      CHECK(right);
      ranges.erase(ranges.begin() + (begin == 29'000 ? 1 : 0), ranges.begin() + (begin == 29'000 ? 2 : 0));
    }
  });
}

template <class L>
concept can_be_shared = requires(L&& list) { share(std::forward<L>(list)); };
// The buffers of a list that is gone would be replaced when the share ends.
static_assert(can_be_shared<std::vector<std::vector<int>>&> && can_be_shared<std::vector<std::span<int>>> &&
              !can_be_shared<std::vector<std::vector<int>>>);

TEST_CASE("shared_range: a list of buffers is shared in one call, all of them or none") {
  run_noted(2, {}, [](const process_group& group) {
    std::vector<std::vector<int>> parameters(40, std::vector<int>(20'000, group.rank() + 1));
    parameters.emplace_back(3);  // without a whole page
    {
      const auto shared = share(parameters, group);
      CHECK(shared.is_shared());
      for (auto& one : parameters) {
        all_reduce(one, reduce_op::sum, group);
      }
      CHECK(parameters[39][19'999] == 3);
      std::vector<std::span<int>> again = {parameters[3]};
      (void)error_of<engine_error>([&] { (void)share(again, group); });
    }
    std::array<std::span<int>, 2> refused = {std::span(parameters[0]), std::span(parameters[0])};
    CHECK_CONTAINS(error_of<engine_error>([&] { (void)share(refused, group); }).what(), "shared");
    const auto shared = share(parameters[0], group);  // so none of them was
    CHECK(shared.is_shared());
    check_usable(group);
  });
}

TEST_CASE("shared_range: a buffer without a whole page stays as it is") {
  at_every_size([](const process_group& world) {
    placed_span<std::uint8_t> memory(2 * page - 2, 1);
    const auto shared = share(memory.get());
    CHECK_FALSE(shared.is_shared());
    CHECK_FALSE(share(std::span<float>()).is_shared());
    CHECK_FALSE(share(memory.get().first(page)).is_shared());
    all_reduce(memory.get(), reduce_op::max);
    CHECK(permissions_at(memory.get().data()) == "rw-p");
    placed_span<std::uint8_t> whole(page, 0);
    CHECK(share(whole.get()).is_shared() == (world.size() > 1));
  });
}

TEST_CASE("shared_range: it may be moved, and ends once") {
  at_every_size(
      [](const process_group& world) {
        std::vector<int> data(10'000, world.rank());
        std::vector<int> other(10'000, -1);
        shared_range one = share(data);
        shared_range two = std::move(one);
        CHECK(two.is_shared());
        CHECK_FALSE(one.is_shared());  // NOLINT(bugprone-use-after-move): that is what is tested
        one = share(other);
        one = std::move(two);
        CHECK(permissions_at(other.data() + 5000) == "rw-p");
        CHECK(permissions_at(data.data() + 5000) == "rw-s");
        one = {};
        CHECK(permissions_at(data.data() + 5000) == "rw-p");
        CHECK(data == std::vector<int>(10'000, world.rank()));
      },
      2);
}

TEST_CASE("shared_range: it may outlive its group and its world") {
  std::vector<float> data(50'000, 3.0F);
  shared_range survivor;
  run_ranks(2, [&](const process_group& world) {
    std::vector<float> own(data);
    shared_range in_part;
    {
      const process_group part = world.split(0);
      in_part = share(own, part);
      all_reduce(own, reduce_op::sum, part);
    }
    CHECK(own[7] == 6.0F);
    CHECK(permissions_at(own.data() + 20'000) == "rw-s");
    in_part = {};
    CHECK(own == std::vector<float>(50'000, 6.0F));
    if (world.rank() == 0) {
      survivor = share(data);
    }
  });
  data[30'000] = 4.0F;
  survivor = {};
  CHECK(permissions_at(data.data() + 20'000) == "rw-p");
  CHECK(data[30'000] == 4.0F);
  CHECK(std::count(data.begin(), data.end(), 3.0F) == 49'999);
}

TEST_CASE("shared_range: another group takes the buffer for ordinary memory") {
  at_every_size(
      [](const process_group& world) {
        const process_group half = world.split(world.rank() % 2, -world.rank());
        std::vector<float> expected(60'000);
        std::vector<float> data(expected.size());
        const auto shared = share(data);
        fill_range(std::span(expected), world.rank());
        fill_range(std::span(data), world.rank());
        all_reduce(expected, reduce_op::sum, half);
        all_reduce(data, reduce_op::sum, half);
        CHECK(same_bits(data, expected));
      },
      2);
}

TEST_CASE("shared_range: memory that cannot be replaced is an engine_error that says why, and stays as it is") {
  at_every_size(
      [](const process_group& world) {
        const std::size_t bytes = 8 * page;
        const auto map = [&](int protection, int flags, int fd) {
          return std::span(static_cast<std::byte*>(::mmap(nullptr, bytes, protection, flags, fd, 0)), bytes);
        };
        const auto refused = [&](std::span<std::byte> memory, const std::string& why) {
          const std::string before = permissions_at(memory.data());
          const auto problem = error_of<engine_error>([&] { (void)share(memory); });
          CHECK_CONTAINS(problem.what(), why);
          CHECK_CONTAINS(problem.what(), std::to_string(memory.size()) + " bytes of memory at 0x");
          CHECK_CONTAINS(problem.what(), "share at shared_range_test.cpp");
          CHECK(problem.rank() == world.rank());
          CHECK(permissions_at(memory.data()) == before);
        };
        const int ordinary = MAP_PRIVATE | MAP_ANONYMOUS;
        const auto read_only = map(PROT_READ, ordinary, -1);
        refused(read_only, "it is read-only");
        const auto code = map(PROT_READ | PROT_WRITE | PROT_EXEC, ordinary, -1);
        refused(code, "its permissions are rwxp");
        const auto common = map(PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1);
        refused(common, "it is shared memory already");
        char name[] = "/tmp/hfcomm_shared_range_XXXXXX";
        const int file = ::mkstemp(name);
        ::unlink(name);
        REQUIRE(::ftruncate(file, static_cast<off_t>(bytes)) == 0);
        const auto private_file = map(PROT_READ | PROT_WRITE, MAP_PRIVATE, file);
        refused(private_file,
                "it is the mapping of a file, as arrays with initialisers are (/tmp/hfcomm_shared_range_");
        const auto shared_file = map(PROT_READ | PROT_WRITE, MAP_SHARED, file);
        refused(shared_file,
                "it is shared memory already, by an earlier share or from allocate (/tmp/hfcomm_shared_range_");
        ::close(file);
        const auto hole = map(PROT_READ | PROT_WRITE, ordinary, -1);
        REQUIRE(::mprotect(hole.data() + 5 * page, page, PROT_READ) == 0);
        refused(hole, "it is read-only");
        CHECK(share(hole.first(5 * page)).is_shared());
        auto in_heap = world.allocate<std::byte>(bytes);
        refused(std::span<std::byte>(in_heap), "it is shared memory already");
        for (const auto memory : {read_only, code, common, private_file, shared_file, hole}) {
          ::munmap(memory.data(), memory.size());
        }
        check_usable(world);
      },
      2);
}

TEST_CASE("shared_range: one inside another, or overlapping it, is an engine_error") {
  at_every_size(
      [](const process_group& world) {
        placed_span<std::uint8_t> memory(20 * page, 100);
        const auto data = memory.get();
        const auto shared = share(data.subspan(0, 10 * page));
        CHECK(shared.is_shared());
        const auto refused = [&](std::size_t begin, std::size_t count, const std::string& why) {
          CHECK_CONTAINS(error_of<engine_error>([&] { (void)share(data.subspan(begin, count)); }).what(), why);
        };
        refused(0, 10 * page, "it is shared memory already");
        refused(2 * page, 3 * page, "it is shared memory already");
        refused(8 * page, 9 * page, "it is shared memory already");
        refused(10 * page - 50, 5 * page, "it overlaps other memory that is shared");
        CHECK(share(data.subspan(10 * page, 5 * page)).is_shared());
        fill_range(data, world.rank());
        all_reduce(data.first(10 * page), reduce_op::max);
        CHECK(memory.is_alone());
      },
      2);
}

TEST_CASE("shared_range: the group's memory is free again afterwards") {
  run_ranks(2, [](const process_group& world) {
    const std::size_t count = std::size_t{16} << 20;
    std::vector<std::uint8_t> data(count, 1);
    const auto first = world.allocate<std::uint8_t>(1);
    const auto* const place = first.data() + page;
    const int rounds = under_address_sanitizer || under_thread_sanitizer ? 3 : 20;
    for (int round = 0; round < rounds; ++round) {
      const auto shared = share(std::span(data).subspan(as_index(round), count / 2));
      const auto other = share(std::span(data).subspan(count / 2 + page, count / 4));
      CHECK_THROWS_AS((void)share(data), engine_error);
    }
    const auto next = world.allocate<std::uint8_t>(1);
    CHECK(next.data() == place);  // the first gap is where it was
    CHECK(std::count(data.begin(), data.end(), 1) == static_cast<std::ptrdiff_t>(count));
  });
}

TEST_CASE("shared_range: the allocator works as before, with memory that was shared") {
  at_every_size([](const process_group& world) {
    for (const std::size_t count : each_of(5'000, 30'000, 300'000)) {  // from the arena, and with pages of their own
      std::vector<std::unique_ptr<std::vector<int>>> vectors;
      for (int index = 0; index < 8; ++index) {
        vectors.push_back(std::make_unique<std::vector<int>>(count, index));
      }
      for (int round = 0; round < 3; ++round) {
        std::vector<shared_range> ranges;
        for (const auto& one : vectors) {
          ranges.push_back(share(*one));
        }
        std::vector<int> between(count, 77);  // while they are shared
        all_reduce(std::span(*vectors[3]), reduce_op::max);
        ranges.erase(ranges.begin() + 2);
        ranges.clear();
        vectors[as_index(round)]->resize(2 * count, round);
        vectors[as_index(round) + 4] = std::make_unique<std::vector<int>>(count, round + 4);
        CHECK(std::count(between.begin(), between.end(), 77) == static_cast<std::ptrdiff_t>(count));
      }
      for (int index = 0; index < 8; ++index) {
        CHECK(std::count(vectors[as_index(index)]->begin(), vectors[as_index(index)]->end(), index) >=
              static_cast<std::ptrdiff_t>(count));
      }
    }
    check_usable(world);
  });
}

TEST_CASE("shared_range: in a broken group buffers can be shared and become private again") {
  run_ranks(2, [](const process_group& world) {
    const auto hasty = world.with_timeout(std::chrono::milliseconds(50));
    std::vector<float> data(100'000, 1.0F);
    std::vector<float> other(100'000, 2.0F);
    auto shared = share(data);
    if (world.rank() == 0) {
      error_of<timeout_error>([&] { all_reduce(data, reduce_op::sum, hasty); });
    } else {
      wait_until([&] { return world.broken(); });
    }
    CHECK(share(other).is_shared());
    shared = {};
    CHECK(permissions_at(data.data() + 50'000) == "rw-p");
    CHECK(data == std::vector<float>(100'000, 1.0F));
    CHECK(other == std::vector<float>(100'000, 2.0F));
  });
}

TEST_CASE("shared_range: different lengths are an error on every rank and change nothing") {
  at_every_size(
      [](const process_group& world) {
        std::vector<float> data(50'000 + as_index(world.rank() == 1 ? 1 : 0));
        fill_range(std::span(data), world.rank());
        const auto before = data;
        const auto shared = share(data);
        error_of<mismatch_error>([&] { all_reduce(data); });
        CHECK(same_bits(data, before));
        check_usable(world);
      },
      2);
}

TEST_CASE("shared_range: on several machines there is no memory to share") {
  run_ranks(3,
            [](const process_group& world) {
              std::vector<float> data(50'000, 1.0F);
              const auto problem = error_of<engine_error>([&] { (void)share(data); });
              CHECK_CONTAINS(problem.what(), "its ranks are on several machines");
              all_reduce(data);
              CHECK(data == std::vector<float>(50'000, 3.0F));
              check_usable(world);
            },
            {.machines = {2, 1}});
}

}  // namespace
