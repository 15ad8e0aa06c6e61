// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <hfcomm/call/argument_checks.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/core/device_span.hpp>
#include <hfcomm/core/stream_ref.hpp>
#include <hfcomm/device/device_work.hpp>
#include <hfcomm/engine/device_engine.hpp>
#include <hfcomm/group/detail/running_call.hpp>

/// The parts that the device forms of all collectives share.
namespace hfcomm::detail {

class watched_operations;

/// Returns a new device engine, not connected. Throws usage_error where the program was compiled without one, and
/// engine_error where the libraries of CUDA and NCCL are not found.
std::shared_ptr<device_engine> make_device_engine(const process_group& group, const operation& call);

/// Makes the group's device engine where it has none, and connects it on the current device.
void connect_device_engine(const process_group& group, std::source_location where);
/// Does the same, unless the group has been connected.
void connect_device_once(const process_group& group, std::source_location where);

/// The lengths, in elements, of a buffer's parts for each rank or from each rank.
class part_lengths {
 public:
  /// All parts have the same length.
  explicit part_lengths(std::size_t each) noexcept : each_(each) {}
  /// A list of lengths, which must add up to the buffer's `length`. `what` names the buffer in error texts.
  part_lengths(std::span<const std::size_t> counts, std::size_t length, const char* what) noexcept
      : has_list_(true), counts_(counts), length_(length), what_(what) {}

  [[nodiscard]] std::size_t operator[](std::size_t rank) const noexcept { return has_list_ ? counts_[rank] : each_; }
  /// Throws usage_error where the list does not fit.
  void require(checked_call& running) const;

 private:
  bool has_list_ = false;
  std::size_t each_ = 0;
  std::span<const std::size_t> counts_{};
  std::size_t length_ = 0;
  const char* what_ = "";
};

/// The lengths of the parts that a rank sends to each rank and expects from each, in elements of `width` bytes.
struct uneven_parts {
  part_lengths sent;
  part_lengths expected;
  std::size_t width;
  bool has_own = true;  ///< One part goes from this rank to itself.

  /// Throws usage_error where this rank's own lists are wrong.
  void require(checked_call& running) const;
};

/// The caller's stream, for an operation that runs on it.
struct on_stream {
  stream_ref stream;
};
/// The caller's stream, for an operation that runs on the engine's own stream, after the work that is on the caller's
/// stream by now.
struct on_own_stream {
  stream_ref stream;
};

/// A device operation that runs on a group: the counterpart of running_call. Where an exception ends the call before
/// the engine has the operation, the destructor tells the other ranks.
class running_device_call final : public checked_call {
 public:
  /// Connects the group where it is not connected. `parts` are given where the ranks' parts may differ in length.
  running_device_call(const process_group& group, operation& call, const uneven_parts* parts = nullptr);
  running_device_call(const running_device_call&) = delete;
  running_device_call& operator=(const running_device_call&) = delete;
  ~running_device_call();

  HFCOMM_INLINE void announce_failure(const std::string& text) noexcept override;

  /// Hands the operation to the engine, by `launch(engine, stream)`.
  template <class Launch>
  void put(on_stream how, device_memory memory, Launch&& launch) {
    if (watched_ != nullptr) [[unlikely]] {
      put_watched(how.stream, memory, [&] { launch(engine_, how.stream); });
      return;
    }
    is_put_ = true;  // from here on the engine reports failures
    launch(engine_, how.stream);
  }
  template <class Launch>
  [[nodiscard]] device_work put(on_own_stream how, device_memory memory, Launch&& launch) {
    const stream_ref own = own_stream_after(how.stream, memory);
    put(on_stream{own}, memory, launch);
    return work_on(own, memory, how.stream);
  }

 private:
  /// Returns the engine's own stream, which waits for the work already on `stream`.
  [[nodiscard]] stream_ref own_stream_after(stream_ref stream, device_memory memory);
  /// Returns a device_work that is done with the work already on `own`. It was started from `origin`.
  [[nodiscard]] device_work work_on(stream_ref own, device_memory memory, stream_ref origin);
  /// Does the same as `put` for a group with a device_watch.
  void put_watched(stream_ref stream, device_memory memory, const std::function<void()>& launch);
  /// Returns the number of the operation to wait for. For a message it is the last collective's, because a message has
  /// no number.
  [[nodiscard]] std::uint64_t waited_number() const;

  group_guard guard_;
  device_engine& engine_;
  watched_operations* watched_;  // null where the group has no device_watch
  bool is_put_ = false;
};

[[nodiscard]] inline device_memory memory_of(const_elements range) noexcept {
  return {range.data, range.count * range.width};
}

/// Returns a part that is the whole range, for one rank or from one rank.
[[nodiscard]] device_part message_part(const_elements range, int rank);
/// Returns a range's parts in rank order, `counts[r]` elements for rank r. Empty parts are left out.
[[nodiscard]] std::vector<device_part> device_parts(const_elements range, std::span<const std::size_t> counts);
/// Returns the whole range as one part, or no part for an empty range.
[[nodiscard]] std::vector<device_part> device_parts(const_elements range, int rank);

}  // namespace hfcomm::detail
