// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

#include <hfcomm/core/error.hpp>
#include <hfcomm/core/stream_ref.hpp>
#include <hfcomm/engine/device_engine.hpp>
#include <hfcomm/machine/bounded_call.hpp>

namespace hfcomm {

/// A device operation that was started, on a stream of the group's own, and may still be under way. Its buffers must
/// stay, untouched by other streams, until a stream has been ordered behind it, or the host has waited.
///
/// Dropping a work that nobody waited for orders the stream that the operation was started from behind it, so that
/// stream must still exist then. Nothing blocks.
///
/// Thread-safety: one thread at a time for each work; different works from different threads.
class [[nodiscard]] device_work {
 public:
  device_work(std::shared_ptr<device_engine> engine, device_engine::event mark, stream_ref origin,
              const operation& call, std::uint64_t number) noexcept
      : engine_(std::move(engine)), mark_(mark), origin_(origin), call_(call), number_(number) {}
  /// What was moved from may be assigned to or dropped; everything else is a usage_error.
  device_work(device_work&& other) noexcept
      : engine_(std::move(other.engine_)),
        mark_(std::exchange(other.mark_, nullptr)),
        origin_(other.origin_),
        call_(other.call_),
        number_(other.number_),
        waited_(other.waited_) {}
  /// Drops what it had.
  device_work& operator=(device_work&& other) noexcept {
    if (this != &other) {
      drop();
      engine_ = std::move(other.engine_);
      mark_ = std::exchange(other.mark_, nullptr);
      origin_ = other.origin_;
      call_ = other.call_;
      number_ = other.number_;
      waited_ = other.waited_;
    }
    return *this;
  }
  ~device_work() { drop(); }

  /// What is put on `stream` from here on begins when the operation is done. Never blocks the host. (torch's
  /// `Work::wait`, which takes the current stream.)
  void wait(stream_ref stream) {
    engine().order(call_, mark_, stream);
    waited_ = true;
  }

  /// Whether it is done. Never blocks.
  [[nodiscard]] bool done() const { return engine().done(call_, {mark_, origin_}); }

  /// Blocks the host until it is done. Throws peer_error where a rank died, left, or refused its part, and
  /// timeout_error where the group's deadline, counted from here, passes; both free the device and break the group.
  void synchronize() {
    (void)engine().await(call_, number_, {mark_, origin_}, {});
    waited_ = true;
  }
  /// The same, but gives up waiting when `patience` is over: whether it is done. It goes on either way.
  [[nodiscard]] bool synchronize(std::chrono::nanoseconds patience) {
    if (patience <= std::chrono::nanoseconds::zero()) {
      return done();
    }
    const bool reached = engine().await(call_, number_, {mark_, origin_}, patience);
    waited_ = waited_ || reached;
    return reached;
  }

 private:
  [[nodiscard]] device_engine& engine() const {
    if (mark_ == nullptr) {
      throw usage_error({}, "this work was moved from");
    }
    return *engine_;
  }

  void drop() noexcept {
    if (mark_ == nullptr) {
      return;
    }
    if (!waited_ && !engines::process_end::begun()) {
      try {
        engine_->order(call_, mark_, origin_);
      } catch (const error&) {
        // CUDA is broken or gone: there is nothing left to order.
      }
    }
    engine_->release(std::exchange(mark_, nullptr));
    engine_.reset();
  }

  std::shared_ptr<device_engine> engine_;
  device_engine::event mark_;
  stream_ref origin_;
  operation call_;
  std::uint64_t number_;
  bool waited_ = false;
};

}  // namespace hfcomm
