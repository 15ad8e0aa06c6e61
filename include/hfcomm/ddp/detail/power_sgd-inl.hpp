// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
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

/// Returns an element of left, times the transpose of right.
template <class T>
T product_at(matrix_view<T> left, matrix_view<T> right, std::size_t row, std::size_t column) {
  T sum = 0;
  for (std::size_t inner = 0; inner < left.columns; ++inner) {
    sum += left.row(row)[inner] * right.row(column)[inner];
  }
  return sum;
}

template <class T>
T dot_of_columns(matrix_view<T> matrix, std::size_t left, std::size_t right) {
  T sum = 0;
  for (std::size_t row = 0; row < matrix.rows; ++row) {
    sum += matrix.row(row)[left] * matrix.row(row)[right];
  }
  return sum;
}

/// Makes a column orthogonal to those before it, and of length 1. A column that those span, but for rounding, becomes
/// zeros; returns false then. One that is not finite becomes NaNs.
template <class T>
bool orthogonalize_column(matrix_view<T> matrix, std::size_t column) {
  const T length_before = std::sqrt(dot_of_columns(matrix, column, column));
  for (int time = 0; time < 2; ++time) {  // once leaves rounding errors of the size of what is taken away
    for (std::size_t before = 0; before < column; ++before) {
      const T along = dot_of_columns(matrix, before, column);
      for (std::size_t row = 0; row < matrix.rows; ++row) {
        matrix.row(row)[column] -= along * matrix.row(row)[before];
      }
    }
  }
  const T length = std::sqrt(dot_of_columns(matrix, column, column));
  const T rounding = 10 * std::numeric_limits<T>::epsilon() * std::sqrt(static_cast<T>(matrix.rows)) * length_before;
  const bool is_finite = std::isfinite(length);
  const bool is_new = !is_finite || length > std::max(rounding, std::numeric_limits<T>::min());
  for (std::size_t row = 0; row < matrix.rows; ++row) {
    T& element = matrix.row(row)[column];
    element = !is_finite ? std::numeric_limits<T>::quiet_NaN() : is_new ? element / length : T{0};
  }
  return is_new;
}

/// Makes the columns orthogonal and of length 1, by the Gram-Schmidt process. Columns that others span become zeros.
template <class T>
void orthogonalize(matrix_view<T> matrix) {
  for (std::size_t column = 0; column < matrix.columns; ++column) {
    orthogonalize_column(matrix, column);
  }
}

/// PowerSGD and its state from pass to pass.
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
  /// A gradient of the bucket and its factors, which lie in what is sent.
  template <class T>
  struct factored_gradient {
    matrix_view<T> gradient;
    matrix_view<T> left;
    matrix_view<T> right;
  };

  /// The state of a gradient: its second factor, and the error of compression that later passes make up for.
  template <class T>
  struct gradient_state {
    std::vector<T> right;
    std::vector<T> error;
  };
  /// By the parameter's name.
  template <class T>
  using states = std::unordered_map<std::string, gradient_state<T>>;

  template <class T>
  [[nodiscard]] states<T>& all_states() {
    return std::get<states<T>>(states_);
  }

  /// The shape of a gradient as a matrix; no columns where it is not compressed.
  struct matrix_shape {
    std::size_t rows = 0;
    std::size_t columns = 0;
  };

  [[nodiscard]] matrix_shape shape_of(const bucket_gradient& one) const {
    const auto& sizes = one.layout.sizes;
    std::size_t product = 1;
    for (const std::int64_t size : sizes) {
      product *= static_cast<std::size_t>(std::max<std::int64_t>(size, 0));
    }
    if (sizes.size() < 2 || one.count == 0 || product != one.count) {
      return {};
    }
    const auto rows = static_cast<std::size_t>(sizes.front());
    const std::size_t columns = one.count / rows;
    const auto& strides = one.layout.strides;
    const bool is_outermost = strides.empty() || strides.front() == static_cast<std::int64_t>(columns);
    const double factors = static_cast<double>(rows + columns) * static_cast<double>(options_.matrix_rank);
    const bool is_worth_it = factors * options_.least_compression < static_cast<double>(one.count);
    return is_outermost && is_worth_it ? matrix_shape{rows, columns} : matrix_shape{};
  }

  /// Sets a second factor to orthogonal columns: those of the pass before, or random ones, the same on all ranks.
  /// Columns that have vanished begin anew.
  template <class T>
  void begin(const std::string& name, std::uint64_t pass, matrix_view<T> right) {
    const auto found = all_states<T>().find(name);
    const bool has_right = found != all_states<T>().end() && found->second.right.size() == right.elements().size();
    if (options_.warm_start && has_right) {
      std::ranges::copy(found->second.right, right.data);
    } else {
      std::ranges::fill(right.elements(), T{0});
    }
    std::mt19937_64 random(fnv1a(name, options_.seed) + pass);
    for (std::size_t column = 0; column < right.columns; ++column) {
      if (!orthogonalize_column(right, column)) {
        for (std::size_t row = 0; row < right.rows; ++row) {
          right.row(row)[column] = static_cast<T>(static_cast<double>(random() >> 11) * 0x1p-53 - 0.5);
        }
        orthogonalize_column(right, column);
      }
    }
  }

  template <class T>
  void add_error(const std::string& name, std::span<T> gradient) {
    const auto found = all_states<T>().find(name);
    if (found != all_states<T>().end() && found->second.error.size() == gradient.size()) {
      std::ranges::transform(gradient, found->second.error, gradient.begin(), std::plus<>());
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
    std::vector<factored_gradient<T>> factors;
    T* next_right = second.data();
    for (const auto* one : compressed) {
      const auto shape = shape_of(*one);
      const auto gradient = all.subspan(one->begin, one->count);
      add_error(one->name, gradient);
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
    if (!factors.empty()) {
      co_await bucket.average(std::span(second));
    }

    const T* from = first.data();
    for (const auto* one : exact) {
      std::copy_n(from, one->count, all.subspan(one->begin).begin());
      from += one->count;
    }
    // A pass of fewer ranks averages over those, and the errors of all are to make up for it.
    const T share = static_cast<T>(bucket.divisor()) / static_cast<T>(bucket.group().size());
    for (std::size_t index = 0; index < factors.size(); ++index) {
      finish(compressed[index]->name, factors[index], share);
    }
  }

  /// Sets the gradient to the product of its factors, and keeps what later passes need. Of factors that are not finite
  /// nothing is kept: they are the same on all ranks, which all begin anew.
  template <class T>
  void finish(const std::string& name, const factored_gradient<T>& factors, T share) {
    const auto& [gradient, left, right] = factors;
    const auto is_finite = [](T value) { return std::isfinite(value); };
    const bool keeps =
        std::ranges::all_of(right.elements(), is_finite) && std::ranges::all_of(left.elements(), is_finite);
    auto& state = all_states<T>()[name];
    state.right.assign(right.elements().begin(), right.elements().end());
    state.error.resize(options_.uses_error_feedback ? gradient.elements().size() : 0);
    for (std::size_t row = 0; row < gradient.rows; ++row) {
      for (std::size_t column = 0; column < gradient.columns; ++column) {
        const T average = product_at(left, right, row, column);
        T& element = gradient.row(row)[column];
        if (options_.uses_error_feedback) {
          state.error[row * gradient.columns + column] = element - average * share;
        }
        element = average;
      }
    }
    if (!keeps) {
      all_states<T>().erase(name);
    }
  }

  power_sgd_options options_;
  std::tuple<states<float>, states<double>> states_;
};

}  // namespace detail

HFCOMM_INLINE communication_hook power_sgd(power_sgd_options options, std::source_location where) {
  const error_context context{-1, 0, "power_sgd", 0, where};
  if (options.matrix_rank == 0) {
    detail::throw_error<usage_error>(context, {"factors of 0 columns have no elements; matrix_rank must be 1 or more"});
  }
  if (!(options.least_compression >= 1)) {
    detail::throw_error<usage_error>(
        context, {"least_compression must be 1 or more: below it the factors may be larger than gradients"});
  }
  const auto state = std::make_shared<detail::power_sgd_state>(options);
  return [state](gradient_bucket bucket) { return state->average(bucket); };
}

}  // namespace hfcomm
