// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <limits>

#include <hfcomm/core/plain.hpp>

/// Source, destination and tag of a message, and the wildcards.
namespace hfcomm {

/// The wildcard for the sender of a message, which may be any rank of the group.
struct any_source_t {
  explicit any_source_t() = default;
};
inline constexpr any_source_t any_source{};

/// The wildcard for the tag of a message.
struct any_tag_t {
  explicit any_tag_t() = default;
};
inline constexpr any_tag_t any_tag{};

/// The null process, in the place of a source or destination. A send to it or a receive from it completes at once and
/// transfers nothing, also in a broken group: a buffer stays as it is, and an object that is returned is
/// default-constructed. So the ranks at the ends of a
/// line make the same calls as those between. (MPI's `MPI_PROC_NULL`. No calculation from a rank gives this number.)
inline constexpr int null_rank = std::numeric_limits<int>::min();

/// A message and its sender.
template <class T>
struct received {
  T value;
  int source;
};

/// A message of any tag, its sender and its tag.
template <class T>
struct received_with_tag {
  T value;
  int source;
  int tag;
};

/// The envelope of a message that can be received. (MPI's `MPI_Status`.)
struct message_info {
  int source = null_rank;
  int tag = 0;
  std::size_t bytes = 0;  ///< The length of the elements, or of the serialized object.

  /// Returns the number of elements of type T that the message has, where it is a buffer of such elements.
  template <plain T>
  [[nodiscard]] std::size_t count() const noexcept {
    return bytes / sizeof(T);
  }
  friend bool operator==(const message_info&, const message_info&) = default;
};

/// The sender that a receive wants: a rank, or `any_source`. For parameters.
class message_source {
 public:
  constexpr message_source(int rank) noexcept : rank_(rank) {}                           // NOLINT(*explicit*)
  constexpr message_source(any_source_t /*any*/) noexcept : rank_(-1), is_any_(true) {}  // NOLINT(*explicit*)

  /// Returns the rank; -1 for any.
  [[nodiscard]] constexpr int rank() const noexcept { return rank_; }
  [[nodiscard]] constexpr bool is_any() const noexcept { return is_any_; }

 private:
  int rank_;
  bool is_any_ = false;
};

/// The tag that a receive wants: a number, or `any_tag`. For parameters.
class message_tag {
 public:
  constexpr message_tag(int number) noexcept : number_(number) {}                   // NOLINT(*explicit*)
  constexpr message_tag(any_tag_t /*any*/) noexcept : number_(0), is_any_(true) {}  // NOLINT(*explicit*)

  /// Returns the number; 0 for any.
  [[nodiscard]] constexpr int number() const noexcept { return number_; }
  [[nodiscard]] constexpr bool is_any() const noexcept { return is_any_; }

 private:
  int number_;
  bool is_any_ = false;
};

}  // namespace hfcomm
