// SPDX-License-Identifier: MIT
#pragma once

#include <bit>
#include <cstddef>
#include <span>

/// Combines values in the order of every reduction: one binary tree, of whose n values those before the largest power
/// of two below n are combined by themselves, and so are the others.
template <class T, class Combine>
T combine_in_tree(std::span<const T> values, const Combine& combine) {
  if (values.size() == 1) {
    return values[0];
  }
  const std::size_t left = std::bit_floor(values.size() - 1);
  const T first = combine_in_tree(values.first(left), combine);
  return combine(first, combine_in_tree(values.subspan(left), combine));
}
