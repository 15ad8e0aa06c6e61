// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <string>
#include <utility>

#include <hfcomm/core/config.hpp>
#include <hfcomm/device/detail/device_call.hpp>
#include <hfcomm/device/detail/watched_operations.hpp>
#include <hfcomm/group/detail/group_state.hpp>

namespace hfcomm::detail {

HFCOMM_INLINE std::shared_ptr<device_engine> make_device_engine(const process_group& group, const operation& call) {
  const auto make = device_engines().load();
  if (make == nullptr) {
    throw_error<usage_error>(
        context_of(group, call),
        {"this program was compiled without the device plane: include <hfcomm/nccl.hpp>, for which the "
         "compiler must find nccl.h and cuda_runtime_api.h (with Meson: the option nccl)"});
  }
  try {
    return make(group_access::shared_engine(group), call);
  } catch (const engine_error& problem) {
    throw_error<engine_error>(context_of(group, call), {problem.detail()});
  }
}

HFCOMM_INLINE void connect_device_engine(const process_group& group, std::source_location where) {
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

HFCOMM_INLINE void connect_device_once(const process_group& group, std::source_location where) {
  if (!group_access::state(group).has_devices.load(std::memory_order_acquire)) [[unlikely]] {
    connect_device_engine(group, where);
  }
}

HFCOMM_INLINE void part_lengths::require(checked_call& running) const {
  if (has_list_) {
    require_sum(running, counts_, length_, what_);
  }
}

HFCOMM_INLINE void uneven_parts::require(checked_call& running) const {
  sent.require(running);
  expected.require(running);
  if (has_own) {
    const auto own = static_cast<std::size_t>(running.rank());
    require_own(running, sent[own], expected[own]);
  }
}

/// Compares the ranks' calls over the host plane, for groups with device checks.
HFCOMM_INLINE void compare_device_calls(const process_group& group, operation call, const uneven_parts* parts) {
  call.pattern = parts == nullptr ? movement::none : call.pattern;
  call.content = parts == nullptr ? call.content : payload::uneven;
  running_call running(group, call);
  if (parts == nullptr) {
    running.exchange_nothing();
    return;
  }
  parts->require(running);
  std::vector<std::span<const std::byte>> outgoing;
  std::vector<std::uint64_t> expected;
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(group.size()); ++rank) {
    outgoing.emplace_back(static_cast<const std::byte*>(nullptr), parts->sent[rank] * parts->width);  // never read
    expected.push_back(parts->expected[rank] * parts->width);
  }
  no_receiver nothing;
  running.engine().all_to_all_v(call, {.outgoing = outgoing, .expected = expected, .lengths_only = true}, nothing);
}

/// Connects the group, and compares the ranks' calls where the group has device checks. Returns the group.
HFCOMM_INLINE const process_group& prepare_device_call(const process_group& group, const operation& call,
                                                       const uneven_parts* parts) {
  connect_device_once(group, call.where);
  if (group.checks_devices() && call.pattern != movement::send && call.pattern != movement::receive) [[unlikely]] {
    compare_device_calls(group, call, parts);
  }
  return group;  // NOLINT(bugprone-return-const-ref-from-parameter): the caller's, who keeps it
}

HFCOMM_INLINE running_device_call::running_device_call(const process_group& group, operation& call,
                                                       const uneven_parts* parts)
    : checked_call(prepare_device_call(group, call, parts), call),
      guard_(group, call),
      engine_(*group_access::state(group).devices),
      watched_(group_access::state(group).watched.load(std::memory_order_acquire)) {
  call_.timeout = group.timeout();
  number_ = engine_.begin(call_);
  if (group_access::state(group).has_deferred.load(std::memory_order_relaxed)) [[unlikely]] {
    throw_deferred();
  }
}

HFCOMM_INLINE running_device_call::~running_device_call() {
  if (!is_put_) {
    engine_.announce_failure(number_, "an exception ended its call before the operation began");
  }
}

HFCOMM_INLINE void running_device_call::announce_failure(const std::string& text) noexcept {
  is_put_ = true;
  engine_.announce_failure(number_, text);
}

HFCOMM_INLINE stream_ref running_device_call::own_stream_after(stream_ref stream, device_memory memory) {
  if (engine_.is_in_batch()) {
    refuse("inside an nccl_group_scope nothing is started on another stream; start it outside");
  }
  return engine_.own_stream_after(call_, memory, stream);
}

HFCOMM_INLINE device_work running_device_call::work_on(stream_ref own, device_memory memory, stream_ref origin) {
  return device_work(group_access::state(group_).devices, engine_.record_event(call_, memory, own), origin, call_,
                     waited_number());
}

HFCOMM_INLINE void running_device_call::put_watched(stream_ref stream, device_memory memory,
                                                    const std::function<void()>& launch) {
  // The operation begins later in a batch, and not at all in the capture of a graph.
  if (engine_.is_in_batch() || engine_.is_capturing(call_, stream)) {
    is_put_ = true;
    launch();
    return;
  }
  // Watched from before the call, because the call itself may wait for a rank that NCCL has not connected before.
  const auto watched = watched_->add(engine_.record_event(call_, memory, stream), call_, waited_number());
  is_put_ = true;
  try {
    launch();
    watched->end.store(engine_.record_event(call_, memory, stream));
  } catch (...) {
    watched->is_over.store(true);
    throw;
  }
}

HFCOMM_INLINE std::uint64_t running_device_call::waited_number() const {
  return number_ != 0 ? number_ : engine_.sequence();
}

HFCOMM_INLINE device_part message_part(const_elements range, int rank) {
  return {rank, const_cast<std::byte*>(range.data), range.count * range.width};
}

HFCOMM_INLINE std::vector<device_part> device_parts(const_elements range, std::span<const std::size_t> counts) {
  std::byte* place = message_part(range, 0).data;
  std::vector<device_part> parts;
  parts.reserve(counts.size());
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    if (counts[rank] != 0) {
      parts.push_back({static_cast<int>(rank), place, counts[rank] * range.width});
      place += counts[rank] * range.width;
    }
  }
  return parts;
}

HFCOMM_INLINE std::vector<device_part> device_parts(const_elements range, int rank) {
  if (range.count == 0) {
    return {};
  }
  return {message_part(range, rank)};
}

}  // namespace hfcomm::detail
