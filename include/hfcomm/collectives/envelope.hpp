// SPDX-License-Identifier: MIT
#pragma once

#include <limits>

/// What is written on a message's envelope: its source and destination, and the values that stand for any or none.
namespace hfcomm {

/// The wildcard for the sender of a message, which may be any rank of the group.
struct any_source_t {
  explicit any_source_t() = default;
};
inline constexpr any_source_t any_source{};

/// The rank of nobody, in the place of a source or destination. A message to it is not sent. A receive from it ends at
/// once: a buffer stays as it is, and an object that is returned is default-constructed. So the ranks at the ends of a
/// line make the same calls as those between. (MPI's `MPI_PROC_NULL`. No calculation from a rank gives this number.)
inline constexpr int null_rank = std::numeric_limits<int>::min();

/// A message and its sender.
template <class T>
struct received {
  T value;
  int source;
};

}  // namespace hfcomm
