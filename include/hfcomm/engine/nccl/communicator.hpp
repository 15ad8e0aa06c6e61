// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <hfcomm/core/nccl_options.hpp>
#include <hfcomm/cuda/nccl_api.hpp>
#include <hfcomm/cuda/runtime_api.hpp>
#include <hfcomm/cuda/teardown.hpp>
#include <hfcomm/engine/call_text.hpp>
#include <hfcomm/engine/device/device_plane.hpp>
#include <hfcomm/engine/nccl/agreement.hpp>
#include <hfcomm/engine/nccl/batch.hpp>
#include <hfcomm/engine/nccl/first_operation.hpp>
#include <hfcomm/engine/nccl/registered_memory.hpp>
#include <hfcomm/engine/nccl/types.hpp>
#include <hfcomm/machine/bounded_call.hpp>

namespace hfcomm::engines {

/// A group's NCCL communicator on one device.
///
/// It is made by two: NCCL gives a deadline only to what it does for a non-blocking communicator, but starts a thread
/// for every single call on such a one. So the ranks meet in a non-blocking one, which can be polled, given up and
/// aborted while it is being made, and split off a blocking one of the same ranks, in which operations cost what they
/// cost in NCCL. The first one stays, for subgroups to be split from.
class nccl_communicator {
 public:
  /// Collective over `host`: either all ranks get one, or all throw, the group staying usable where no rank was lost.
  /// Null where all have one already, which is what `again` says. A rank that has a `problem` already gives it.
  static std::unique_ptr<nccl_communicator> open(const cuda::runtime_api& cuda, const cuda::nccl_api& nccl,
                                                 host_engine& host, const operation& call, int device, bool again,
                                                 const std::string& problem) {
    const nccl_agreement ranks(host, call);
    if (ranks.greet(cuda, nccl, device, again, problem)) {
      return nullptr;
    }
    const ncclUniqueId id = ranks.share_id(nccl);
    // NOLINTNEXTLINE(*make-unique*): the constructor is private
    std::unique_ptr<nccl_communicator> made(new nccl_communicator(cuda, nccl, device));
    ranks.together([&] { made->abandon(); },
                   [&] {
                     const maker make(*made, host, host, call);
                     make.meet(id);
                     make.split_off();
                     make.warm_up();
                   });
    return made;
  }

  /// A communicator of some of these ranks, which give the same `color`, one of their ranks in this group: those of the
  /// group that `part` carries; a rank without one gives null and gets null. One that has a `problem` already gives it.
  /// Collective over `host`, this one's host plane.
  std::unique_ptr<nccl_communicator> split(host_engine& host, const operation& call, host_engine* part, int color,
                                           const char* problem) {
    // NOLINTNEXTLINE(*make-unique*): the constructor is private
    std::unique_ptr<nccl_communicator> made(new nccl_communicator(cuda_, nccl_, device_));
    if (spoiled_) {  // on all ranks or on none
      meet_again(host, call);
    }
    spoiled_ = true;
    nccl_agreement(host, call)
        .together([&] { made->abandon(); },
                  [&] {
                    if (*problem != '\0') {
                      throw engine_error(nccl_agreement(host, call).context(), problem);
                    }
                    const maker make(*made, host, part != nullptr ? *part : host, call);
                    // A rank of no group gets one of its own: NCCL_SPLIT_NOCOLOR, where another rank fails, is a null
                    // pointer that NCCL (2.30 still) writes through.
                    make.part_from(*this, part != nullptr ? color : host.rank());
                    if (part != nullptr) {
                      make.split_off();
                      make.warm_up();
                    }
                  });
    spoiled_ = false;
    if (part == nullptr) {
      made->destroy();
      return nullptr;
    }
    return made;
  }

  /// Memory that this communicator knows. Collective over `host`; all ranks bring the same number of `bytes`. A rank
  /// that has a `problem` already gives it. Where NCCL's part, in which the ranks wait for each other, fails on one,
  /// `lose()` gives the communicator up on all.
  template <class Lose>
  std::shared_ptr<std::byte> allocate(host_engine& host, const operation& call, std::size_t bytes,
                                      const std::string& problem, Lose&& lose) {
    const nccl_agreement ranks(host, call, "the memory could not be had");
    std::shared_ptr<registered_memory> made;
    ranks.together([] {},
                   [&] {
                     if (!problem.empty()) {
                       throw engine_error(ranks.context(), problem);
                     }
                     const cuda::device_guard here(cuda_, device_);
                     made = std::make_shared<registered_memory>(cuda_, &nccl_, device_, bytes, call.where);
                   });
    if (bytes == 0) {
      return nullptr;
    }
    const auto known = std::make_shared<nccl_registration>(nccl_, operations_.load());
    made->known_as(known);
    {
      const std::scoped_lock lock(mutex_);
      std::erase_if(registrations_, [](const auto& one) { return one->ended(); });
      registrations_.push_back(known);
    }
    ranks.together([&] { lose(); },
                   [&] {
                     // On a thread that nobody misses: only aborting the communicator ends a call that waits in vain.
                     const auto result = std::make_shared<std::atomic<ncclResult_t>>(ncclInternalError);
                     const bool ended = run_watched(
                         call.timeout,
                         [&cuda = cuda_, device = device_, known, made, bytes, result] {
                           const cuda::thread_on_device here(cuda, device);
                           result->store(known->begin(made->data(), bytes));
                         },
                         [&] { host.health().check_device_operation(ranks.context(), 0); });
                     if (!ended) {
                       throw timeout_error(
                           ranks.context(),
                           "ncclCommWindowRegister has not ended within " + format_duration(call.timeout), {});
                     }
                     if (result->load() != ncclSuccess) {
                       throw engine_error(ranks.context(), "registering it: " + nccl_text(nccl_, result->load()));
                     }
                   });
    return registered_memory::bytes_of(std::move(made));
  }

  nccl_communicator(const nccl_communicator&) = delete;
  nccl_communicator& operator=(const nccl_communicator&) = delete;
  ~nccl_communicator() = default;

  [[nodiscard]] ncclComm_t get() const noexcept { return operations_; }
  [[nodiscard]] int device() const noexcept { return device_; }
  /// One element, for operations whose data does not matter.
  [[nodiscard]] void* nothing() const noexcept { return nothing_; }

  /// Frees what waits on the device. The communicator is not taken from under a thread that uses it: one that has calls
  /// held back will notice, and have them forgotten; one that is inside a call is given time to return, but where it
  /// does not, this is what it waits for. Bounded; the second time it does nothing.
  void abort(shared_whereabouts thread = nullptr) noexcept {
    end_with("aborting an NCCL communicator", &nccl_registration::forget,
             [thread = std::move(thread), grace = default_nccl_options().teardown_timeout / 2](
                 const cuda::nccl_api& nccl, ncclComm_t one) {
               const auto give_up = std::chrono::steady_clock::now() + grace;
               for (auto where = whereabouts::outside; thread && (where = thread->load()) != whereabouts::outside;) {
                 if (where == whereabouts::calling && std::chrono::steady_clock::now() >= give_up) {
                   break;
                 }
                 std::this_thread::sleep_for(std::chrono::milliseconds(1));
               }
               (void)nccl.ncclCommAbort(one);
             });
  }
  /// The same for one that is still being made.
  void abandon() noexcept {
    auto nowhere = whereabouts::outside;
    const bool inside = helper_ && !helper_->compare_exchange_strong(nowhere, whereabouts::cancelled);
    abort(inside ? helper_ : nullptr);
  }
  /// Lets what is under way end first. Bounded.
  void destroy() noexcept {
    end_with("destroying an NCCL communicator", &nccl_registration::end,
             [](const cuda::nccl_api& nccl, ncclComm_t one) { (void)nccl.ncclCommDestroy(one); });
  }

  /// Polls until NCCL has an answer. `look()` may throw, every few milliseconds.
  template <class Look>
  ncclResult_t settle(ncclComm_t one, std::chrono::nanoseconds timeout, const error_context& context,
                      std::string_view what, Look&& look) const {
    using clock = std::chrono::steady_clock;
    const auto start = clock::now();
    auto next_look = start;
    auto nap = std::chrono::microseconds(20);
    while (true) {
      ncclResult_t state = ncclInternalError;
      if (const auto asked = nccl_.ncclCommGetAsyncError(one, &state); asked != ncclSuccess) {
        return asked;
      }
      if (state != ncclInProgress) {
        return state;
      }
      const auto now = clock::now();
      if (now >= next_look) {
        look();
        next_look = now + std::chrono::milliseconds(5);
      }
      if (timeout > std::chrono::nanoseconds::zero() && now - start >= timeout) {
        throw timeout_error(context, std::string(what) + " has not ended within " + format_duration(timeout), {});
      }
      std::this_thread::sleep_for(nap);
      nap = std::min<std::chrono::microseconds>(nap * 2, std::chrono::microseconds(1000));
    }
  }

 private:
  nccl_communicator(const cuda::runtime_api& cuda, const cuda::nccl_api& nccl, int device)
      : cuda_(cuda), nccl_(nccl), device_(device) {}

  /// The steps of making one.
  class maker {
   public:
    /// `host` is watched; `part` says which rank of how many this one is.
    maker(nccl_communicator& made, host_engine& host, host_engine& part, const operation& call)
        : made_(made),
          host_(host),
          part_(part),
          call_(call),
          context_(nccl_agreement(host, call).context()),
          here_(made.cuda_, made.device_),
          apart_(made.cuda_) {}

    void meet(const ncclUniqueId& id) const {
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      ncclComm_t met = nullptr;
      const ncclResult_t begun = nccl().ncclCommInitRankConfig(&met, part_.size(), id, part_.rank(), &config);
      made_.meeting_ = met;
      require(begun, met, "ncclCommInitRankConfig");
    }

    void part_from(nccl_communicator& parent, int color) const {
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      made_.meeting_ = split(parent, color, config);
    }

    void split_off() const {
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 1;
      const ncclComm_t child = split(made_, 0, config);
      made_.operations_ = child;
      int rank = -1;
      int size = 0;
      require(nccl().ncclCommUserRank(child, &rank), child, "ncclCommUserRank");
      require(nccl().ncclCommCount(child, &size), child, "ncclCommCount");
      if (rank != part_.rank() || size != part_.size()) {
        throw engine_error(context_, "NCCL made it rank " + std::to_string(rank) + " of " + std::to_string(size));
      }
      void* nothing = nullptr;
      made_.cuda_.check(made_.cuda_.cudaMalloc(&nothing, 16), "cudaMalloc", call_.where);
      made_.nothing_ = nothing;
    }

    void warm_up() const {
      made_.helper_ = std::make_shared<std::atomic<whereabouts>>(whereabouts::outside);
      nccl_first_operation(made_.cuda_, nccl(), made_.device_, made_.operations_, made_.nothing_)
          .run(made_.helper_, host_, call_, context_);
    }

   private:
    [[nodiscard]] const cuda::nccl_api& nccl() const noexcept { return made_.nccl_; }

    [[nodiscard]] ncclComm_t split(nccl_communicator& parent, int color, ncclConfig_t& config) const {
      // NCCL writes to it later, and where it fails, too: it must last as long as what is split.
      const auto child = std::make_shared<ncclComm_t>(nullptr);
      (void)parent.exchange_splitting(child);
      const ncclComm_t from = parent.meeting_;
      require(nccl().ncclCommSplit(from, color, part_.rank(), child.get(), &config), from, "ncclCommSplit");
      (void)parent.exchange_splitting(nullptr);
      return *child;
    }

    void require(ncclResult_t result, ncclComm_t polled, const char* what) const {
      if (result == ncclInProgress) {
        result = made_.settle(polled, call_.timeout, context_, what,
                              [&] { host_.health().check_device_operation(context_, 0); });
      }
      if (result != ncclSuccess) {
        throw engine_error(context_, std::string(what) + ": " + nccl_text(nccl(), result));
      }
    }

    nccl_communicator& made_;
    host_engine& host_;
    host_engine& part_;
    const operation& call_;
    error_context context_;
    cuda::device_guard here_;
    cuda::relaxed_capture apart_;
  };

  /// After a split that failed, the communicator to split from is busy with it for ever: another one.
  void meet_again(host_engine& host, const operation& call) {
    const auto give_up = [this] {
      if (const ncclComm_t old = meeting_.exchange(nullptr); old != nullptr) {
        tear_down(cuda_, device_, "aborting an NCCL communicator",
                  [&nccl = nccl_, old, splitting = exchange_splitting(nullptr)] {
                    (void)nccl.ncclCommAbort(old);
                    abort_child(nccl, splitting);
                  });
      }
    };
    const nccl_agreement ranks(host, call);
    const ncclUniqueId id = ranks.share_id(nccl_);
    ranks.together(give_up, [&] {
      give_up();
      maker(*this, host, host, call).meet(id);
    });
  }

  std::shared_ptr<ncclComm_t> exchange_splitting(std::shared_ptr<ncclComm_t> value) noexcept {
    const std::scoped_lock lock(mutex_);  // a watch may abort this meanwhile
    return std::exchange(splitting_, std::move(value));
  }

  /// What a failed split has left. After its parent, which points to it.
  static void abort_child(const cuda::nccl_api& nccl, const std::shared_ptr<ncclComm_t>& splitting) noexcept {
    if (splitting && *splitting != nullptr) {
      (void)nccl.ncclCommAbort(*splitting);
    }
  }

  template <class End>
  void end_with(const char* what, void (nccl_registration::*unregister)() noexcept, const End& end) noexcept {
    const ncclComm_t operations = operations_.exchange(nullptr);
    const ncclComm_t meeting = meeting_.exchange(nullptr);
    void* const nothing = nothing_.exchange(nullptr);
    if (operations == nullptr && meeting == nullptr) {
      return;
    }
    std::vector<std::shared_ptr<nccl_registration>> registrations;
    {
      const std::scoped_lock lock(mutex_);
      registrations.swap(registrations_);
    }
    tear_down(cuda_, device_, what,
              [&cuda = cuda_, &nccl = nccl_, operations, meeting, nothing, end, unregister, spoiled = spoiled_.load(),
               splitting = exchange_splitting(nullptr), registrations = std::move(registrations)] {
                if (unregister == &nccl_registration::end && !registrations.empty()) {
                  (void)cuda.cudaDeviceSynchronize();  // unregistering unmaps what operations may be at work on
                }
                for (const auto& one : registrations) {
                  std::invoke(unregister, *one);
                }
                if (operations != nullptr) {
                  end(nccl, operations);
                }
                if (meeting != nullptr) {
                  spoiled ? void(nccl.ncclCommAbort(meeting)) : end(nccl, meeting);
                }
                abort_child(nccl, splitting);
                (void)cuda.cudaFree(nothing);
              });
  }

  const cuda::runtime_api& cuda_;
  const cuda::nccl_api& nccl_;
  int device_;
  std::atomic<ncclComm_t> meeting_{nullptr};
  std::atomic<ncclComm_t> operations_{nullptr};
  std::atomic<void*> nothing_{nullptr};
  std::shared_ptr<ncclComm_t> splitting_;  // what a split that is under way, or was given up, makes
  shared_whereabouts helper_;              // of the thread of the first operation
  std::mutex mutex_;
  std::vector<std::shared_ptr<nccl_registration>> registrations_;
  /// A split of `meeting_` was given up, and may still be under way: only an abort ends it.
  std::atomic<bool> spoiled_{false};
};

}  // namespace hfcomm::engines
