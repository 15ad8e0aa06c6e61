// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

namespace char_lm {

/// A matrix somewhere in memory, read through two strides (in elements), so that a transpose costs nothing to make.
struct matrix_view {
  const float* data = nullptr;
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::size_t row_stride = 0;
  std::size_t column_stride = 1;

  /// A dense row-major matrix.
  [[nodiscard]] static matrix_view dense(const float* data, std::size_t rows, std::size_t columns) {
    return {data, rows, columns, columns, 1};
  }
  [[nodiscard]] matrix_view transposed() const { return {data, columns, rows, column_stride, row_stride}; }
};

namespace detail {

// A group of floats for one vector register. Spelled out, because compilers left to vectorise plain arrays differ by a
// factor of ten on the tile below.
#if defined(__AVX__)
inline constexpr std::size_t lane_count = 8;
#else
inline constexpr std::size_t lane_count = 4;
#endif
using lanes [[gnu::vector_size(lane_count * sizeof(float))]] = float;

inline constexpr std::size_t tile_rows = 4;
inline constexpr std::size_t tile_columns = 2 * lane_count;

// Copies `view` into strips of `Width` columns, each strip contiguous and padded with zeros to its full width, so that
// the innermost loop reads memory in order and needs no special case at the edges.
template <std::size_t Width>
void pack_strips(const matrix_view& view, float* packed) {
  for (std::size_t first = 0; first < view.columns; first += Width) {
    const std::size_t width = std::min(Width, view.columns - first);
    const float* source = view.data + first * view.column_stride;
    for (std::size_t row = 0; row < view.rows; ++row, source += view.row_stride, packed += Width) {
      if (width == Width && view.column_stride == 1) {
        std::memcpy(packed, source, Width * sizeof(float));
        continue;
      }
      for (std::size_t i = 0; i < width; ++i)
        packed[i] = source[i * view.column_stride];
      for (std::size_t i = width; i < Width; ++i)
        packed[i] = 0.0F;
    }
  }
}

// One tile of the product: a strip of `a` times a strip of `b`. The rows are a pack rather than a loop so that every
// sum is its own register whatever the optimisation level. Each sum runs over `inner` in order, so an element's value
// does not depend on where in a tile it lies.
template <std::size_t... Row>
void multiply_tile(std::index_sequence<Row...>, const float* a, const float* b, std::size_t inner, float* tile) {
  lanes left_sums[] = {((void)Row, lanes{})...};
  lanes right_sums[] = {((void)Row, lanes{})...};
  for (std::size_t k = 0; k < inner; ++k, a += tile_rows, b += tile_columns) {
    lanes left;
    lanes right;
    std::memcpy(&left, b, sizeof left);
    std::memcpy(&right, b + lane_count, sizeof right);
    ((left_sums[Row] += a[Row] * left, right_sums[Row] += a[Row] * right), ...);
  }
  ((std::memcpy(tile + Row * tile_columns, &left_sums[Row], sizeof(lanes)),
    std::memcpy(tile + Row * tile_columns + lane_count, &right_sums[Row], sizeof(lanes))),
   ...);
}

}  // namespace detail

/// Dense float32 matrix products. Holds only scratch memory, reused from call to call; one object per thread.
class matrix_multiplier {
 public:
  /// c += a * b, with `c` dense, row-major, a.rows x b.columns. a.columns must equal b.rows; c must not overlap a or b.
  void multiply_add(const matrix_view& a, const matrix_view& b, float* c) {
    using detail::tile_columns;
    using detail::tile_rows;
    const std::size_t inner = a.columns;
    packed_a_.resize(std::max(packed_a_.size(), (a.rows + tile_rows) * inner));
    packed_b_.resize(std::max(packed_b_.size(), (b.columns + tile_columns) * inner));
    detail::pack_strips<tile_rows>(a.transposed(), packed_a_.data());
    detail::pack_strips<tile_columns>(b, packed_b_.data());
    float tile[tile_rows * tile_columns];
    for (std::size_t column = 0; column < b.columns; column += tile_columns) {
      const std::size_t width = std::min(tile_columns, b.columns - column);
      for (std::size_t row = 0; row < a.rows; row += tile_rows) {
        detail::multiply_tile(std::make_index_sequence<tile_rows>{}, packed_a_.data() + row * inner,
                              packed_b_.data() + column * inner, inner, tile);
        const std::size_t height = std::min(tile_rows, a.rows - row);
        for (std::size_t r = 0; r < height; ++r) {
          float* target = c + (row + r) * b.columns + column;
          for (std::size_t i = 0; i < width; ++i)
            target[i] += tile[r * tile_columns + i];
        }
      }
    }
  }

 private:
  std::vector<float> packed_a_;
  std::vector<float> packed_b_;
};

/// Adds each row of the dense rows x columns matrix `matrix` to `sums`, in row order.
inline void add_rows(const float* matrix, std::size_t rows, std::size_t columns, float* sums) {
  for (std::size_t row = 0; row < rows; ++row, matrix += columns) {
    for (std::size_t i = 0; i < columns; ++i)
      sums[i] += matrix[i];
  }
}

/// Sets each row of the dense rows x columns matrix `matrix` to `row_values`.
inline void fill_rows(const float* row_values, std::size_t rows, std::size_t columns, float* matrix) {
  for (std::size_t row = 0; row < rows; ++row)
    std::copy_n(row_values, columns, matrix + row * columns);
}

}  // namespace char_lm
