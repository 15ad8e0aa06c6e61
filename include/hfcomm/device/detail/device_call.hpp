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

#include <hfcomm/call/checks.hpp>
#include <hfcomm/core/device_span.hpp>
#include <hfcomm/core/stream_ref.hpp>
#include <hfcomm/device/device_work.hpp>
#include <hfcomm/engine/device_engine.hpp>
#include <hfcomm/group/detail/running_call.hpp>

/// What the device forms of the collectives have in common.
namespace hfcomm::detail {

class watched_operations;

/// Returns an engine that is not connected. Throws usage_error where the program has none, engine_error where the
/// machine has no libraries.
std::shared_ptr<device_engine> make_device_engine(const process_group& group, const operation& call);

/// Makes the group's device engine, if it has none, and connects it on the current device.
void connect_device_engine(const process_group& group, std::source_location where);
/// Does nothing where the group has been connected.
void connect_device_once(const process_group& group, std::source_location where);

/// The elements of a buffer's parts for, or from, each rank.
class part_lengths {
 public:
  /// As many for each.
  explicit part_lengths(std::size_t each) noexcept : each_(each) {}
  /// By a list, which must add up to the buffer's length; `what` is the buffer in words.
  part_lengths(std::span<const std::size_t> counts, std::size_t length, const char* what) noexcept
      : counts_(counts), length_(length), what_(what) {}

  [[nodiscard]] std::size_t operator[](std::size_t rank) const noexcept {
    return what_ != nullptr ? counts_[rank] : each_;
  }
  /// Throws usage_error where the list does not fit.
  void require(checked_call& running) const;

 private:
  std::size_t each_ = 0;
  std::span<const std::size_t> counts_{};
  std::size_t length_ = 0;
  const char* what_ = nullptr;
};

/// What a rank sends to each rank and expects from each, in elements of `width` bytes.
struct uneven_parts {
  part_lengths sent;
  part_lengths expected;
  std::size_t width;
  bool has_own = true;  ///< One of the parts is for this rank itself.

  /// Throws usage_error for what this rank can tell alone.
  void require(checked_call& running) const;
};

/// The caller's stream, for an operation that is put there.
struct on_stream {
  stream_ref stream;
};
/// The caller's stream, for an operation that is put on the engine's own, behind what is on the caller's by now.
struct on_own_stream {
  stream_ref stream;
};

/// One device operation on one group: the counterpart of running_call. Where an exception ends the call before the
/// engine has it, the destructor shows that to the other ranks.
class running_device_call final : public checked_call {
 public:
  /// Connects the group if it is not. `parts` where the ranks' parts may be of different lengths.
  running_device_call(const process_group& group, operation& call, const uneven_parts* parts = nullptr);
  running_device_call(const running_device_call&) = delete;
  running_device_call& operator=(const running_device_call&) = delete;
  ~running_device_call();

  void reject(const std::string& text) noexcept override;

  /// `launch(engine, stream)` hands the operation to the engine.
  template <class Launch>
  void put(on_stream how, device_memory memory, Launch&& launch) {
    if (watched_ != nullptr) [[unlikely]] {
      put_watched(how.stream, memory, [&] { launch(engine_, how.stream); });
      return;
    }
    put_ = true;  // from here on its failures are the engine's to tell
    launch(engine_, how.stream);
  }
  template <class Launch>
  [[nodiscard]] device_work put(on_own_stream how, device_memory memory, Launch&& launch) {
    const stream_ref own = own_stream_behind(how.stream, memory);
    put(on_stream{own}, memory, launch);
    return work_on(own, memory, how.stream);
  }

 private:
  /// Returns the engine's own stream, behind what is on `stream` by now.
  [[nodiscard]] stream_ref own_stream_behind(stream_ref stream, device_memory memory);
  /// Returns the work that ends with what is on `own` by now; it was started from `origin`.
  [[nodiscard]] device_work work_on(stream_ref own, device_memory memory, stream_ref origin);
  void put_watched(stream_ref stream, device_memory memory, const std::function<void()>& launch);
  /// A message has no number; what comes before it in the group's order must come, too.
  [[nodiscard]] std::uint64_t waited_number() const;

  group_guard guard_;
  device_engine& engine_;
  watched_operations* watched_;  // null where the group has no device_watch
  bool put_ = false;
};

template <class T>
[[nodiscard]] const_elements elements_of(device_span<const T> range) {
  return {reinterpret_cast<const std::byte*>(range.data()), range.size(), sizeof(T)};
}
template <class T>
  requires(!std::is_const_v<T>)
[[nodiscard]] elements elements_of(device_span<T> range) {
  return {reinterpret_cast<std::byte*>(range.data()), range.size(), sizeof(T)};
}

template <device_range R>
[[nodiscard]] auto device_elements(R&& range) {
  return elements_of(as_device_span(range));
}

[[nodiscard]] inline device_memory memory_of(const_elements range) noexcept {
  return {range.data, range.count * range.width};
}

/// All of a range, for or from one rank.
[[nodiscard]] device_part message_part(const_elements range, int rank);
/// A range's parts, `counts[r]` elements for each rank, one behind the other; none where there is nothing.
[[nodiscard]] std::vector<device_part> device_parts(const_elements range, std::span<const std::size_t> counts);
/// All of a range, as one part, or none where there is nothing.
[[nodiscard]] std::vector<device_part> device_parts(const_elements range, int rank);

}  // namespace hfcomm::detail
