// SPDX-License-Identifier: MIT
// Built a second time with everything that might tempt a compiler to fuse a product and a sum: see tests/meson.build.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <random>
#include <span>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include "../tree.hpp"

#include <hfcomm/engine/reduction/kernel_for.hpp>

#define FLOATING_ELEMENTS hfcomm::float16, hfcomm::bfloat16, float, double
#define ALL_FLOATING_ELEMENTS FLOATING_ELEMENTS, hfcomm::float8_e4m3, hfcomm::float8_e5m2

namespace {

using hfcomm::element_type_of;
using hfcomm::reduce_kind;

template <class T>
using calculated_in = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// Adds one input after the other. Volatile values go through memory, so each operation is rounded separately.
template <class T>
T expected(const std::vector<std::vector<T>>& inputs, const std::vector<double>& factors, std::size_t i) {
  using A = calculated_in<T>;
  std::vector<A> products;
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    const volatile A product = static_cast<A>(inputs[k][i]) * static_cast<A>(factors[k]);
    products.push_back(A(product));
  }
  const A sum = combine_in_tree(std::span<const A>(products), [](A a, A b) { return a + b; });
  return std::isnan(sum) ? std::numeric_limits<T>::quiet_NaN() : static_cast<T>(sum);
}

template <class T>
std::vector<const std::byte*> pointers(const std::vector<std::vector<T>>& inputs) {
  std::vector<const std::byte*> result;
  std::transform(inputs.begin(), inputs.end(), std::back_inserter(result),
                 [](const auto& input) { return reinterpret_cast<const std::byte*>(input.data()); });
  return result;
}

template <class T>
std::vector<T> reduced(const std::vector<std::vector<T>>& inputs, const std::vector<double>& factors) {
  const auto sources = pointers(inputs);
  std::vector<T> out(inputs[0].size());
  hfcomm::detail::run_kernel(&hfcomm::detail::reduce_elements<element_type_of<T>>, reduce_kind::premultiplied_sum,
                             sources, reinterpret_cast<std::byte*>(out.data()), out.size(), factors);
  return out;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

/// Half of them any bits at all, half of a size that sums keep.
template <class T>
T random_element(std::mt19937_64& random) {
  const std::uint64_t bits = random();
  T element = static_cast<T>(static_cast<float>(static_cast<int>(bits >> 8 & 0xffff) - 0x8000) / 4099.0F);
  if ((bits & 1) != 0) {
    const std::uint64_t any = random();
    std::memcpy(static_cast<void*>(&element), &any, sizeof element);
  }
  return element;
}

}  // namespace

TEST_CASE_TEMPLATE("premultiplied_sum: it has the bits of the plain calculation", T, ALL_FLOATING_ELEMENTS) {
  std::mt19937_64 random(77);
  for (const std::size_t count : {0U, 1U, 3U, 63U, 64U, 65U, 1000U, 20001U}) {
    for (std::size_t ranks = 1; ranks <= (count > 1000 ? 2U : 5U); ++ranks) {
      CAPTURE(count);
      CAPTURE(ranks);
      std::vector<std::vector<T>> inputs(ranks, std::vector<T>(count));
      std::vector<double> factors(ranks);
      for (std::size_t k = 0; k < ranks; ++k) {
        for (T& element : inputs[k]) {
          element = random_element<T>(random);
        }
        factors[k] = static_cast<double>(random() % 2001) / 1000.0 - 1.0;
      }
      std::vector<T> wanted(count);
      for (std::size_t i = 0; i < count; ++i) {
        wanted[i] = expected(inputs, factors, i);
      }
      CHECK(same_bits(reduced(inputs, factors), wanted));
    }
  }
}

TEST_CASE("premultiplied_sum: products are rounded before they are added") {
  // (1 + 2^-12)^2 = 1 + 2^-11 + 2^-24: the last part is lost in a float, and would not be in a fused multiply-add.
  const float x = 1.0F + 0x1p-12F;
  const std::vector<std::vector<float>> inputs{std::vector<float>(70, -(1.0F + 0x1p-11F)), std::vector<float>(70, x)};
  CHECK(same_bits(reduced(inputs, {1.0, static_cast<double>(x)}), std::vector<float>(70, 0.0F)));
  const double y = 1.0 + 0x1p-27;
  const std::vector<std::vector<double>> doubles{std::vector<double>(70, -(1.0 + 0x1p-26)), std::vector<double>(70, y)};
  CHECK(same_bits(reduced(doubles, {1.0, y}), std::vector<double>(70, 0.0)));
}

TEST_CASE_TEMPLATE("premultiplied_sum: a NaN result always has the same bits", T, FLOATING_ELEMENTS) {
  const T infinity = std::numeric_limits<T>::infinity();
  const T nan = std::numeric_limits<T>::quiet_NaN();
  const double large = std::numeric_limits<double>::infinity();
  for (const std::size_t count : {1U, 65U}) {
    const std::vector<T> all(count, nan);
    CHECK(same_bits(reduced<T>({std::vector<T>(count, infinity)}, {0.0}), all));
    CHECK(same_bits(reduced<T>({std::vector<T>(count, T(0.0F))}, {large}), all));
    CHECK(same_bits(reduced<T>({std::vector<T>(count, infinity), std::vector<T>(count, infinity)}, {1, -1}), all));
    CHECK(same_bits(reduced<T>({std::vector<T>(count, T(1.0F)), std::vector<T>(count, T(2.0F))}, {1, large}),
                    std::vector<T>(count, infinity)));
  }
}

TEST_CASE_TEMPLATE("premultiplied_sum: the output may be any of the inputs", T, ALL_FLOATING_ELEMENTS) {
  std::mt19937_64 random(5);
  std::vector<std::vector<T>> inputs(3, std::vector<T>(131));
  for (auto& input : inputs) {
    for (T& element : input) {
      element = random_element<T>(random);
    }
  }
  const std::vector<double> factors{0.1, -3, 0.7};
  const auto wanted = reduced(inputs, factors);
  for (std::size_t place = 0; place < inputs.size(); ++place) {
    auto own = inputs;
    const auto sources = pointers(own);
    hfcomm::detail::run_kernel(&hfcomm::detail::reduce_elements<element_type_of<T>>, reduce_kind::premultiplied_sum,
                               sources, reinterpret_cast<std::byte*>(own[place].data()), own[place].size(), factors);
    CHECK(same_bits(own[place], wanted));
  }
}
