// SPDX-License-Identifier: MIT
#include "ranks.hpp"

#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <span>
#include <type_traits>

#include "../tree.hpp"

#include <hfcomm/data/detail/splitmix64.hpp>

namespace {

using namespace hfcomm;
using namespace multi_rank;

/// From -2 to 2, or any integer. (Not <random>, which takes long without optimisation.)
template <class T>
T random_element(detail::splitmix64& random) {
  if constexpr (std::integral<T>) {
    return static_cast<T>(random.next());
  } else {
    return static_cast<T>(static_cast<float>(random.next() >> 40) * 0x1p-22F - 2.0F);
  }
}

template <class T>
std::vector<std::vector<T>> random_inputs(int ranks, std::size_t count) {
  detail::splitmix64 random(count * 31 + as_index(ranks));
  std::vector<std::vector<T>> inputs(as_index(ranks), std::vector<T>(count));
  for (auto& input : inputs) {
    for (auto& element : input) {
      element = random_element<T>(random);
    }
  }
  return inputs;
}

/// The factor of a premultiplied sum: different on every rank, with products that need rounding.
double factor_of(std::size_t rank) { return (rank % 2 == 0 ? 0.3 : -1.7) * static_cast<double>(rank + 1); }

/// Reduces element `i`, the plain way.
template <class T>
T reference(reduce_kind op, const std::vector<std::vector<T>>& inputs, std::size_t i) {
  // 16-bit floats are accumulated in float; integers without a sign, so that they wrap around.
  using wide = std::conditional_t<std::integral<T>, std::uint64_t, std::conditional_t<(sizeof(T) < 4), float, T>>;
  if constexpr (std::integral<T>) {
    if (op == reduce_op::bit_and || op == reduce_op::bit_or || op == reduce_op::bit_xor) {
      T result = inputs[0][i];
      for (std::size_t rank = 1; rank < inputs.size(); ++rank) {
        const T next = inputs[rank][i];
        result = static_cast<T>(op == reduce_op::bit_and  ? result & next
                                : op == reduce_op::bit_or ? result | next
                                                          : result ^ next);
      }
      return result;
    }
  } else if (op == reduce_kind::premultiplied_sum) {
    std::vector<wide> products;
    for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
      // Through memory, so that no compiler makes one rounding of two.
      const volatile wide product = static_cast<wide>(inputs[rank][i]) * static_cast<wide>(factor_of(rank));
      products.push_back(wide(product));
    }
    return static_cast<T>(combine_in_tree(std::span<const wide>(products), std::plus<>()));
  }
  if (op == reduce_op::min || op == reduce_op::max) {
    T best = inputs[0][i];
    for (const auto& input : inputs) {
      best = (op == reduce_op::min ? input[i] < best : best < input[i]) ? input[i] : best;
    }
    return best;
  }
  std::vector<wide> values;
  for (const auto& input : inputs) {
    values.push_back(static_cast<wide>(input[i]));
  }
  const wide result = combine_in_tree(std::span<const wide>(values),
                                      [op](wide a, wide b) { return op == reduce_op::product ? a * b : a + b; });
  return static_cast<T>(op == reduce_op::average ? result / static_cast<wide>(inputs.size()) : result);
}

/// Compares all forms of all_reduce and reduce with the reference, bit by bit, twice.
template <class T>
void check_reductions(int ranks, std::size_t count, reduce_op everyones) {
  const auto inputs = random_inputs<T>(ranks, count);
  std::vector<T> expected(count);
  for (std::size_t i = 0; i < count; ++i) {
    expected[i] = reference(everyones.kind(), inputs, i);
  }
  const std::string note = std::string(to_string(everyones)) + " of " + std::to_string(count) + " x " +
                           std::string(to_string(element_type_of<T>));
  run_noted(ranks, note, [&](const process_group& world) {
    const auto& mine = inputs[as_index(world.rank())];
    const bool scales = everyones.kind() == reduce_kind::premultiplied_sum;
    const reduce_op op =
        scales ? reduce_op{reduce_op::premultiplied_sum(factor_of(as_index(world.rank())))} : everyones;
    for (int run = 0; run < 2; ++run) {
      std::vector<T> out(count);
      all_reduce(mine, out, op);
      CHECK(same_bits(out, expected));
      std::vector<T> data = mine;
      all_reduce(data, op);
      CHECK(same_bits(data, expected));

      const int root = (static_cast<int>(count % 7) + run) % world.size();
      const bool receives = world.rank() == root;
      data = mine;
      hfcomm::reduce(data, root, op);
      CHECK(same_bits(data, receives ? expected : mine));
      std::vector<T> there(receives ? count : 0);
      hfcomm::reduce(mine, there, root, op);
      CHECK(same_bits(there, receives ? expected : std::vector<T>()));
      CHECK(same_bits(mine, inputs[as_index(world.rank())]));
    }
  });
}

template <class T>
void check_operations() {
  for (const int ranks : rank_counts) {
    for (int kind = 0; kind <= static_cast<int>(reduce_kind::premultiplied_sum); ++kind) {
      const reduce_op op{static_cast<reduce_kind>(kind)};
      if (hfcomm::detail::valid(op.kind(), element_type_of<T>)) {
        check_reductions<T>(ranks, 333, op);
      }
    }
  }
}

TEST_CASE_TEMPLATE("reductions: every operation works on integers", T, std::int8_t, std::uint8_t, std::int16_t,
                   std::uint16_t, std::int32_t, std::uint32_t, std::int64_t, std::uint64_t) {
  check_operations<T>();
}

TEST_CASE_TEMPLATE("reductions: every operation works on floats", T, float16, bfloat16, float, double) {
  check_operations<T>();
}

TEST_CASE_TEMPLATE("reductions: counts around the limits of a cell, a step and a slot are exact", T, std::uint8_t,
                   bfloat16, float, double) {
  for (const std::size_t limit : {std::size_t{80}, std::size_t{16} << 10, std::size_t{256} << 10}) {
    for (const std::size_t more : each_of(0, 1, 2)) {
      for (const int ranks : rank_counts_from(2)) {
        check_reductions<T>(ranks, limit / sizeof(T) + more - 1, reduce_op::sum);
      }
    }
  }
  for (const std::size_t count : each_of(0, 1, 3)) {
    for (const int ranks : rank_counts) {
      check_reductions<T>(ranks, count, reduce_op::max);
    }
  }
}

TEST_CASE("reductions: two slots and slices of any remainder are exact") {
  for (const int ranks : rank_counts) {
    for (const std::size_t more : each_of(0, 1, 9, 65)) {
      check_reductions<float>(ranks, 131'072 + more, reduce_op::average);
    }
  }
}

TEST_CASE_TEMPLATE("reductions: premultiplied and bitwise ones are exact on every path through shared memory", T,
                   std::uint8_t, std::int64_t, float16, bfloat16, float, double) {
  const reduce_op op = std::integral<T> ? reduce_op{reduce_op::bit_xor} : reduce_op::premultiplied_sum(1);
  for (const std::size_t bytes : each_of(80, 88, 16 << 10, (16 << 10) + 8, (256 << 10) + 8)) {
    for (const int ranks : rank_counts) {
      check_reductions<T>(ranks, bytes / sizeof(T), op);
    }
  }
}

TEST_CASE("reductions: 1,000,003 elements are exact") {
  for (const int ranks : {2, 4}) {
    check_reductions<float>(ranks, 1'000'003, reduce_op::average);
  }
  check_reductions<bfloat16>(3, 1'000'003, reduce_op::sum);
}

TEST_CASE("reductions: buffers need no alignment") {
  at_every_size([](const process_group& world) {
    for (const std::size_t count : each_of(5, 10'000, 70'000)) {
      std::vector<std::int16_t> storage(count + 3, 1);
      all_reduce(std::span(storage).subspan(1, count));
      CHECK(storage[0] == 1);
      CHECK(storage[1] == world.size());
      CHECK(storage[count] == world.size());
      CHECK(storage[count + 1] == 1);
    }
  });
}

struct rgb {
  std::uint8_t r, g, b;
  bool operator==(const rgb&) const = default;
};

}  // namespace

template <>
inline constexpr bool hfcomm::enable_raw_bytes<rgb> = true;

namespace {

TEST_CASE("buffers: plain classes are moved whole") {
  at_every_size([](const process_group& world) {
    for (const std::size_t count : each_of(0, 1, 26, 27, 87'381, 87'382, 200'000)) {
      const auto pixel = [](int rank, std::size_t i) {
        return rgb{static_cast<std::uint8_t>(rank), static_cast<std::uint8_t>(i), static_cast<std::uint8_t>(i >> 8)};
      };
      std::vector<rgb> in(count);
      for (std::size_t i = 0; i < count; ++i) {
        in[i] = pixel(world.rank(), i);
      }
      std::vector<rgb> out(count * as_index(world.size()));
      all_gather(in, out);
      std::vector<rgb> at_root(world.rank() == 0 ? out.size() : 0);
      gather(in, at_root, 0);
      bool equal = true;
      for (std::size_t index = 0; index < out.size(); ++index) {
        equal = equal && out[index] == pixel(static_cast<int>(index / count), index % count);
      }
      CHECK(equal);
      CHECK((world.rank() != 0 || at_root == out));
      const int root = world.size() - 1;
      broadcast(std::span(in), root);
      CHECK((count == 0 || in.back() == pixel(root, count - 1)));
      CHECK((count == 0 || in.front() == pixel(root, 0)));
    }
  });
}

TEST_CASE("buffers: consecutive operations without a pause do not mix their data") {
  at_every_size([](const process_group& world) {
    // Each rank is fast in some rounds and slow in others; sizes alternate between cell, slot and chunks.
    bool equal = true;
    for (std::uint32_t round = 0; round < 120; ++round) {
      const std::size_t count = each_of(1, 40, 5'000, 70'000)[round * 7 / 3 % 4];
      if (round % 20 == static_cast<std::uint32_t>(world.rank()) * 2) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      std::vector<std::uint32_t> data(count, round + static_cast<std::uint32_t>(world.rank()));
      all_reduce(data, reduce_op::max);
      equal = equal && data == std::vector<std::uint32_t>(count, round + static_cast<std::uint32_t>(world.size()) - 1);
      data.assign(count, round);
      broadcast(std::span(data), static_cast<int>(round) % world.size());
      equal = equal && data == std::vector<std::uint32_t>(count, round);
    }
    CHECK(equal);
  });
}

}  // namespace
