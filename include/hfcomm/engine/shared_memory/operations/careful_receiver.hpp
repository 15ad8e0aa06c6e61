// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>

#include <hfcomm/engine/receiver.hpp>

namespace hfcomm::engines {

/// A receiver whose exceptions do not end this rank's steps, for which the peers wait. The first one is kept; the
/// receiver gets nothing after it.
class careful_receiver {
 public:
  explicit careful_receiver(receiver& out) noexcept : out_(out) {}

  /// Calls `body(receiver)`, unless there was an exception.
  template <class Body>
  void attempt(const Body& body) noexcept {
    if (!problem_) {
      try {
        body(out_);
      } catch (...) {
        problem_ = std::current_exception();
      }
    }
  }
  void receive(int source, std::span<const std::byte> piece, std::uint64_t offset, std::uint64_t total) noexcept {
    attempt([&](receiver& out) { out.receive(source, piece, offset, total); });
  }

  /// Throws the exception, if there was one.
  void rethrow() const {
    if (problem_) {
      std::rethrow_exception(problem_);
    }
  }

 private:
  receiver& out_;
  std::exception_ptr problem_;
};

}  // namespace hfcomm::engines
