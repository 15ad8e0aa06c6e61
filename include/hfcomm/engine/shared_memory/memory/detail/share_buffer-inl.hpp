// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdio>
#include <cstring>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/engine/shared_memory/memory/share_buffer.hpp>
#include <hfcomm/machine/fork_guard.hpp>
#include <hfcomm/machine/memory_map.hpp>
#include <hfcomm/machine/replace_pages.hpp>

namespace hfcomm::engines {

/// A replaced buffer, and what undoes it. Each step that was taken is undone by the destructor.
class buffer_replacement {
 public:
  /// Throws std::bad_alloc where the heap has no memory.
  buffer_replacement(std::shared_ptr<shared_ranges> ranges, std::shared_ptr<shared_heap> heap, replaced_buffer buffer)
      : ranges_(std::move(ranges)), heap_(std::move(heap)), buffer_(buffer) {
    buffer_.set_block(static_cast<std::byte*>(heap_->allocate(buffer_.heap_bytes(), layout::page_bytes())));
  }
  buffer_replacement(const buffer_replacement&) = delete;
  buffer_replacement& operator=(const buffer_replacement&) = delete;
  /// In the child of a fork this concerns the child's addresses only: the list and the heap are the parent's.
  ~buffer_replacement() {
    if (is_listed_ && creator_.in_creating_process()) {
      ranges_->remove(buffer_);
    }
    // The buffer keeps the heap's pages if there is no memory for private ones.
    if (!is_replaced_ || rendezvous::replace_by_private(buffer_.pages()) == 0) {
      heap_->deallocate(buffer_.block(), buffer_.heap_bytes(), layout::page_bytes());
    }
  }

  /// Returns why it cannot be done; empty: it is done.
  [[nodiscard, gnu::cold]] std::string replace() {
    is_listed_ = ranges_->add(buffer_);
    if (!is_listed_) {
      return "it overlaps other memory that is shared";
    }
    const int problem = rendezvous::replace_by_shared(buffer_.pages(), buffer_.pages_in_heap());
    is_replaced_ = problem == 0;
    return is_replaced_ ? std::string() : detail::concat({"mapping shared memory there: ", std::strerror(problem)});
  }

 private:
  std::shared_ptr<shared_ranges> ranges_;
  std::shared_ptr<shared_heap> heap_;
  replaced_buffer buffer_;
  rendezvous::fork_guard creator_;
  bool is_listed_ = false;
  bool is_replaced_ = false;
};

/// Shares one buffer; null where it has no whole page.
[[nodiscard]] inline std::shared_ptr<void> share_buffer(const std::shared_ptr<shared_ranges>& ranges,
                                                        const std::shared_ptr<shared_heap>& heap,
                                                        std::span<std::byte> buffer, rendezvous::memory_map& memory,
                                                        const error_context& context) {
  const auto refuse = [&](const std::string& why) {
    std::array<char, 24> place{};
    std::snprintf(place.data(), place.size(), "%#zx", reinterpret_cast<std::size_t>(buffer.data()));
    detail::throw_error<engine_error>(
        context, {buffer.size(), " bytes of memory at ", place.data(), " cannot be shared: ", why});
  };
  const replaced_buffer wanted(buffer);
  if (wanted.pages().empty()) {
    return nullptr;
  }
  if (const std::string problem = memory.replacement_problem(wanted.pages()); !problem.empty()) {
    refuse(problem);
  }
  std::shared_ptr<buffer_replacement> made;
  try {
    made = std::make_shared<buffer_replacement>(ranges, heap, wanted);
  } catch (const std::bad_alloc&) {
    refuse("the machine has no memory for its pages");
  }
  if (const std::string problem = made->replace(); !problem.empty()) {
    refuse(problem);
  }
  return made;
}

HFCOMM_INLINE std::shared_ptr<void> share_buffers(const std::shared_ptr<shared_ranges>& ranges,
                                                  const std::shared_ptr<shared_heap>& heap, bool spans_machines,
                                                  std::span<const std::span<std::byte>> buffers,
                                                  const error_context& context) {
  if (heap == nullptr) {
    detail::throw_error<engine_error>(
        context, {"memory cannot be shared: the group has no memory for it, because ",
                  spans_machines ? "its ranks are on several machines"
                                 : "a limit of this process (ulimit -v, ulimit -f) leaves no room"});
  }
  if (!heap->in_creating_process()) {
    detail::throw_error<usage_error>(context,
                                     {"this group was made before a fork; the child process is not a rank of it"});
  }
  rendezvous::memory_map memory;
  const auto all = std::make_shared<std::vector<std::shared_ptr<void>>>();
  for (const auto buffer : buffers) {
    if (auto one = share_buffer(ranges, heap, buffer, memory, context)) {
      all->push_back(std::move(one));
    }
  }
  return all->empty() ? nullptr : all;
}

}  // namespace hfcomm::engines
