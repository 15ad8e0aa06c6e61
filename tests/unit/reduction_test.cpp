// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "../tree.hpp"

#include <hfcomm/engine/reduction/copy_bytes.hpp>
#include <hfcomm/engine/reduction/kernel_for.hpp>

#define ALL_ELEMENTS                                                                                                   \
  std::int8_t, std::int16_t, std::int32_t, std::int64_t, std::uint8_t, std::uint16_t, std::uint32_t, std::uint64_t,    \
      hfcomm::float16, hfcomm::bfloat16, float, double, hfcomm::float8_e4m3, hfcomm::float8_e5m2, std::complex<float>, \
      std::complex<double>
#define FLOATING_ELEMENTS hfcomm::float16, hfcomm::bfloat16, float, double

namespace {

using hfcomm::bfloat16;
using hfcomm::element_type;
using hfcomm::element_type_of;
using hfcomm::float16;
using hfcomm::reduce_kind;
using hfcomm::reduce_op;
using hfcomm::detail::valid;
using hfcomm::detail::vector_unit;

constexpr std::array all_ops = {reduce_kind::sum,       reduce_kind::product, reduce_kind::min,
                                reduce_kind::max,       reduce_kind::average, reduce_kind::bit_and,
                                reduce_kind::bit_or,    reduce_kind::bit_xor, reduce_kind::logical_and,
                                reduce_kind::logical_or};

template <class T>
constexpr bool is_complex_element = is_complex(element_type_of<T>);

template <class T>
constexpr bool is_narrow_float =
    !std::integral<T> && !std::same_as<T, float> && !std::same_as<T, double> && !is_complex_element<T>;

/// The vector units of the machine that runs the test.
std::vector<vector_unit> units() {
  std::vector<vector_unit> found;
  for (const vector_unit unit : {vector_unit::plain, vector_unit::avx2, vector_unit::avx512}) {
    if (has(unit)) {
      found.push_back(unit);
    }
  }
  return found;
}

/// Bit for bit, as opposed to ==: NaN equals itself, and zero does not equal minus zero.
template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

/// Reduces one complex element at a time, its parts by the textbook's formula. `volatile` keeps its roundings apart.
template <class T>
T expected_complex(reduce_kind op, const std::vector<T>& values) {
  using real = typename T::value_type;
  const T result = combine_in_tree(std::span(values), [op](T a, T b) -> T {
    if (op != reduce_kind::product) {
      return {a.real() + b.real(), a.imag() + b.imag()};
    }
    const volatile real products[] = {a.real() * b.real(), a.imag() * b.imag(), a.real() * b.imag(),
                                      a.imag() * b.real()};
    return {products[0] - products[1], products[2] + products[3]};
  });
  const auto concluded = [&](real part) {
    part = op == reduce_kind::average && values.size() > 1 ? part / static_cast<real>(values.size()) : part;
    return std::isnan(part) ? std::numeric_limits<real>::quiet_NaN() : part;
  };
  return {concluded(result.real()), concluded(result.imag())};
}

constexpr bool is_logical(reduce_kind op) { return op == reduce_kind::logical_and || op == reduce_kind::logical_or; }

/// Returns 1 where all elements, or any of them, are other than zero.
template <class T>
T expected_truth(reduce_kind op, const std::vector<T>& values) {
  const auto is_true = [](T value) { return static_cast<double>(value) != 0; };
  const bool result = op == reduce_kind::logical_and ? std::all_of(values.begin(), values.end(), is_true)
                                                     : std::any_of(values.begin(), values.end(), is_true);
  return T(result ? 1 : 0);
}

/// Reduces one element at a time.
template <class T>
T expected(reduce_kind op, const std::vector<T>& values) {
  if constexpr (!is_complex_element<T>) {
    if (is_logical(op)) {
      return expected_truth(op, values);
    }
  }
  if constexpr (std::integral<T>) {
    T result = values[0];
    for (std::size_t k = 1; k < values.size(); ++k) {
      switch (op) {
        case reduce_kind::min: result = std::min(result, values[k]); break;
        case reduce_kind::max: result = std::max(result, values[k]); break;
        case reduce_kind::product:
          result = static_cast<T>(static_cast<std::uint64_t>(result) * static_cast<std::uint64_t>(values[k]));
          break;
        case reduce_kind::bit_and: result = static_cast<T>(result & values[k]); break;
        case reduce_kind::bit_or: result = static_cast<T>(result | values[k]); break;
        case reduce_kind::bit_xor: result = static_cast<T>(result ^ values[k]); break;
        default: result = static_cast<T>(static_cast<std::uint64_t>(result) + static_cast<std::uint64_t>(values[k]));
      }
    }
    return result;
  } else if constexpr (is_complex_element<T>) {
    return expected_complex(op, values);
  } else {
    using A = std::conditional_t<std::same_as<T, double>, double, float>;
    std::vector<A> wide;
    std::transform(values.begin(), values.end(), std::back_inserter(wide),
                   [](T value) { return static_cast<A>(value); });
    A result = combine_in_tree(std::span<const A>(wide), [op](A a, A b) {
      switch (op) {
        case reduce_kind::min: return std::min(a, b);
        case reduce_kind::max: return std::max(a, b);
        case reduce_kind::product: return a * b;
        default: return a + b;
      }
    });
    if (op == reduce_op::average) {
      result /= static_cast<A>(values.size());
    }
    const bool calculated = is_narrow_float<T> || (op != reduce_op::min && op != reduce_op::max);
    return std::isnan(result) && calculated ? std::numeric_limits<T>::quiet_NaN() : static_cast<T>(result);
  }
}

template <class T>
std::vector<T> expected(reduce_kind op, const std::vector<std::vector<T>>& inputs) {
  std::vector<T> result;
  std::vector<T> column(inputs.size());
  for (std::size_t i = 0; i < inputs[0].size(); ++i) {
    std::transform(inputs.begin(), inputs.end(), column.begin(), [i](const auto& input) { return input[i]; });
    result.push_back(expected(op, column));
  }
  return result;
}

/// Half of them any bits at all, so also infinities, NaNs and subnormals; half of a size that sums and products keep.
template <class T>
std::vector<T> random_elements(std::size_t count, std::mt19937_64& random) {
  std::vector<T> result(count);
  for (auto& element : result) {
    const std::uint64_t bits = random();
    if constexpr (is_complex_element<T>) {
      const auto parts = random_elements<typename T::value_type>(2, random);
      element = {parts[0], parts[1]};
    } else if (std::integral<T> || (bits & 1u) != 0) {
      const std::uint64_t any = random();
      std::memcpy(static_cast<void*>(&element), &any, sizeof element);
    } else if constexpr (!std::integral<T>) {
      element = static_cast<T>(static_cast<float>(static_cast<int>(bits >> 8 & 0xffff) - 0x8000) / 4096.0f);
    }
  }
  return result;
}

template <class T>
std::vector<std::vector<T>> random_inputs(std::size_t ranks, std::size_t count, std::mt19937_64& random) {
  std::vector<std::vector<T>> result(ranks);
  for (auto& input : result) {
    input = random_elements<T>(count, random);
  }
  return result;
}

template <class T>
std::byte* bytes_of(std::vector<T>& elements) {
  return reinterpret_cast<std::byte*>(elements.data());
}

template <class T>
std::vector<const std::byte*> pointers(std::vector<std::vector<T>>& inputs) {
  std::vector<const std::byte*> result;
  std::transform(inputs.begin(), inputs.end(), std::back_inserter(result), [](auto& input) { return bytes_of(input); });
  return result;
}

template <class T>
void reduce_into(std::byte* out, reduce_kind op, const std::vector<const std::byte*>& inputs, std::size_t count,
                 vector_unit unit = hfcomm::detail::best_vector_unit()) {
  hfcomm::detail::reduce_elements<element_type_of<T>>(op, inputs, {&out, 1}, count, {}, inputs.size(), unit);
}

template <class T>
std::vector<T> reduced(reduce_kind op, std::vector<std::vector<T>> inputs,
                       vector_unit unit = hfcomm::detail::best_vector_unit()) {
  std::vector<T> out(inputs[0].size());
  reduce_into<T>(bytes_of(out), op, pointers(inputs), out.size(), unit);
  return out;
}

/// Checks the result for one value at many positions: the first and the last positions take different code.
template <class T>
void check_everywhere(reduce_kind op, const std::vector<T>& values, T result) {
  for (const std::size_t count : {std::size_t{1}, std::size_t{70}}) {
    std::vector<std::vector<T>> inputs(values.size());
    std::transform(values.begin(), values.end(), inputs.begin(), [&](T value) { return std::vector<T>(count, value); });
    const std::string name(to_string(op));
    CAPTURE(name);
    CAPTURE(count);
    CHECK(same_bits(reduced(op, inputs), std::vector<T>(count, result)));
  }
}

}  // namespace

TEST_CASE("valid: each reduction is valid for its element types only, and never for unknown numbers") {
  for (const reduce_kind op : all_ops) {
    CHECK_FALSE(valid(op, element_type::none));
    for (int i = 1; i <= static_cast<int>(hfcomm::last_element_type); ++i) {
      const auto type = static_cast<element_type>(i);
      const bool integer = type < element_type::float16;
      const bool ordered = op == reduce_kind::min || op == reduce_kind::max;
      CHECK(valid(op, type) == (integer            ? op != reduce_kind::average
                                : is_complex(type) ? op <= reduce_kind::average && !ordered
                                                   : op <= reduce_kind::average || is_logical(op)));
      CHECK(valid(reduce_kind::premultiplied_sum, type) == !integer);
    }
    for (int i = static_cast<int>(hfcomm::last_element_type) + 1; i < 256; ++i) {
      CHECK_FALSE(valid(op, static_cast<element_type>(i)));
    }
  }
  for (int i = static_cast<int>(reduce_kind::logical_or) + 1; i < 256; ++i) {
    CHECK_FALSE(valid(static_cast<reduce_kind>(i), element_type::float32));
    CHECK_FALSE(valid(static_cast<reduce_kind>(i), element_type::int32));
  }
  static_assert(valid(reduce_op::sum, element_type::int8));
}

TEST_CASE_TEMPLATE("reduction kernels: every operation matches one element at a time", T, ALL_ELEMENTS) {
  std::mt19937_64 random(20240229);
  for (const reduce_kind op : all_ops) {
    if (!valid(op, element_type_of<T>)) {
      continue;
    }
    for (const std::size_t count : {0u, 1u, 3u, 7u, 64u, 65u, 1000u, 131073u}) {
      const bool large = count > 1000;
      for (std::size_t ranks = large ? 2 : 1; ranks <= (large ? 2 : 8); ++ranks) {
        const std::string name(to_string(op));
        CAPTURE(name);
        CAPTURE(count);
        CAPTURE(ranks);
        const auto inputs = random_inputs<T>(ranks, count, random);
        const auto wanted = expected(op, inputs);
        for (const vector_unit unit : units()) {
          const std::string unit_name(to_string(unit));
          CAPTURE(unit_name);
          CHECK(same_bits(reduced(op, inputs, unit), wanted));
        }
        for (std::size_t place = 0; place < ranks; ++place) {
          auto own = inputs;
          reduce_into<T>(bytes_of(own[place]), op, pointers(own), count);
          CHECK(same_bits(own[place], wanted));
          own[place] = inputs[place];
          CHECK(std::equal(own.begin(), own.end(), inputs.begin(), same_bits<T>));  // the others are as they were
        }
      }
    }
  }
}

TEST_CASE_TEMPLATE("reduction kernels: whole subtrees can be reduced by themselves", T, std::int32_t, float, double,
                   std::complex<float>) {
  std::mt19937_64 random(11);
  for (const reduce_kind op : {reduce_kind::sum, reduce_kind::product}) {
    for (std::size_t ranks = 2; ranks <= 35; ++ranks) {
      const auto inputs = random_inputs<T>(ranks, 40, random);
      const auto wanted = reduced(op, inputs);
      for (const std::size_t local : {1u, 2u, 4u, 8u, 16u}) {
        CAPTURE(ranks);
        CAPTURE(local);
        std::vector<std::vector<T>> parts;
        for (std::size_t begin = 0; begin < ranks; begin += local) {
          const auto from = inputs.begin() + static_cast<std::ptrdiff_t>(begin);
          parts.push_back(
              reduced(op, std::vector(from, from + static_cast<std::ptrdiff_t>(std::min(local, ranks - begin)))));
        }
        CHECK(same_bits(reduced(op, parts), wanted));
      }
    }
  }
}

TEST_CASE_TEMPLATE("reduction kernels: pieces and alignment change no bit, and nothing outside the output is written",
                   T, ALL_ELEMENTS) {
  std::mt19937_64 random(4);
  constexpr std::size_t count = 200;
  constexpr std::size_t margin = 16;
  for (const reduce_kind op : all_ops) {
    if (!valid(op, element_type_of<T>)) {
      continue;
    }
    auto inputs = random_inputs<T>(3, count, random);
    const auto whole = reduced(op, inputs);
    const auto sources = pointers(inputs);

    for (const std::size_t piece : {1u, 5u, 64u, 67u}) {
      std::vector<T> out(count);
      for (std::size_t begin = 0; begin < count; begin += piece) {
        auto moved = sources;
        for (const std::byte*& source : moved) {
          source += begin * sizeof(T);
        }
        reduce_into<T>(bytes_of(out) + begin * sizeof(T), op, moved, std::min(piece, count - begin));
      }
      CHECK(same_bits(out, whole));
    }

    for (std::size_t shift = 0; shift < margin; ++shift) {
      std::vector<std::vector<std::byte>> copies;
      std::vector<const std::byte*> moved;
      for (std::size_t k = 0; k < sources.size(); ++k) {
        copies.emplace_back(count * sizeof(T) + 2 * margin);
        std::byte* const place = copies.back().data() + (shift + k) % margin;
        std::memcpy(place, sources[k], count * sizeof(T));
        moved.push_back(place);
      }
      std::vector<std::byte> out(count * sizeof(T) + 2 * margin, std::byte{0xa5});
      auto wanted = out;
      std::memcpy(wanted.data() + shift, whole.data(), count * sizeof(T));
      reduce_into<T>(out.data() + shift, op, moved, count);
      CHECK(out == wanted);
    }
  }
}

TEST_CASE_TEMPLATE("reduction kernels: buffers that lie alike in their pages, wherever that is, change no bit", T,
                   ALL_ELEMENTS) {
  std::mt19937_64 random(11);
  constexpr std::size_t page = 4096;
  constexpr std::size_t count = 2 * page / sizeof(T) + 7;
  std::vector<std::vector<std::byte>> memory(4, std::vector<std::byte>(5 * page));
  for (const std::size_t ranks : {2u, 3u}) {
    const auto inputs = random_inputs<T>(ranks, count, random);
    const auto wanted = expected(reduce_kind::sum, inputs);
    for (const std::size_t place : {0u, 16u, 17u, 2048u, 4080u, 4095u}) {
      const auto at_place = [&](std::vector<std::byte>& one) {
        const auto begin = reinterpret_cast<std::uintptr_t>(one.data());
        return one.data() + (page - begin % page) + place;
      };
      std::vector<std::byte*> in_place;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        in_place.push_back(at_place(memory[rank]));
        std::memcpy(in_place.back(), inputs[rank].data(), count * sizeof(T));
      }
      const std::vector<const std::byte*> sources(in_place.begin(), in_place.end());
      std::byte* const out = at_place(memory.back());
      std::memset(memory.back().data(), 0xa5, memory.back().size());
      auto all = memory.back();
      std::memcpy(all.data() + (out - memory.back().data()), wanted.data(), count * sizeof(T));
      reduce_into<T>(out, reduce_kind::sum, sources, count);
      CHECK(memory.back() == all);

      hfcomm::detail::run_kernel(&hfcomm::detail::reduce_elements<element_type_of<T>>, reduce_kind::sum, sources,
                                 in_place, count, {});
      for (const std::byte* const sums : in_place) {
        CHECK(std::memcmp(sums, wanted.data(), count * sizeof(T)) == 0);
      }
    }
  }
}

TEST_CASE_TEMPLATE("reduction kernels: every output gets the result, also when outputs are inputs", T, ALL_ELEMENTS) {
  std::mt19937_64 random(77);
  const hfcomm::detail::reduction_kernel kernel = &hfcomm::detail::reduce_elements<element_type_of<T>>;
  for (const std::size_t count : {1u, 63u, 1000u, 5000u}) {
    for (const std::size_t ranks : {1u, 2u, 3u, 8u}) {
      for (const reduce_kind op : {reduce_kind::sum, is_complex_element<T> ? reduce_kind::product : reduce_kind::max}) {
        auto inputs = random_inputs<T>(ranks, count, random);
        const auto wanted = expected(op, inputs);
        std::vector<std::vector<T>> apart(3, std::vector<T>(count));
        std::vector<std::byte*> outs;
        for (auto& out : apart) {
          outs.push_back(bytes_of(out));
        }
        hfcomm::detail::run_kernel(kernel, op, pointers(inputs), outs, count, {});
        for (const auto& out : apart) {
          CHECK(same_bits(out, wanted));
        }
        outs.clear();
        for (auto& input : inputs) {
          outs.push_back(bytes_of(input));
        }
        hfcomm::detail::run_kernel(kernel, op, pointers(inputs), outs, count, {});
        for (const auto& out : inputs) {
          CHECK(same_bits(out, wanted));
        }
      }
    }
  }
}

TEST_CASE("kernel_for: every element type has its kernel, and unknown types have none") {
  using hfcomm::detail::kernel_for;
  std::vector<hfcomm::detail::reduction_kernel> kernels;
  for (int i = 1; i <= static_cast<int>(hfcomm::last_element_type); ++i) {
    const auto kernel = kernel_for(static_cast<element_type>(i));
    CHECK((kernel != nullptr));
    CHECK(std::find(kernels.begin(), kernels.end(), kernel) == kernels.end());
    kernels.push_back(kernel);
  }
  CHECK((kernel_for(element_type::float32) == &hfcomm::detail::reduce_elements<element_type::float32>));
  CHECK((kernel_for(element_type::none) == nullptr));
  CHECK((kernel_for(static_cast<element_type>(static_cast<int>(hfcomm::last_element_type) + 1)) == nullptr));
}

TEST_CASE("copy_bytes: it copies as memcpy does and writes nothing else") {
  std::mt19937_64 random(9);
  const auto from = random_elements<std::uint8_t>(5000, random);
  const auto* const source = reinterpret_cast<const std::byte*>(from.data());
  for (const std::size_t size : {0u, 1u, 255u, 1023u, 1024u, 1025u, 1279u, 4096u, 4777u}) {
    for (const std::size_t shift : {0u, 1u, 63u, 64u}) {
      const auto check = [&](auto&& copy) {
        std::vector<std::byte> to(5200, std::byte{0xa5});
        auto wanted = to;
        std::memcpy(wanted.data() + shift, source + 3, size);
        copy(to.data() + shift, source + 3, size);
        CHECK(to == wanted);
      };
      check([](std::byte* out, const std::byte* in, std::size_t bytes) { hfcomm::detail::copy_bytes(out, in, bytes); });
      check([](std::byte* out, const std::byte* in, std::size_t bytes) {
        hfcomm::detail::copy_streamed(out, in, bytes);
      });
      check([](std::byte* out, const std::byte* in, std::size_t bytes) {
        hfcomm::detail::copy_by_instruction(out, in, bytes);
      });
      for (const vector_unit unit : units()) {
        check([&](std::byte* out, const std::byte* in, std::size_t bytes) {
          hfcomm::detail::copy_bytes(out, in, bytes, unit);
        });
      }
    }
  }
}

TEST_CASE("copy_own_bytes: it copies parts of every length, wherever they begin in their cache lines") {
  std::mt19937_64 random(10);
  constexpr std::size_t largest = (std::size_t{1} << 20) + 70;
  std::vector<std::uint64_t> words(largest / sizeof(std::uint64_t) + 32);
  std::generate(words.begin(), words.end(), [&] { return random(); });
  const auto* const source = reinterpret_cast<const std::byte*>(words.data());
  for (const std::size_t size : {std::size_t{0}, std::size_t{70}, std::size_t{65'536}, std::size_t{65'537}, largest}) {
    for (const std::size_t shift : {0u, 16u, 63u, 64u}) {
      std::vector<std::byte> to(largest + 128, std::byte{0xa5});
      auto wanted = to;
      std::copy(source, source + size, wanted.begin() + static_cast<std::ptrdiff_t>(shift));
      hfcomm::detail::copy_own_bytes(to.data() + shift, {source, size});
      CHECK(to == wanted);
      hfcomm::detail::copy_own_bytes(to.data(), {to.data(), size});  // in place
      CHECK(to == wanted);
    }
  }
}

TEST_CASE("reduction kernels: integers wrap around") {
  check_everywhere<std::int8_t>(reduce_op::sum, {127, 1}, -128);
  check_everywhere<std::int8_t>(reduce_op::product, {-128, -1}, -128);
  check_everywhere<std::uint8_t>(reduce_op::sum, {200, 100, 212}, 0);
  check_everywhere<std::uint16_t>(reduce_op::product, {65535, 65535}, 1);
  check_everywhere<std::int16_t>(reduce_op::product, {-32768, -32768}, 0);
  check_everywhere<std::int32_t>(reduce_op::sum, {std::numeric_limits<int>::max(), 2},
                                 std::numeric_limits<int>::min() + 1);
  check_everywhere<std::int32_t>(reduce_op::product, {65536, 65536}, 0);
  check_everywhere<std::int64_t>(reduce_op::sum, {std::numeric_limits<std::int64_t>::min(), -1},
                                 std::numeric_limits<std::int64_t>::max());
  check_everywhere<std::uint64_t>(reduce_op::product, {0x100000001u, 0x100000001u}, 0x200000001u);
}

TEST_CASE("reduction kernels: integers are compared with their sign") {
  check_everywhere<std::int8_t>(reduce_op::min, {1, -1}, -1);
  check_everywhere<std::uint8_t>(reduce_op::min, {1, 255}, 1);
  check_everywhere<std::int64_t>(reduce_op::max, {-5, -7, -6}, -5);
  check_everywhere<std::uint64_t>(reduce_op::max, {5, ~std::uint64_t{0}, 6}, ~std::uint64_t{0});
}

TEST_CASE("reduction kernels: inputs are taken in the order of the tree") {
  check_everywhere<float>(reduce_op::sum, {1e8f, 1.0f, -1e8f, 1.0f}, 0.0f);
  check_everywhere<float>(reduce_op::sum, {1e8f, 1.0f, -1e8f}, 0.0f);
  check_everywhere<float>(reduce_op::sum, {1e8f, -1e8f, 1.0f}, 1.0f);
  check_everywhere<double>(reduce_op::product, {1e300, 1e300, 1e-300}, std::numeric_limits<double>::infinity());
  check_everywhere<double>(reduce_op::sum, {1e300, -1e300, 1.0, 1.0}, 2.0);
}

TEST_CASE("reduction kernels: 16-bit floats are rounded once, at the end") {
  // Rounded at each step, 2048 + 1 would be 2048 again in float16, and 256 + 1 would be 256 in bfloat16.
  check_everywhere<float16>(reduce_op::sum, {float16(2048.0f), float16(1.0f), float16(1.0f)}, float16(2050.0f));
  check_everywhere<bfloat16>(reduce_op::sum, {bfloat16(256.0f), bfloat16(1.0f), bfloat16(1.0f)}, bfloat16(258.0f));
  // Nor does what is between get too large: 60000 + 60000 is beyond float16.
  check_everywhere<float16>(reduce_op::average, {float16(60000.0f), float16(60000.0f)}, float16(60000.0f));
  check_everywhere<float16>(reduce_op::product, {float16(1024.0f), float16(1024.0f), float16(0x1p-10f)},
                            float16(1024.0f));
}

TEST_CASE("reduction kernels: complex numbers are added and multiplied as such") {
  using complex = std::complex<double>;
  check_everywhere<complex>(reduce_op::sum, {{1, 2}, {3, -4}, {0.5, 0}}, {4.5, -2});
  check_everywhere<complex>(reduce_op::product, {{0, 1}, {0, 1}}, {-1, 0});
  check_everywhere<complex>(reduce_op::product, {{1, 2}, {3, -4}, {0, 1}}, {-2, 11});
  check_everywhere<complex>(reduce_op::average, {{1, 2}, {2, 4}, {6, 0}}, {3, 2});
  check_everywhere<std::complex<float>>(reduce_op::sum, {{1e8f, 0}, {-1e8f, 1e8f}, {1, -1e8f}}, {1, 0});
  check_everywhere<std::complex<float>>(reduce_op::product, {{1, 2}, {3, -4}}, {11, 2});
}

TEST_CASE("reduction kernels: an average is the sum divided by the number of inputs") {
  check_everywhere<float>(reduce_op::average, {1.0f, 2.0f, 4.0f}, 7.0f / 3.0f);
  check_everywhere<double>(reduce_op::average, {1.0, 2.0, 4.0}, 7.0 / 3.0);
  check_everywhere<float16>(reduce_op::average, {float16(1.0f), float16(2.0f), float16(4.0f)}, float16(7.0f / 3.0f));
  check_everywhere<bfloat16>(reduce_op::average, {bfloat16(1.0f), bfloat16(2.0f)}, bfloat16(1.5f));
  check_everywhere<double>(reduce_op::average, {0.1}, 0.1);
}

TEST_CASE_TEMPLATE("reduction kernels: min and max keep a NaN on the left, which hides what is on the right", T,
                   FLOATING_ELEMENTS) {
  const T nan = std::numeric_limits<T>::quiet_NaN();
  const T one(1.0f);
  const T two(2.0f);
  for (const reduce_kind op : {reduce_kind::min, reduce_kind::max}) {
    check_everywhere<T>(op, {nan, one, two}, nan);
    check_everywhere<T>(op, {one, nan}, one);
    check_everywhere<T>(op, {two, nan, one}, op == reduce_op::min ? one : two);
    check_everywhere<T>(op, {one, one, nan, two}, one);
    check_everywhere<T>(op, {two, two, nan, one}, two);
  }
}

TEST_CASE_TEMPLATE("reduction kernels: of equal zeros min and max keep the lowest rank's", T, FLOATING_ELEMENTS) {
  for (const reduce_kind op : {reduce_kind::min, reduce_kind::max}) {
    check_everywhere<T>(op, {T(0.0f), T(-0.0f)}, T(0.0f));
    check_everywhere<T>(op, {T(-0.0f), T(0.0f)}, T(-0.0f));
  }
}

TEST_CASE_TEMPLATE("reduction kernels: a calculated NaN always has the same bits", T, FLOATING_ELEMENTS) {
  const T infinity = std::numeric_limits<T>::infinity();
  const T minus_infinity(-static_cast<float>(infinity));
  const T nan = std::numeric_limits<T>::quiet_NaN();
  T other_nan = nan;  // with a sign and a payload
  auto* const bytes = reinterpret_cast<unsigned char*>(&other_nan);
  bytes[0] ^= 0x15;
  bytes[sizeof(T) - 1] ^= 0x80;
  REQUIRE(other_nan != other_nan);
  check_everywhere<T>(reduce_op::sum, {infinity, minus_infinity}, nan);
  check_everywhere<T>(reduce_op::product, {infinity, T(0.0f)}, nan);
  check_everywhere<T>(reduce_op::average, {infinity, T(1.0f), minus_infinity}, nan);
  for (const reduce_kind op : {reduce_kind::sum, reduce_kind::product, reduce_kind::average}) {
    check_everywhere<T>(op, {other_nan}, nan);
    check_everywhere<T>(op, {other_nan, nan}, nan);
    check_everywhere<T>(op, {nan, other_nan, T(1.0f)}, nan);
  }
}
