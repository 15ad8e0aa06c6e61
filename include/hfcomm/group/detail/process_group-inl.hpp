// SPDX-License-Identifier: MIT
#pragma once

#include <cstdio>
#include <cstdlib>
#include <ostream>
#include <string_view>
#include <utility>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/or_group.hpp>
#include <hfcomm/engine/call_text.hpp>
#include <hfcomm/engine/group_health.hpp>
#include <hfcomm/engine/shared_memory/self_engine.hpp>
#include <hfcomm/group/detail/deferred_errors.hpp>
#include <hfcomm/group/detail/group_state.hpp>
#include <hfcomm/group/session.hpp>

namespace hfcomm {

namespace detail {

HFCOMM_INLINE const process_group& named_group(const process_group* first, const process_group* second,
                                               call_site where) {
  if (first == nullptr) {
    return second == nullptr ? world() : *second;
  }
  if (second != nullptr && !(*first == *second)) {
    throw_error<usage_error>({first->rank(), first->size(), "a call", 0, where},
                             {"it has two groups, one in the place of an argument that was left out: name one"});
  }
  return *first;
}

HFCOMM_INLINE bool device_checks_wanted() noexcept {
  static const bool wanted = [] {
    const char* value = std::getenv("HFCOMM_CHECK_DEVICE");
    return value != nullptr && std::string_view(value) == "1";
  }();
  return wanted;
}

HFCOMM_INLINE group_state::group_state(std::shared_ptr<host_engine> engine)
    : owned_engine_(std::move(engine)), engine_(owned_engine_.get()) {}

HFCOMM_INLINE group_state::~group_state() {
  devices.reset();  // while there is a host plane
  queue.reset();
  if (deferred) {
    deferred_error_sink::add(deferred);
  }
}

HFCOMM_INLINE host_engine& group_state::make_engine() {
  const std::scoped_lock lock(engine_mutex_);
  if (!owned_engine_) {
    owned_engine_ = std::make_shared<engines::self>();
    engine_.store(owned_engine_.get(), std::memory_order_release);
  }
  return *owned_engine_;
}

HFCOMM_INLINE std::exception_ptr group_state::take_deferred() {
  const std::scoped_lock lock(deferred_mutex);
  has_deferred.store(false);
  return std::exchange(deferred, nullptr);
}

HFCOMM_INLINE shared_bytes& group_state::objects() {
  return encoded ? *encoded : encoded.emplace(shared_allocator<std::byte>(engine().memory()));
}

HFCOMM_INLINE void group_state::trim_scratch() noexcept {
  if (scratch.capacity() > kept_scratch_bytes) [[unlikely]] {
    std::vector<std::byte>().swap(scratch);
  }
  if (encoded && encoded->capacity() > kept_scratch_bytes) [[unlikely]] {
    shared_bytes(encoded->get_allocator()).swap(*encoded);
  }
}

HFCOMM_INLINE error_context context_of(const process_group& group, const operation& call) {
  return {group.rank(), group.size(), engines::call_name(call), group_access::engine(group).sequence() + 1, call.where};
}

HFCOMM_INLINE void defer(const process_group& group, std::exception_ptr problem) noexcept {
  auto& state = group_access::state(group);
  const std::scoped_lock lock(state.deferred_mutex);
  state.deferred = state.deferred ? state.deferred : std::move(problem);
  state.has_deferred.store(true);
}

HFCOMM_INLINE deferred_error_sink::deferred_error_sink() noexcept : previous_(std::exchange(current(), this)) {}
HFCOMM_INLINE deferred_error_sink::~deferred_error_sink() { current() = previous_; }

HFCOMM_INLINE deferred_error_sink*& deferred_error_sink::current() noexcept {
  thread_local deferred_error_sink* here = nullptr;
  return here;
}

HFCOMM_INLINE void deferred_error_sink::add(const std::exception_ptr& problem) noexcept {
  if (auto* here = current(); here != nullptr) {
    here->first_ = here->first_ ? here->first_ : problem;
    return;
  }
  try {
    std::rethrow_exception(problem);
  } catch (const std::exception& unheard) {
    std::fprintf(stderr, "[hfcomm] an error that no operation was left to throw: %s\n", unheard.what());
  } catch (...) {
    std::fputs("[hfcomm] an exception that no operation was left to throw\n", stderr);
  }
}

HFCOMM_INLINE void deferred_error_sink::rethrow(const process_group& world) {
  const auto deferred = group_access::state(world).take_deferred();
  first_ = first_ ? first_ : deferred;
  if (first_) {
    std::rethrow_exception(first_);
  }
}

}  // namespace detail

HFCOMM_INLINE process_group::process_group()
    : state_(std::make_shared<detail::group_state>(nullptr)), checks_devices_(detail::device_checks_wanted()) {}

HFCOMM_INLINE process_group::process_group(std::shared_ptr<engines::host_engine> engine,
                                           std::chrono::nanoseconds timeout)
    : rank_(engine->rank()), size_(engine->size()), timeout_(timeout), checks_devices_(detail::device_checks_wanted()) {
  state_ = std::make_shared<detail::group_state>(std::move(engine));
}

HFCOMM_INLINE std::string_view process_group::host_backend() const noexcept {
  const engines::host_engine* const engine = state_->engine_if_made();
  return engine != nullptr ? engine->name() : "self";
}

HFCOMM_INLINE std::string_view process_group::device_backend() const noexcept {
  return state_->has_devices.load() ? state_->devices->name() : "none";
}

HFCOMM_INLINE bool process_group::broken() const noexcept {
  const engines::host_engine* const engine = state_->engine_if_made();
  return engine != nullptr && engine->health().is_broken();
}

HFCOMM_INLINE std::uint64_t process_group::sequence_number() const noexcept {
  const engines::host_engine* const engine = state_->engine_if_made();
  return engine != nullptr ? engine->sequence() : 0;
}

HFCOMM_INLINE std::shared_ptr<buffer_memory> process_group::shared_memory() const { return state_->engine().memory(); }

HFCOMM_INLINE std::ostream& operator<<(std::ostream& out, const process_group& group) {
  return out << "rank " << group.rank() << " of " << group.size() << " (" << group.host_backend() << ')';
}

}  // namespace hfcomm
