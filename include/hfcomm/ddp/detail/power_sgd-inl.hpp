// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/core/hash.hpp>
#include <hfcomm/ddp/power_sgd.hpp>

namespace hfcomm {

namespace detail {

/// A matrix in row-major order.
template <class T>
struct matrix_view {
  T* data;
  std::size_t rows;
  std::size_t columns;

  [[nodiscard]] T* row(std::size_t index) const { return data + index * columns; }
  [[nodiscard]] std::span<T> elements() const { return {data, rows * columns}; }
};

/// Sets `product` to left * right.
template <class T>
void multiply(matrix_view<const T> left, matrix_view<T> right, matrix_view<T> product) {
  std::ranges::fill(product.elements(), T{0});
  for (std::size_t row = 0; row < left.rows; ++row) {
    T* const sums = product.row(row);
    for (std::size_t inner = 0; inner < left.columns; ++inner) {
      const T factor = left.row(row)[inner];
      const T* const terms = right.row(inner);
      for (std::size_t column = 0; column < right.columns; ++column) {
        sums[column] += factor * terms[column];
      }
    }
  }
}

/// Sets `product` to the transpose of left, times right.
template <class T>
void multiply_transposed(matrix_view<const T> left, matrix_view<T> right, matrix_view<T> product) {
  std::ranges::fill(product.elements(), T{0});
  for (std::size_t inner = 0; inner < left.rows; ++inner) {
    const T* const terms = right.row(inner);
    for (std::size_t row = 0; row < left.columns; ++row) {
      const T factor = left.row(inner)[row];
      T* const sums = product.row(row);
      for (std::size_t column = 0; column < right.columns; ++column) {
        sums[column] += factor * terms[column];
      }
    }
  }
}

/// Sets `product` to left, times the transpose of right.
template <class T>
void multiply_by_transposed(matrix_view<T> left, matrix_view<T> right, matrix_view<T> product) {
  for (std::size_t row = 0; row < left.rows; ++row) {
    for (std::size_t column = 0; column < right.rows; ++column) {
      T sum = 0;
      for (std::size_t inner = 0; inner < left.columns; ++inner) {
        sum += left.row(row)[inner] * right.row(column)[inner];
      }
      product.row(row)[column] = sum;
    }
  }
}

/// Makes the columns orthogonal and of length 1, by the modified Gram-Schmidt process. A column that the others span
/// becomes zeros.
template <class T>
void orthogonalize(matrix_view<T> matrix) {
  const auto dot = [&](std::size_t left, std::size_t right) {
    T sum = 0;
    for (std::size_t row = 0; row < matrix.rows; ++row) {
      sum += matrix.row(row)[left] * matrix.row(row)[right];
    }
    return sum;
  };
  for (std::size_t column = 0; column < matrix.columns; ++column) {
    for (std::size_t before = 0; before < column; ++before) {
      const T along = dot(before, column);
      for (std::size_t row = 0; row < matrix.rows; ++row) {
        matrix.row(row)[column] -= along * matrix.row(row)[before];
      }
    }
    const T length = std::sqrt(dot(column, column));
    const T scale = length > std::numeric_limits<T>::min() ? 1 / length : T{0};
    for (std::size_t row = 0; row < matrix.rows; ++row) {
      matrix.row(row)[column] *= scale;
    }
  }
}

/// What PowerSGD keeps from pass to pass.
class power_sgd_state {
 public:
  explicit power_sgd_state(const power_sgd_options& options) : options_(options) {}

  work<void> average(gradient_bucket bucket) {
    require_host_bucket(bucket, "power_sgd");
    const bool is_narrow = size_of(bucket.type()) == 2;
    if (is_narrow || bucket.pass() < options_.first_pass) {
      return bucket.average();
    }
    return bucket.type() == element_type::float64 ? compress<double>(bucket) : compress<float>(bucket);
  }

 private:
  /// A gradient of the bucket and its factors. Those of `left` lie in what is sent.
  template <class T>
  struct factored {
    matrix_view<T> gradient;
    matrix_view<T> left;
    matrix_view<T> right;
  };

  /// What is kept of a gradient.
  template <class T>
  struct kept {
    std::vector<T> right;  ///< The second factor.
    std::vector<T> error;  ///< What compression has lost.
  };
  template <class T>
  [[nodiscard]] kept<T>& kept_of(const std::string& name) {
    return std::get<std::unordered_map<std::string, kept<T>>>(kept_)[name];
  }

  /// Returns the shape of a gradient as a matrix; without columns where it is not compressed.
  [[nodiscard]] matrix_view<std::byte> shape_of(const bucket_gradient& one) const {
    const auto& sizes = one.layout.sizes;
    if (sizes.size() < 2 || sizes.front() <= 0 || one.count == 0) {
      return {nullptr, 0, 0};
    }
    const auto rows = static_cast<std::size_t>(sizes.front());
    const std::size_t columns = one.count / rows;
    const auto& strides = one.layout.strides;
    const bool is_outermost = strides.empty() || strides.front() == static_cast<std::int64_t>(columns);
    const double factors = static_cast<double>((rows + columns) * options_.matrix_rank) * options_.least_compression;
    return is_outermost && factors < static_cast<double>(one.count) ? matrix_view<std::byte>{nullptr, rows, columns}
                                                                    : matrix_view<std::byte>{nullptr, 0, 0};
  }

  /// Sets a second factor: the one of the pass before, or random numbers, the same on all ranks.
  template <class T>
  void begin(const std::string& name, std::uint64_t pass, matrix_view<T> right) {
    const auto& before = kept_of<T>(name).right;
    if (options_.warm_start && before.size() == right.elements().size()) {
      std::ranges::copy(before, right.data);
    } else {
      std::mt19937_64 random(fnv1a(name, options_.seed) + pass);
      for (T& one : right.elements()) {
        one = static_cast<T>(static_cast<double>(random() >> 11) * 0x1p-53 - 0.5);
      }
    }
    orthogonalize(right);
  }

  template <class T>
  void add_error(const bucket_gradient& one, std::span<T> gradient) {
    if (options_.uses_error_feedback) {
      auto& error = kept_of<T>(one.name).error;
      error.resize(one.count);
      std::ranges::transform(gradient, error, gradient.begin(), std::plus<>());
      std::ranges::copy(gradient, error.begin());
    }
  }

  template <class T>
  work<void> compress(gradient_bucket bucket) {
    const std::span<T> all = bucket.elements<T>();
    std::vector<const bucket_gradient*> exact;
    std::vector<const bucket_gradient*> compressed;
    std::size_t left_size = 0;
    std::size_t right_size = 0;
    std::size_t exact_size = 0;
    for (const auto& one : bucket.gradients()) {
      const auto shape = shape_of(one);
      (shape.columns != 0 ? compressed : exact).push_back(&one);
      exact_size += shape.columns != 0 ? 0 : one.count;
      left_size += shape.rows * options_.matrix_rank;
      right_size += shape.columns * options_.matrix_rank;
    }

    // The first factors and the gradients that are not compressed are sent together.
    std::vector<T> first(exact_size + left_size);
    std::vector<T> second(right_size);
    T* next = first.data();
    for (const auto* one : exact) {
      next = std::ranges::copy(all.subspan(one->begin, one->count), next).out;
    }
    std::vector<factored<T>> factors;
    T* next_right = second.data();
    for (const auto* one : compressed) {
      const auto shape = shape_of(*one);
      const auto gradient = all.subspan(one->begin, one->count);
      add_error(*one, gradient);
      factors.push_back({{gradient.data(), shape.rows, shape.columns},
                         {next, shape.rows, options_.matrix_rank},
                         {next_right, shape.columns, options_.matrix_rank}});
      next += shape.rows * options_.matrix_rank;
      next_right += shape.columns * options_.matrix_rank;
      const auto& [matrix, left, right] = factors.back();
      begin(one->name, bucket.pass(), right);
      multiply<T>({matrix.data, matrix.rows, matrix.columns}, right, left);
    }
    co_await bucket.average(std::span(first));

    for (const auto& [matrix, left, right] : factors) {
      orthogonalize(left);
      multiply_transposed<T>({matrix.data, matrix.rows, matrix.columns}, left, right);
    }
    co_await bucket.average(std::span(second));

    const T* from = first.data();
    for (const auto* one : exact) {
      std::copy_n(from, one->count, all.subspan(one->begin).begin());
      from += one->count;
    }
    for (std::size_t index = 0; index < factors.size(); ++index) {
      finish(*compressed[index], factors[index]);
    }
  }

  template <class T>
  void finish(const bucket_gradient& one, const factored<T>& factors) {
    multiply_by_transposed(factors.left, factors.right, factors.gradient);
    auto& [right, error] = kept_of<T>(one.name);
    right.assign(factors.right.elements().begin(), factors.right.elements().end());
    if (options_.uses_error_feedback) {
      std::ranges::transform(error, factors.gradient.elements(), error.begin(), std::minus<>());
    }
  }

  power_sgd_options options_;
  std::tuple<std::unordered_map<std::string, kept<float>>, std::unordered_map<std::string, kept<double>>> kept_;
};

}  // namespace detail

HFCOMM_INLINE communication_hook power_sgd(power_sgd_options options) {
  if (options.matrix_rank == 0) {
    throw usage_error(error_context{},
                      "power_sgd: factors of 0 columns have no elements; matrix_rank must be 1 or more");
  }
  const auto state = std::make_shared<detail::power_sgd_state>(options);
  return [state](gradient_bucket bucket) { return state->average(bucket); };
}

}  // namespace hfcomm
