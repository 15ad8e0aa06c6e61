// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <hfcomm/core/call_site.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/core/detail/concat.hpp>

namespace hfcomm {

/// The place of a failure: the rank, the operation, its number in the group, and the line of the user's program that
/// called it. `rank` is a rank of the group; -1 where no group was involved (starting up, parsing options).
struct error_context {
  int rank = -1;
  int size = 0;
  std::string operation;
  std::uint64_t sequence = 0;
  call_site where = call_site::current();
};

namespace detail {

/// Returns "FILE:LINE", without the file's folders.
[[gnu::cold]] std::string describe(const call_site& where);

/// Returns the text of an error: its context, as in `error::what()`, and `detail`.
[[gnu::cold]] std::string describe(const error_context& context, std::string_view detail);

}  // namespace detail

/// The base class of hfcomm's exceptions. `what()` reads `rank 3/8: all_gather<int> #42 at train.cpp:91: <detail>`; the
/// parts can be read one by one, too.
class error : public std::runtime_error {
 public:
  error(error_context context, std::string detail);

  /// The rank, within its group, of the process that throws; -1 outside any group.
  [[nodiscard]] int rank() const noexcept { return context_.rank; }
  /// The operation, as the caller would write it.
  [[nodiscard]] const std::string& operation() const noexcept { return context_.operation; }
  /// The operation's number within its group, from 1; 0 where there is none.
  [[nodiscard]] std::uint64_t sequence() const noexcept { return context_.sequence; }
  /// The line of the user's program that called the operation.
  [[nodiscard]] const call_site& where() const noexcept { return context_.where; }
  [[nodiscard]] const error_context& context() const noexcept { return context_; }
  /// The description of the failure, without the context.
  [[nodiscard]] const std::string& detail() const noexcept { return detail_; }

 private:
  error_context context_;
  std::string detail_;
};

/// The call itself is wrong: a root outside the group, an average of integers, a second init(). The group stays usable.
class usage_error : public error {
 public:
  using error::error;
};

/// Two ranks called different things at the same place in a group's sequence. Thrown on every rank of the group, naming
/// the same two ranks, both operations and both call sites. No data was moved and the group stays usable.
class mismatch_error : public error {
 public:
  mismatch_error(error_context context, std::string detail, int first, int second)
      : error(std::move(context), std::move(detail)), first_(first), second_(second) {}

  /// The two ranks that disagree: the group's reference (its lowest rank) and the first one that differs from it.
  [[nodiscard]] int first_rank() const noexcept { return first_; }
  [[nodiscard]] int second_rank() const noexcept { return second_; }

 private:
  int first_;
  int second_;
};

/// Another rank failed: it died, left the job, or its part of this very operation threw. `peer()` is its rank within
/// the group. Where it died or left (`fatal()`), the group is broken: every later call throws at once.
class peer_error : public error {
 public:
  peer_error(error_context context, std::string detail, int peer, bool fatal)
      : error(std::move(context), std::move(detail)), peer_(peer), fatal_(fatal) {}

  [[nodiscard]] int peer() const noexcept { return peer_; }
  [[nodiscard]] bool fatal() const noexcept { return fatal_; }

 private:
  int peer_;
  bool fatal_;
};

/// The deadline passed. `missing()` holds the ranks that had not arrived; the group is broken afterwards.
class timeout_error : public error {
 public:
  timeout_error(error_context context, std::string detail, std::vector<int> missing)
      : error(std::move(context), std::move(detail)), missing_(std::move(missing)) {}

  [[nodiscard]] const std::vector<int>& missing() const noexcept { return missing_; }

 private:
  std::vector<int> missing_;
};

/// This rank withdrew its own receive, by `work::cancel`. Nothing was received, and the group stays usable.
class cancelled_error : public error {
 public:
  using error::error;
};

/// Bytes from a peer are malformed: too short, too long, with an impossible size, or nested too deep.
class decode_error : public error {
 public:
  using error::error;
};

/// The machine refused something an engine needs: memory, a socket, a system call.
class engine_error : public error {
 public:
  using error::error;
};

namespace detail {

/// Throws an error whose text is put together from `pieces`. `more` are the further arguments of its class.
template <class Error, class... More>
[[noreturn, gnu::cold, gnu::noinline]] void throw_error(const error_context& context,
                                                        std::initializer_list<text_piece> pieces, const More&... more) {
  throw Error(context, concat(pieces), more...);
}

/// Throws an error of no call, as in starting up.
template <class Error, class... More>
[[noreturn, gnu::cold, gnu::noinline]] void throw_error(std::initializer_list<text_piece> pieces, const More&... more) {
  throw Error(error_context{}, concat(pieces), more...);
}

/// Returns the text of the exception that is being handled. To be called in a handler.
[[gnu::cold]] std::string current_exception_text();

/// Returns the same text, without the context if the exception is an `error`. For an error that has another context.
[[gnu::cold]] std::string current_exception_detail();

/// To be called in a handler: throws the exception again. A usage_error of no call, such as one of the encoder, gets
/// this context; a class derived from it does not.
[[noreturn, gnu::cold]] void rethrow_with(const error_context& context);

}  // namespace detail

}  // namespace hfcomm
