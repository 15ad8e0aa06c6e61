// SPDX-License-Identifier: MIT
#include "ranks.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <utility>

namespace {

using namespace hfcomm;
using namespace multi_rank;

/// Writes rank `rank`'s values. Their sums are exact in every type but the 8-bit floats.
template <class T>
void fill(std::span<T> data, int rank) {
  for (std::size_t i = 0; i < data.size(); ++i) {
    const auto value = static_cast<int>(i * 7 % 13) - 5 + rank;
    if constexpr (std::integral<T>) {
      data[i] = static_cast<T>(value);
    } else {
      data[i] = T(static_cast<float>(value) / 4);
    }
  }
}

/// Lengths in bytes around the limits between the algorithms of a reduction.
constexpr auto byte_counts = each_of(0, 16, 16'384, 16'400, 70'000);

TEST_CASE_TEMPLATE("shared_buffer: reductions have the bits of ordinary ones", T, float, double, bfloat16, float16,
                   std::int32_t, std::uint8_t, float8_e4m3) {
  at_every_size([](const process_group& world) {
    for (const std::size_t bytes : byte_counts) {
      if (world.size() > 3 && bytes > 16'400 && sizeof(T) != sizeof(float)) {
        continue;  // the loops are the same ones, and unoptimised they take their time
      }
      const std::size_t count = bytes / sizeof(T);
      CAPTURE(bytes);
      std::vector<T> ordinary(count);
      auto shared = world.allocate<T>(count);
      auto out = world.allocate<T>(count);
      for (const reduce_kind kind : {reduce_kind::sum, reduce_kind::max}) {
        const reduce_op op = kind == reduce_kind::sum ? reduce_op{reduce_op::sum} : reduce_op{reduce_op::max};
        fill(std::span(ordinary), world.rank());
        fill(std::span<T>(shared), world.rank());
        const std::vector<T> before(shared.begin(), shared.end());
        all_reduce(ordinary, op);
        all_reduce(shared, out, op);
        CHECK(same_bits(out, ordinary));
        CHECK(same_bits(shared, before));
        all_reduce(shared, op);
        CHECK(same_bits(shared, ordinary));

        // To one rank; the others' buffers stay as they are.
        const int root = world.size() - 1;
        fill(std::span<T>(shared), world.rank());
        fill(std::span<T>(out), 77);
        const std::vector<T> untouched(out.begin(), out.end());
        reduce(shared, out, root, op);
        CHECK(same_bits(out, world.rank() == root ? ordinary : untouched));
        CHECK(same_bits(shared, before));
      }
    }
  });
}

TEST_CASE("shared_buffer: averages and premultiplied sums have the bits of ordinary ones") {
  at_every_size([](const process_group& world) {
    std::vector<float> ordinary(50'000);
    auto shared = world.allocate<float>(ordinary.size());
    for (const bool scaled : {false, true}) {
      const reduce_op op = scaled ? reduce_op{reduce_op::premultiplied_sum(0.3 + world.rank())}  //
                                  : reduce_op{reduce_op::average};
      fill(std::span(ordinary), world.rank());
      fill(std::span<float>(shared), world.rank());
      all_reduce(ordinary, op);
      all_reduce(shared, op);
      CHECK(same_bits(shared, ordinary));
    }
  });
}

TEST_CASE("shared_buffer: it may be used by some ranks only") {
  at_every_size(
      [](const process_group& world) {
        const auto n = static_cast<unsigned>(world.size());
        const unsigned all = std::min(1u << n, 9u);
        std::vector<float> expected(70'003);
        fill(std::span(expected), world.rank());
        all_reduce(expected);
        auto shared = world.allocate<float>(expected.size());
        std::vector<float> ordinary(expected.size());
        for (unsigned who = 0; who < all; ++who) {
          CAPTURE(who);
          const bool mine = (who >> world.rank() & 1u) != 0;
          const std::span<float> data = mine ? std::span<float>(shared) : std::span<float>(ordinary);
          fill(data, world.rank());
          all_reduce(data);
          CHECK(same_bits(data, expected));
          // The input here, the output there.
          const std::span<float> other = mine ? std::span<float>(ordinary) : std::span<float>(shared);
          fill(data, world.rank());
          all_reduce(data, other);
          CHECK(same_bits(other, expected));
        }
      },
      2);
}

TEST_CASE("shared_buffer: it begins with zeros, also in reused memory, and overlaps no other") {
  at_every_size([](const process_group& world) {
    for (int round = 0; round < 3; ++round) {
      std::vector<shared_buffer<std::int64_t>> buffers;
      for (const std::size_t count : each_of(1, 511, 512, 513, 100'000, 0, 3)) {
        buffers.push_back(world.allocate<std::int64_t>(count));
        CHECK(buffers.back().size() == count);
        CHECK(buffers.back().empty() == (count == 0));
        CHECK(reinterpret_cast<std::uintptr_t>(buffers.back().data()) % 64 == 0);
        CHECK(std::all_of(buffers.back().begin(), buffers.back().end(), [](auto value) { return value == 0; }));
        std::fill(buffers.back().begin(), buffers.back().end(), static_cast<std::int64_t>(buffers.size()));
      }
      barrier(world);  // everyone has written
      std::int64_t expected = 1;
      for (const auto& buffer : buffers) {
        CHECK(std::all_of(buffer.begin(), buffer.end(), [&](auto value) { return value == expected; }));
        ++expected;
      }
      // Some go, so that the next ones find gaps.
      buffers.erase(buffers.begin() + 1);
      buffers.erase(buffers.begin() + 2);
      buffers.push_back(world.allocate<std::int64_t>(700));
      CHECK(std::all_of(buffers.back().begin(), buffers.back().end(), [](auto value) { return value == 0; }));
    }
  });
}

TEST_CASE("shared_buffer: it may be moved, swapped, and outlive its group") {
  std::optional<shared_buffer<float>> survivor;
  run_ranks(2, [&](const process_group& world) {
    auto one = world.allocate<float>(1000);
    const float* const place = one.data();
    one[7] = 7;
    shared_buffer<float> other = std::move(one);
    CHECK(other.data() == place);
    CHECK(other[7] == 7);
    CHECK(one.empty());  // NOLINT(bugprone-use-after-move): that is what is tested
    one = world.allocate<float>(10);
    one.swap(other);
    CHECK(one.data() == place);
    CHECK(other.size() == 10);
    other = std::move(one);
    CHECK(other.data() == place);
    {
      const process_group part = world.split(world.rank());
      auto in_group_of_one = part.allocate<float>(100);
      all_reduce(in_group_of_one, reduce_op::sum, part);
    }
    if (world.rank() == 0) {
      survivor = std::move(other);
    }
  });
  REQUIRE(survivor.has_value());
  CHECK((*survivor)[7] == 7);
  survivor.reset();
}

TEST_CASE("shared_allocator: containers may use it") {
  at_every_size([](const process_group& world) {
    const shared_allocator<float> memory(world);
    std::vector<float, shared_allocator<float>> data(memory);
    for (int i = 0; i < 20'000; ++i) {
      data.push_back(static_cast<float>(world.rank()));
    }
    all_reduce(data);
    const auto sum = static_cast<float>(world.size() * (world.size() - 1) / 2);
    CHECK(std::all_of(data.begin(), data.end(), [&](float value) { return value == sum; }));
    const auto copy = data;
    CHECK(copy == data);
    auto moved = std::move(data);
    CHECK(moved == copy);
    CHECK(moved.get_allocator() == memory);
    CHECK_FALSE(moved.get_allocator() == shared_allocator<float>(world.split(world.rank())));
  });
}

TEST_CASE("shared_buffer: another group takes it for ordinary memory") {
  at_every_size(
      [](const process_group& world) {
        const process_group half = world.split(world.rank() % 2, -world.rank());
        auto of_half = half.allocate<float>(60'000);
        std::vector<float> expected(of_half.size());
        fill(std::span(expected), world.rank());
        fill(std::span<float>(of_half), world.rank());
        all_reduce(expected);
        all_reduce(of_half);
        CHECK(same_bits(of_half, expected));
        auto of_world = world.allocate<float>(60'000);
        fill(std::span(expected), world.rank());
        fill(std::span<float>(of_world), world.rank());
        all_reduce(expected, reduce_op::sum, half);
        all_reduce(of_world, reduce_op::sum, half);
        CHECK(same_bits(of_world, expected));
      },
      2);
}

TEST_CASE("shared_buffer: different lengths are an error on every rank and change nothing") {
  at_every_size(
      [](const process_group& world) {
        auto data = world.allocate<float>(50'000 + as_index(world.rank() == 1 ? 1 : 0));
        fill(std::span<float>(data), world.rank());
        const std::vector<float> before(data.begin(), data.end());
        error_of<mismatch_error>([&] { all_reduce(data); });
        CHECK(same_bits(data, before));
        check_usable(world);
      },
      2);
}

TEST_CASE("shared_buffer: an impossible size is bad_alloc") {
  run_ranks(2, [](const process_group& world) {
    CHECK_THROWS_AS((void)world.allocate<double>(std::size_t{1} << 60), std::bad_alloc);
    CHECK_THROWS_AS((void)world.allocate<double>(~std::size_t{0}), std::bad_alloc);
    CHECK_THROWS_AS((void)world.allocate<char>(std::size_t{1} << 41), std::bad_alloc);
    auto still = world.allocate<float>(10'000);
    all_reduce(still);
    check_usable(world);
  });
}

TEST_CASE("shared_buffer: memory freed in a lost group is not used again") {
  run_ranks(2, [](const process_group& world) {
    const auto hasty = world.with_timeout(std::chrono::milliseconds(50));
    auto before = world.allocate<float>(1000);
    float* const place = before.data();
    if (world.rank() == 0) {
      error_of<timeout_error>([&] { barrier(hasty); });
    } else {
      wait_until([&] { return world.broken(); });
    }
    before = {};
    const auto after = world.allocate<float>(1000);
    CHECK(after.data() != place);
  });
}

TEST_CASE("shared_buffer: operations treat it as a span, not as an object") {
  at_every_size([](const process_group& world) {
    const std::size_t count = 3000;
    const int root = world.size() - 1;
    const auto hold = [&](const auto& data, int value) {
      return std::count(data.begin(), data.end(), value) == static_cast<std::ptrdiff_t>(count);
    };
    auto data = world.allocate<int>(count);
    const auto set = [&](int value) { std::fill(data.begin(), data.end(), value); };
    set(world.rank() == root ? 7 : -1);
    broadcast(data, root, world);
    CHECK(hold(data, 7));
    set(world.rank() == root ? 8 : -1);
    broadcast_async(data, root, world).wait();
    CHECK(hold(data, 8));
    set(1);
    all_reduce(data, [](int left, int right) { return left + 2 * right; }, world);
    CHECK(hold(data, 2 * world.size() - 1));

    std::vector<shared_buffer<int>> list;
    for (int index = 0; index < 3; ++index) {
      list.push_back(world.allocate<int>(count));
      std::fill(list.back().begin(), list.back().end(), world.rank() == root ? index : -1);
    }
    broadcast(list, root, world);
    CHECK((hold(list[0], 0) && hold(list[1], 1) && hold(list[2], 2)));

    std::vector<int, shared_allocator<int>> vector(count, world.rank() == root ? 9 : -1, shared_allocator<int>(world));
    broadcast(vector, root, world);
    CHECK(hold(vector, 9));
  });
}

TEST_CASE("shared_buffer: it can be sent and received") {
  at_every_size([](const process_group& world) {
    const std::size_t count = 3000;
    const int next = (world.rank() + 1) % world.size();
    const int previous = (world.rank() + world.size() - 1) % world.size();
    auto data = world.allocate<int>(count);
    std::fill(data.begin(), data.end(), world.rank());
    const auto& constant = data;
    auto into = world.allocate<int>(count);
    const auto clear = [&] { std::fill(into.begin(), into.end(), -1); };
    const auto arrived = [&] {
      return std::count(into.begin(), into.end(), previous) == static_cast<std::ptrdiff_t>(count);
    };
    clear();
    send_receive(constant, next, into, previous, world);
    CHECK(arrived());
    if (world.size() == 1) {
      return;  // what follows is between two ranks
    }
    clear();
    auto sent = isend(constant, next, world);
    recv(into, previous, world);
    sent.wait();
    CHECK(arrived());
    clear();
    auto came = irecv(into, any_source, world);
    send(constant, next, world);
    CHECK(came.wait() == previous);
    CHECK(arrived());
  });
}

}  // namespace
