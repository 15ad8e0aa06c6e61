// SPDX-License-Identifier: MIT
#pragma once

#include <utility>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/device/device_work.hpp>
#include <hfcomm/machine/bounded_call.hpp>

namespace hfcomm {

HFCOMM_INLINE device_work::device_work(std::shared_ptr<engines::device_engine> engine,
                                       engines::device_engine::event_handle event, stream_ref origin,
                                       const engines::operation& call, std::uint64_t number) noexcept
    : engine_(std::move(engine)), event_(event), origin_(origin), call_(call), number_(number) {}

HFCOMM_INLINE device_work::device_work(device_work&& other) noexcept
    : engine_(std::move(other.engine_)),
      event_(std::exchange(other.event_, nullptr)),
      origin_(other.origin_),
      call_(other.call_),
      number_(other.number_),
      has_waited_(other.has_waited_) {}

HFCOMM_INLINE device_work& device_work::operator=(device_work&& other) noexcept {
  if (this != &other) {
    drop();
    engine_ = std::move(other.engine_);
    event_ = std::exchange(other.event_, nullptr);
    origin_ = other.origin_;
    call_ = other.call_;
    number_ = other.number_;
    has_waited_ = other.has_waited_;
  }
  return *this;
}

HFCOMM_INLINE device_work::~device_work() { drop(); }

HFCOMM_INLINE void device_work::wait(stream_ref stream) {
  engine().wait_for_event(call_, event_, stream);
  has_waited_ = true;
}

HFCOMM_INLINE bool device_work::done() const { return engine().is_reached(call_, {event_, origin_}); }

HFCOMM_INLINE void device_work::synchronize() {
  (void)engine().wait_for(call_, number_, {event_, origin_}, {});
  has_waited_ = true;
}

HFCOMM_INLINE bool device_work::synchronize(std::chrono::nanoseconds limit) {
  if (limit <= std::chrono::nanoseconds::zero()) {
    return done();
  }
  const bool reached = engine().wait_for(call_, number_, {event_, origin_}, limit);
  has_waited_ = has_waited_ || reached;
  return reached;
}

HFCOMM_INLINE engines::device_engine& device_work::engine() const {
  if (event_ == nullptr) {
    detail::throw_error<usage_error>({"this work was moved from"});
  }
  return *engine_;
}

HFCOMM_INLINE void device_work::drop() noexcept {
  if (event_ == nullptr) {
    return;
  }
  if (!has_waited_ && !engines::process_end::begun()) {
    try {
      engine_->wait_for_event(call_, event_, origin_);
    } catch (const error&) {
      // CUDA fails or is gone, so no stream can wait.
    }
  }
  engine_->release_event(std::exchange(event_, nullptr));
  engine_.reset();
}

}  // namespace hfcomm
