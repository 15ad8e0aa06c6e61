// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/call/uneven.hpp>
#include <hfcomm/core/device_span.hpp>
#include <hfcomm/core/stream_ref.hpp>
#include <hfcomm/device/device_work.hpp>
#include <hfcomm/engine/device_engine.hpp>

/// What the device forms of the collectives have in common.
namespace hfcomm::detail {

/// An engine that is not connected. Throws usage_error where the program has none, engine_error where the machine has
/// no libraries.
inline std::shared_ptr<device_engine> make_device_engine(const process_group& group, const operation& call) {
  const auto make = device_engines().load();
  if (make == nullptr) {
    throw usage_error(context_of(group, call),
                      "this program was compiled without the device plane: include <hfcomm/nccl.hpp>, for which the "
                      "compiler must find nccl.h and cuda_runtime_api.h (with Meson: the option nccl)");
  }
  try {
    return make(group_access::shared_engine(group), call);
  } catch (const engine_error& problem) {
    throw engine_error(context_of(group, call), problem.detail());
  }
}

/// Makes the group's device engine, if it has none, and connects it on the current device.
inline void connect_device(const process_group& group, std::source_location where) {
  operation call{.name = "connect_device", .where = where};
  running_call running(group, call);
  auto& state = group_access::state(group);
  auto engine = state.devices;
  if (!engine) {
    running.attempt("it has no device plane: ", [&] { engine = make_device_engine(group, call); });
  }
  (void)running.engine();
  engine->connect(call);
  if (!state.devices) {
    state.devices = std::move(engine);
    state.has_devices.store(true);
  }
}

inline void connect_device_once(const process_group& group, std::source_location where) {
  if (!group_access::state(group).has_devices.load(std::memory_order_acquire)) [[unlikely]] {
    connect_device(group, where);
  }
}

/// With device checks: the ranks meet on the host, and compare what they are about to put on their devices.
inline void compare_device_calls(const process_group& group, operation call, const uneven_parts* parts) {
  call.pattern = parts == nullptr ? movement::none : call.pattern;
  call.content = parts == nullptr ? call.content : payload::uneven;
  running_call running(group, call);
  no_receiver nothing;
  if (parts == nullptr) {
    running.engine().exchange(call, {}, nothing);
    return;
  }
  parts->require(running, group.rank(), group.size());
  std::vector<std::span<const std::byte>> outgoing;
  std::vector<std::uint64_t> expected;
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(group.size()); ++rank) {
    outgoing.emplace_back(static_cast<const std::byte*>(nullptr), parts->sent[rank] * parts->width);  // never read
    expected.push_back(parts->expected[rank] * parts->width);
  }
  running.engine().deal(call, {.outgoing = outgoing, .expected = expected, .lengths_alone = true}, nothing);
}

/// What comes before a device operation.
struct device_preparation {
  device_preparation(const process_group& group, const operation& call, const uneven_parts* parts) {
    connect_device_once(group, call.where);
    if (group.checks_devices() && call.pattern != movement::send && call.pattern != movement::receive) [[unlikely]] {
      compare_device_calls(group, call, parts);
    }
  }
};

/// Where a device operation goes: onto the caller's stream,
struct on_stream {
  stream_ref stream;
};
/// or onto the engine's own, behind what is on the caller's.
struct on_own_stream {
  stream_ref stream;
};

/// One device operation on one group: the counterpart of running_call. Where an exception ends the call before the
/// engine has it, the destructor shows that to the other ranks.
class running_device_call {
 public:
  /// `parts` where the ranks' parts may be of different lengths.
  running_device_call(const process_group& group, operation& call, const uneven_parts* parts = nullptr)
      : group_(group),
        call_(call),
        prepared_(group, call, parts),
        guard_(group, call),
        engine_(*group_access::state(group).devices) {
    call_.timeout = group.timeout();
    number_ = engine_.begin(call_);
    if (group_access::state(group).has_deferred.load(std::memory_order_relaxed)) [[unlikely]] {
      fail_with_deferred();
    }
  }
  running_device_call(const running_device_call&) = delete;
  running_device_call& operator=(const running_device_call&) = delete;
  ~running_device_call() {
    if (!put_) {
      engine_.refuse(number_, "an exception ended its part before that began");
    }
  }

  [[nodiscard]] error_context context() const {
    return {group_.rank(), group_.size(), engines::call_name(call_), number_, call_.where};
  }
  /// Throws usage_error, and shows it to the others, unless `condition` holds.
  template <class Text>
  void require(bool condition, Text&& text) {
    if (!condition) [[unlikely]] {
      fail(text());
    }
  }
  void require_root() {
    require(call_.root >= 0 && call_.root < group_.size(),
            [this] { return engines::no_such_rank("root", call_.root, group_.size()); });
  }

  /// `launch(engine, stream)` hands the operation to the engine.
  template <class Launch>
  void put(on_stream how, device_memory memory, Launch&& launch) {
    if (auto* notes = engine_.watched(); notes != nullptr) [[unlikely]] {
      put_noted(*notes, how.stream, memory, launch);
      return;
    }
    put_ = true;  // from here on its failures are the engine's to tell
    launch(engine_, how.stream);
  }
  template <class Launch>
  [[nodiscard]] device_work put(on_own_stream how, device_memory memory, Launch&& launch) {
    require(!engine_.in_batch(),
            [] { return "inside an nccl_group_scope nothing is started on another stream; start it outside"; });
    const stream_ref own = engine_.fork(call_, memory, how.stream);
    put(on_stream{own}, memory, launch);
    return device_work(group_access::state(group_).devices, engine_.mark(call_, memory, own), how.stream, call_,
                       waited_number());
  }

 private:
  // Out of the way of what costs every operation time.
  [[noreturn]] __attribute__((cold, noinline)) void fail(const std::string& why) {
    put_ = true;
    engine_.refuse(number_, why);
    throw usage_error(context(), why);
  }

  /// A message has no number; what comes before it in the group's order must come, too.
  [[nodiscard]] std::uint64_t waited_number() const { return number_ != 0 ? number_ : engine_.sequence(); }

  template <class Launch>
  void put_noted(device_notes& notes, stream_ref stream, device_memory memory, Launch& launch) {
    // In a batch it begins later, in a graph it does not begin here.
    if (engine_.in_batch() || engine_.capturing(call_, stream)) {
      put_ = true;
      launch(engine_, stream);
      return;
    }
    // Noted before, since the call itself may wait for a rank, where NCCL has not connected the two before.
    const auto note = notes.add(engine_.mark(call_, memory, stream), call_, waited_number());
    put_ = true;
    try {
      launch(engine_, stream);
      note->end.store(engine_.mark(call_, memory, stream));
    } catch (...) {
      note->over.store(true);
      throw;
    }
  }

  /// Throws what a destructor of this rank could not.
  void fail_with_deferred() {
    const std::exception_ptr problem = group_access::state(group_).take_deferred();
    if (problem) {
      try {
        std::rethrow_exception(problem);
      } catch (...) {
        engine_.refuse(number_, "an earlier operation of this rank failed: " + current_exception_text());
        put_ = true;
        throw;
      }
    }
  }

  const process_group& group_;
  operation& call_;
  device_preparation prepared_;
  group_guard guard_;
  device_engine& engine_;
  std::uint64_t number_ = 0;
  bool put_ = false;
};

/// A device range's bytes, for what only compares addresses.
template <class T>
std::span<const std::byte> device_bytes(device_span<T> range) {
  return {reinterpret_cast<const std::byte*>(range.data()), range.size_bytes()};
}

template <class T>
device_memory memory_of(device_span<T> range) {
  return {range.data(), range.size_bytes()};
}

/// All of a range, for or from one rank.
template <class T>
device_part message_part(device_span<T> range, int rank) {
  return {rank, const_cast<std::byte*>(reinterpret_cast<const std::byte*>(range.data())), range.size_bytes()};
}

/// A range's parts, `bytes[r]` for each rank, one behind the other; none where there is nothing.
template <class T>
std::vector<device_part> device_parts(device_span<T> range, std::span<const std::size_t> bytes) {
  std::byte* place = message_part(range, 0).data;
  std::vector<device_part> parts;
  parts.reserve(bytes.size());
  for (std::size_t rank = 0; rank < bytes.size(); ++rank) {
    if (bytes[rank] != 0) {
      parts.push_back({static_cast<int>(rank), place, bytes[rank]});
      place += bytes[rank];
    }
  }
  return parts;
}
/// All of a range, as one part, or none where there is nothing.
template <class T>
std::vector<device_part> device_parts(device_span<T> range, int rank) {
  if (range.empty()) {
    return {};
  }
  return {message_part(range, rank)};
}

template <class T>
void require_device_memory(running_device_call& running, device_span<T> range) {
  running.require(range.empty() || range.data() != nullptr,
                  [&] { return "a buffer of " + std::to_string(range.size()) + " elements is at address 0"; });
}

}  // namespace hfcomm::detail
