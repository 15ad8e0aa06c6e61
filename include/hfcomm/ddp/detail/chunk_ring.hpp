// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <vector>

#include <hfcomm/call/announce_failure.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/core/function_ref.hpp>
#include <hfcomm/core/shared_buffer.hpp>
#include <hfcomm/core/stream_ref.hpp>
#include <hfcomm/engine/call_text.hpp>
#include <hfcomm/engine/device_copies.hpp>
#include <hfcomm/engine/group_health.hpp>
#include <hfcomm/group/detail/group_state.hpp>
#include <hfcomm/group/process_group.hpp>
#include <hfcomm/machine/waiting.hpp>

namespace hfcomm::detail {

/// A piece of device memory that goes through a chunk_ring. Where it does not go down, the host fills its place.
struct staged_part {
  std::span<std::byte> bytes;
  bool goes_down = true;
  bool goes_up = true;
};

/// A ring of chunks in the group's shared memory, page-locked, through which device memory goes to the host and back.
/// While the host works on a chunk, the next ones come down and those before go up.
///
/// One thread at a time calls; any thread may call `cancel`.
class chunk_ring {
 public:
  using event_handle = device_copies::event_handle;

  /// Bytes of a chunk. 2 MiB cross PCIe 4.0 x16 in some 80 us, so that putting a copy on a stream and waiting for the
  /// other ranks (some 10 us) take a small part of that. Chunks of 8 ranks, 16 MiB, still fit into the last cache.
  static constexpr std::size_t largest_chunk = std::size_t{2} << 20;
  /// One chunk that the host works on, two that come down, and one that goes up.
  static constexpr std::size_t least_slots = 4;
  static constexpr std::size_t chunks_ahead = 2;

  /// Makes a ring for `bytes` of device memory on the current device; for less than a chunk the chunks are smaller.
  /// Throws engine_error where CUDA fails or is not there, and std::bad_alloc. Not collective.
  chunk_ring(const process_group& group, std::size_t bytes, std::source_location where)
      : group_(group),
        copies_(make_copies({group.rank(), group.size(), "distributed_data_parallel", 0, where})),
        chunk_bytes_(std::clamp((bytes + unit - 1) / unit * unit, unit, largest_chunk)),
        begin_(copies_->make_event(where)),
        ends_{copies_->make_event(where), copies_->make_event(where)} {
    reserve(least_slots, where);
  }
  chunk_ring(const chunk_ring&) = delete;
  chunk_ring& operator=(const chunk_ring&) = delete;
  ~chunk_ring() = default;

  [[nodiscard]] device_copies& copies() noexcept { return *copies_; }
  [[nodiscard]] std::size_t chunk_bytes() const noexcept { return chunk_bytes_; }
  [[nodiscard]] std::size_t chunks_of(std::size_t bytes) const noexcept {
    return (bytes + chunk_bytes_ - 1) / chunk_bytes_;
  }

  /// Makes sure that the ring has `slots` slots for chunks.
  void reserve(std::size_t slots, std::source_location where) {
    if (slots <= slots_.size()) {
      return;
    }
    const std::size_t bytes = (slots - slots_.size()) * chunk_bytes_;
    // CUDA locks whole pages, so other memory must not lie in them.
    const auto memory = std::make_shared<shared_buffer<std::byte>>(group_.allocate<std::byte>(bytes + 2 * page_bytes));
    void* begin = memory->data();
    std::size_t space = memory->size();
    auto* const data = static_cast<std::byte*>(std::align(page_bytes, bytes, begin, space));
    copies_->register_memory(memory, {data, (bytes + page_bytes - 1) / page_bytes * page_bytes}, where);
    for (std::size_t offset = 0; offset < bytes; offset += chunk_bytes_) {
      slots_.push_back({data + offset, copies_->make_event(where)});
    }
  }

  /// The steps of a run with each chunk, besides the copies.
  struct steps {
    /// Fills the places of parts that do not go down.
    function_ref<void(std::span<std::byte>)> fill;
    /// Works on a chunk, together with the other ranks.
    function_ref<void(std::span<std::byte>)> exchange;
    /// Tells the other ranks of a failure of this one, between two exchanges.
    function_ref<void(const std::string&)> announce;
  };

  /// Brings the parts down one after the other, has each chunk exchanged, in order, and brings them up. The copies come
  /// after `ready`. Returns once the last copy up is on its stream. Throws what a step throws, and the errors of copies
  /// after they are announced. Then copies may still be under way, which the next run waits for.
  ///
  /// The chunks are in the slots that follow `first`, around the ring.
  void run(std::span<const staged_part> parts, event_handle ready, std::size_t first, const steps& what,
           std::source_location where) {
    const auto whole = merged(parts);
    const std::size_t total = length_of(whole);
    const std::size_t chunks = chunks_of(total);
    locally(what, [&] {
      settle(where);
      copies_->order(copies_->down(), ready, where);
      copies_->order(copies_->up(), ready, where);
    });
    is_settled_ = false;
    for (std::size_t turn = 0; turn < chunks + chunks_ahead; ++turn) {
      if (turn < chunks) {
        locally(what, [&] { bring_down(whole, turn, slot(first + turn), what, where); });
      }
      if (turn >= chunks_ahead) {
        const std::size_t index = turn - chunks_ahead;
        locally(what, [&] { wait_for(slot(first + index).last_copy, where); });
        what.exchange({slot(first + index).data, bytes_of(index, total)});
        locally(what, [&] { bring_up(whole, index, slot(first + index), where); });
      }
    }
    is_settled_ = true;
  }

  /// Does the same, from the first slot on, after the work that is on the stream by now. The work that follows on it
  /// comes after the copies.
  void run_after(stream_ref stream, std::span<const staged_part> parts, const steps& what, std::source_location where) {
    locally(what, [&] { copies_->record(begin_, stream, where); });
    run(parts, begin_, 0, what, where);
    locally(what, [&] { order_after_copies(stream, where); });
  }

  /// Brings the parts up whose chunks a run left in the slots that follow `first`.
  void bring_up(std::span<const staged_part> parts, std::size_t first, std::source_location where) {
    const auto whole = merged(parts);
    is_settled_ = false;
    for (std::size_t index = 0; index < chunks_of(length_of(whole)); ++index) {
      bring_up(whole, index, slot(first + index), where);
    }
    is_settled_ = true;
  }

  /// Makes the following work on the stream wait for all copies so far.
  void order_after_copies(stream_ref stream, std::source_location where) {
    record_ends(where);
    for (const event_handle end : ends_) {
      copies_->order(stream, end, where);
    }
  }

  /// Ends the waits of this rank's host for copies: they throw. Any thread may call.
  void cancel() noexcept { is_cancelled_.store(true); }

 private:
  struct ring_slot {
    std::byte* data;
    event_handle last_copy;  // from it or to it
  };

  static constexpr std::size_t unit = 256;                          // a multiple of every element's size
  static constexpr std::size_t page_bytes = std::size_t{64} << 10;  // the largest of Linux's usual ones

  [[nodiscard]] static std::unique_ptr<device_copies> make_copies(const error_context& context) {
    const auto make = device_copies_maker().load();
    if (make == nullptr) {
      throw_error<usage_error>(
          context, {"this program was compiled without the device plane: include <hfcomm/nccl.hpp>, for which the "
                    "compiler must find nccl.h and cuda_runtime_api.h (with Meson: the option nccl)"});
    }
    return make(context);
  }

  [[nodiscard]] error_context context(std::source_location where) const {
    return {group_.rank(), group_.size(), "distributed_data_parallel", 0, where};
  }
  [[nodiscard]] ring_slot& slot(std::size_t number) { return slots_[number % slots_.size()]; }
  [[nodiscard]] std::size_t bytes_of(std::size_t chunk, std::size_t total) const noexcept {
    return std::min(chunk_bytes_, total - chunk * chunk_bytes_);
  }

  /// Joins parts that are neighbours in the device's memory, and leaves out empty ones: fewer copies.
  [[nodiscard]] static std::vector<staged_part> merged(std::span<const staged_part> parts) {
    std::vector<staged_part> joined;
    for (const staged_part& one : parts) {
      if (one.bytes.empty()) {
        continue;
      }
      staged_part* const last = joined.empty() ? nullptr : &joined.back();
      if (last != nullptr && last->bytes.data() + last->bytes.size() == one.bytes.data() &&
          last->goes_down == one.goes_down && last->goes_up == one.goes_up) {
        last->bytes = {last->bytes.data(), last->bytes.size() + one.bytes.size()};
      } else {
        joined.push_back(one);
      }
    }
    return joined;
  }
  [[nodiscard]] static std::size_t length_of(std::span<const staged_part> parts) {
    std::size_t total = 0;
    for (const staged_part& one : parts) {
      total += one.bytes.size();
    }
    return total;
  }

  /// Calls `visit(part, bytes, offset)` for the bytes of each part that are in a chunk, `offset` being their place in
  /// it.
  template <class Visit>
  void visit_chunk(std::span<const staged_part> parts, std::size_t chunk, Visit visit) const {
    const std::size_t begin = chunk * chunk_bytes_;
    const std::size_t end = begin + chunk_bytes_;
    std::size_t offset = 0;
    for (const staged_part& one : parts) {
      const std::size_t from = std::max(begin, offset);
      const std::size_t to = std::min(end, offset + one.bytes.size());
      if (from < to) {
        visit(one, one.bytes.subspan(from - offset, to - from), from - begin);
      }
      offset += one.bytes.size();
    }
  }

  void bring_down(std::span<const staged_part> parts, std::size_t chunk, const ring_slot& to, const steps& what,
                  std::source_location where) {
    wait_for(to.last_copy, where);  // the host may write there, too
    visit_chunk(parts, chunk, [&](const staged_part& part, std::span<std::byte> bytes, std::size_t offset) {
      if (part.goes_down) {
        copies_->copy_down(bytes.data(), to.data + offset, bytes.size(), where);
      } else {
        what.fill({to.data + offset, bytes.size()});
      }
    });
    copies_->record(to.last_copy, copies_->down(), where);
  }

  void bring_up(std::span<const staged_part> parts, std::size_t chunk, const ring_slot& from,
                std::source_location where) {
    bool has_copied = false;
    visit_chunk(parts, chunk, [&](const staged_part& part, std::span<std::byte> bytes, std::size_t offset) {
      if (part.goes_up) {
        copies_->copy_up(from.data + offset, bytes.data(), bytes.size(), where);
        has_copied = true;
      }
    });
    if (has_copied) {
      copies_->record(from.last_copy, copies_->up(), where);
    }
  }

  /// Does a step that fails on this rank alone, of which the other ranks are told.
  template <class Step>
  static void locally(const steps& what, Step step) {
    try {
      step();
    } catch (...) {
      try {
        what.announce(current_exception_text());
      } catch (const error&) {
        // The group has a worse problem, which its next operation reports.
      }
      throw;
    }
  }

  void record_ends(std::source_location where) {
    copies_->record(ends_[0], copies_->down(), where);
    copies_->record(ends_[1], copies_->up(), where);
  }

  /// Waits for the copies of a run that failed: some of them may have no event.
  void settle(std::source_location where) {
    if (!is_settled_) {
      record_ends(where);
      wait_for(ends_[0], where);
      wait_for(ends_[1], where);
    }
  }

  /// Waits on the host until the event is reached. Throws the group's error where a rank is lost, timeout_error where
  /// the group's deadline has passed, and engine_error after `cancel`.
  void wait_for(event_handle event, std::source_location where) {
    running_time waited;
    const auto is_done = [&] {
      const bool is_reached = copies_->is_reached(event, where);
      if (!is_reached && is_cancelled_.load()) {
        throw_error<engine_error>(context(where),
                                  {"its gradients are not waited for any more: the object is being destroyed"});
      }
      return is_reached;
    };
    poll_until(is_done, [&] { check_group(waited.update(), where); });
  }

  void check_group(std::chrono::nanoseconds waited, std::source_location where) const {
    const auto& health = group_access::engine(group_).health();
    health.check_device_operation(context(where), 0);
    if (group_.timeout() > std::chrono::nanoseconds::zero() && waited >= group_.timeout()) {
      const std::string why = concat({"the copies of rank ", group_.rank(), " have not ended within ",
                                      engines::format_duration(group_.timeout()),
                                      " (timed out): the work before them on its device has not"});
      health.break_for_timeout(context(where), why, {});
      health.check_device_operation(context(where), 0);
      throw_error<timeout_error>(context(where), {why}, std::vector<int>{});
    }
  }

  process_group group_;
  std::unique_ptr<device_copies> copies_;
  std::size_t chunk_bytes_;
  event_handle begin_;    // of a run, on the caller's stream
  event_handle ends_[2];  // of all copies down, and of all copies up
  std::vector<ring_slot> slots_;
  bool is_settled_ = true;  // every copy is before its slot's event
  std::atomic<bool> is_cancelled_{false};
};

}  // namespace hfcomm::detail
