// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/engine/operation.hpp>
#include <hfcomm/group/process_group.hpp>

namespace hfcomm::detail {

/// A call of an operation on a group, while its arguments are checked. The base of running_call and
/// running_device_call, which both tell the other ranks of their failures.
class checked_call {
 public:
  checked_call(const checked_call&) = delete;
  checked_call& operator=(const checked_call&) = delete;

  [[nodiscard]] const operation& call() const noexcept { return call_; }
  [[nodiscard]] int rank() const noexcept { return group_.rank(); }
  [[nodiscard]] int size() const noexcept { return group_.size(); }
  /// Error context of this call; valid for its whole lifetime.
  [[nodiscard]] error_context context() const;

  /// Takes part in the operation as a failure, because this rank's arguments or its data are unusable: the other ranks
  /// throw peer_error with `text` instead of waiting. The caller throws its own error afterwards.
  virtual void announce_failure(const std::string& text) noexcept = 0;

  /// Tells the other ranks, and throws usage_error.
  [[noreturn]] void refuse(const std::string& text);

  /// To be called in a handler: tells the other ranks the exception's text after the prefix `what`, and throws the
  /// exception again, with this call's context where it has none.
  [[noreturn, gnu::cold]] void fail_again(std::string_view what);

  /// Refuses with `text()` unless `condition` holds.
  template <class Text>
  void require(bool condition, Text&& text) {
    if (!condition) [[unlikely]] {
      refuse(std::forward<Text>(text)());
    }
  }

  /// Throws usage_error unless the operation's root is a rank of the group.
  void require_root();

  /// Returns `work()`. Where that throws, the other ranks get its text after the prefix `what`.
  template <class Work>
  auto attempt(std::string_view what, Work&& work) {
    try {
      return std::forward<Work>(work)();
    } catch (...) {
      fail_again(what);
    }
  }

 protected:
  checked_call(const process_group& group, operation& call) noexcept : group_(group), call_(call) {}
  ~checked_call() = default;

  /// Throws the error that a destructor of this rank deferred, if there is one. Tells the other ranks first, which
  /// would otherwise wait for this operation until their deadline.
  void throw_deferred();

  // NOLINTBEGIN(*non-private-member*): what both kinds of call have
  const process_group& group_;
  operation& call_;
  std::uint64_t number_ = 0;  // of the operation within its group, from 1
  // NOLINTEND(*non-private-member*)
};

}  // namespace hfcomm::detail
