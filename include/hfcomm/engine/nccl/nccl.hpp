// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <exception>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include <hfcomm/engine/device/device_plane.hpp>
#include <hfcomm/engine/nccl/batch.hpp>
#include <hfcomm/engine/nccl/communicators.hpp>
#include <hfcomm/engine/nccl/one_device.hpp>
#include <hfcomm/engine/nccl/reduction.hpp>

namespace hfcomm::engines {

/// Device memory through NCCL. One communicator for each device that `connect` was called on.
class nccl final : public device_plane {
 public:
  nccl(std::shared_ptr<host_engine> host, const cuda::runtime_api& cuda, const cuda::nccl_api& api)
      : device_plane(std::move(host), cuda), nccl_(api), exceptions_(std::uncaught_exceptions()) {}

  ~nccl() override {
    if (!creator_.in_creating_process() || process_end::begun()) {
      communicators_.release();
      return;
    }
    if (nccl_batch::holds(inside_)) {
      nccl_batch::discard(nccl_);
    }
    // With a rank lost, or this one on its way out, what is under way would never end.
    bool in_vain = is_broken_.load() || std::uncaught_exceptions() > exceptions_;
    try {
      host_->health().check_device_operation(context({.name = "connect_device"}, 0), sequence());
    } catch (...) {
      in_vain = true;
    }
    communicators_.end(in_vain);
  }

  [[nodiscard]] std::string_view name() const noexcept override { return "nccl"; }

  void connect(const operation& call) override {
    std::string problem = nccl_batch::problem();
    int device = 0;
    bool again = false;
    try {
      device = current_device();
      again = communicators_.at(device) != nullptr;
    } catch (const std::exception&) {
      problem = problem.empty() ? detail::current_exception_text() : problem;
    }
    const inside here(*this);
    if (auto made = nccl_communicator::open(api_, nccl_, *host_, call, device, again, problem)) {
      communicators_.adopt(std::move(made));
    }
  }

  std::shared_ptr<device_engine> subgroup(const operation& call, std::shared_ptr<host_engine> host,
                                          int color) override {
    const bool alone = host && host->size() == 1;
    const inside here(*this);
    auto made = communicators_.latest().split(*host_, call, alone ? nullptr : host.get(), color, nccl_batch::problem());
    if (!host || alone) {
      return host ? std::make_shared<one_device>(std::move(host), api_) : nullptr;
    }
    auto engine = std::make_shared<nccl>(std::move(host), api_, nccl_);
    engine->communicators_.adopt(std::move(made));
    return engine;
  }

  std::shared_ptr<std::byte> allocate(const operation& call, std::size_t bytes) override {
    return registered_memory::bytes_of(
        std::make_shared<registered_memory>(api_, nullptr, current_device(), bytes, call.where));
  }

  std::shared_ptr<std::byte> allocate_registered(const operation& call, std::size_t bytes) override {
    std::string problem = nccl_batch::problem();
    nccl_communicator* one = nullptr;
    try {
      one = communicators_.at(current_device());
    } catch (const std::exception&) {
      problem = detail::current_exception_text();
    }
    if (one == nullptr || one->get() == nullptr) {
      problem =
          problem.empty() ? "this group has no communicator for the current device; " + communicators_.text() : problem;
      one = &communicators_.latest();  // to tell the others
    }
    const inside here(*this);
    return one->allocate(*host_, call, bytes, problem, [this] {
      leave();  // who registers is a thread of its own
      set_failure("memory could not be registered with NCCL");
      abort();
    });
  }

  void reduce(const operation& call, const void* in, void* out, std::size_t count, stream_ref stream) override {
    const std::size_t bytes = count * size_of(call.element);
    // On a rank that receives nothing the output may be anything.
    const bool receives = call.receives(host_->rank());
    inside here(*this, call, {in, bytes}, receives ? device_memory{out, bytes} : device_memory{in, bytes});
    if (count == 0) {
      return;  // NCCL drops it, too
    }
    const nccl_reduction how = reduction_of(call, here);
    launch(call, here,
           call.pattern == movement::to_all
               ? nccl_.ncclAllReduce(in, out, count, how.type(), how.op(), here.comm(), stream.get())
               : nccl_.ncclReduce(in, out, count, how.type(), how.op(), call.root, here.comm(), stream.get()));
  }

  void reduce_scatter(const operation& call, const void* in, void* out, std::size_t count, stream_ref stream) override {
    const std::size_t bytes = count * size_of(call.element);
    inside here(*this, call, {in, bytes * static_cast<std::size_t>(host_->size())}, {out, bytes});
    if (count == 0) {
      return;
    }
    const nccl_reduction how = reduction_of(call, here);
    launch(call, here, nccl_.ncclReduceScatter(in, out, count, how.type(), how.op(), here.comm(), stream.get()));
  }

  void reduce_scatter(const operation& call, const void* in, void* out, std::span<const std::size_t> counts,
                      stream_ref stream) override {
    const std::size_t width = size_of(call.element);
    const std::size_t total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
    const std::size_t mine = counts[static_cast<std::size_t>(host_->rank())];
    inside here(*this, call, {in, total * width}, {out, mine * width});
    if (total == 0) {
      return;
    }
    const nccl_reduction how = reduction_of(call, here);
    together(call, here, [&](auto&& add) {
      const auto* part = static_cast<const std::byte*>(in);
      for (std::size_t rank = 0; rank < counts.size(); ++rank) {
        if (counts[rank] != 0) {
          // Only the root's output is looked at.
          void* const to = static_cast<int>(rank) == host_->rank() ? out : const_cast<std::byte*>(part);
          add(nccl_.ncclReduce(part, to, counts[rank], how.type(), how.op(), static_cast<int>(rank), here.comm(),
                               stream.get()));
        }
        part += counts[rank] * width;
      }
    });
  }

  void broadcast(const operation& call, const void* in, void* out, std::size_t bytes, stream_ref stream) override {
    inside here(*this, call, {in, bytes}, {out, bytes});
    if (bytes != 0) {
      launch(call, here, nccl_.ncclBroadcast(in, out, bytes, ncclUint8, call.root, here.comm(), stream.get()));
    }
  }

  void all_gather(const operation& call, const void* in, void* out, std::size_t bytes, stream_ref stream) override {
    inside here(*this, call, {in, bytes}, {out, bytes * static_cast<std::size_t>(host_->size())});
    if (bytes != 0) {
      launch(call, here, nccl_.ncclAllGather(in, out, bytes, ncclUint8, here.comm(), stream.get()));
    }
  }

  void all_gather(const operation& call, const void* in, void* out, std::span<const std::size_t> counts,
                  stream_ref stream) override {
    const std::size_t total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
    inside here(*this, call, {in, counts[static_cast<std::size_t>(host_->rank())]}, {out, total});
    if (total == 0) {
      return;
    }
    together(call, here, [&](auto&& add) {
      auto* part = static_cast<std::byte*>(out);
      for (std::size_t rank = 0; rank < counts.size(); ++rank) {
        if (counts[rank] != 0) {
          const void* const from = static_cast<int>(rank) == host_->rank() ? in : part;
          add(nccl_.ncclBroadcast(from, part, counts[rank], ncclUint8, static_cast<int>(rank), here.comm(),
                                  stream.get()));
        }
        part += counts[rank];
      }
    });
  }

  void exchange_parts(const operation& call, std::span<const device_part> outgoing,
                      std::span<const device_part> incoming, stream_ref stream) override {
    device_memory memory{};
    for (const auto parts : {outgoing, incoming}) {
      for (const device_part& part : parts) {
        const device_memory its{part.data, part.bytes};
        memory = memory.bytes == 0 ? its : memory;
        (void)device_of(call, memory, its);
      }
    }
    if (outgoing.empty() && incoming.empty()) {
      return;
    }
    inside here(*this, call, memory, memory);
    if (auto* held = nccl_batch::current(); held != nullptr) {
      held->has_messages();
    }
    together(call, here, [&](auto&& add) {
      for (const device_part& part : outgoing) {
        add(nccl_.ncclSend(part.data, part.bytes, ncclUint8, part.rank, here.comm(), stream.get()));
      }
      for (const device_part& part : incoming) {
        add(nccl_.ncclRecv(part.data, part.bytes, ncclUint8, part.rank, here.comm(), stream.get()));
      }
    });
  }

  void barrier(const operation& call, stream_ref stream) override {
    inside here(*this, call, {}, {});
    // Not of nothing: NCCL would drop it.
    launch(call, here,
           nccl_.ncclAllReduce(here.nothing(), here.nothing(), 1, ncclUint8, ncclMax, here.comm(), stream.get()));
  }

  void begin_batch(const operation& call) override { require(call, nccl_batch::begin(nccl_)); }
  void end_batch(const operation& call) override {
    if (is_in_batch()) {
      const ncclResult_t result = nccl_batch::end(nccl_);
      require(call, result == ncclInProgress ? ncclSuccess : result);
    } else if (is_broken_.load()) {
      throw_broken(call);  // it was discarded
    }
  }
  [[nodiscard]] bool is_in_batch() const noexcept override { return nccl_batch::current() != nullptr; }

  void abort() noexcept override {
    is_broken_.store(true);
    if (nccl_batch::holds(inside_)) {
      nccl_batch::discard(nccl_);  // what NCCL holds back points to the communicator
    }
    communicators_.abort(inside_);
  }

  void check_operation(const operation& call, std::uint64_t number) override {
    try {
      host_->health().check_device_operation(context(call, number), number);
    } catch (...) {
      abort();
      throw;
    }
    const ncclResult_t state = communicators_.problem(nccl_);
    if (state != ncclSuccess && state != ncclInProgress) {
      fail(call, state);
    }
  }

 private:
  static constexpr std::chrono::milliseconds hearsay{300};

  /// This thread is inside a call of NCCL, or has it hold something back: another one must not free the communicator.
  class inside {
   public:
    explicit inside(nccl& engine) noexcept : engine_(engine) {
      if (!nccl_batch::holds(engine_.inside_)) {
        engine_.inside_->store(whereabouts::calling);
      }
    }
    /// With the communicator of the device that an operation's memory is on.
    inside(nccl& engine, const operation& call, device_memory in, device_memory out) : inside(engine) {
      // In this order: who aborts sets `is_broken_` first, and then looks whether somebody is inside.
      if (engine_.is_broken_.load()) [[unlikely]] {
        engine_.leave();
        engine_.throw_broken(call);
      }
      one_ = &engine_.on(call, in, out);
      comm_ = one_->get();
      if (auto* held = nccl_batch::current(); held != nullptr) [[unlikely]] {
        held->add(engine_.inside_);
      }
    }
    inside(const inside&) = delete;
    inside& operator=(const inside&) = delete;
    ~inside() { engine_.leave(); }

    [[nodiscard]] ncclComm_t comm() const noexcept { return comm_; }
    [[nodiscard]] void* nothing() const noexcept { return one_->nothing(); }
    [[nodiscard]] nccl_communicator& communicator() const noexcept { return *one_; }

   private:
    nccl& engine_;
    nccl_communicator* one_ = nullptr;
    ncclComm_t comm_ = nullptr;
  };

  /// This thread is done with a call; not with those that are held back.
  void leave() noexcept {
    if (!nccl_batch::holds(inside_)) [[likely]] {
      inside_->store(whereabouts::outside, std::memory_order_release);
    }
  }

  [[nodiscard]] nccl_reduction reduction_of(const operation& call, inside& here) {
    nccl_reduction how(nccl_, call, here.comm());
    if (!how.known()) [[unlikely]] {
      reject(call, nccl_reduction::problem(call));
    }
    if (how.made() != ncclSuccess) [[unlikely]] {
      settle(call, here, how.made());
    }
    return how;
  }

  /// The communicator of the device that an operation's memory is on; without memory, the only one, or the current
  /// device's.
  nccl_communicator& on(const operation& call, device_memory in, device_memory out) {
    if (in.bytes == 0 && out.bytes == 0 && communicators_.only() != nullptr) {
      return *communicators_.only();
    }
    const int device = device_of(call, in, out);
    nccl_communicator* const one = communicators_.find(device);
    if (one == nullptr) [[unlikely]] {
      reject(call, "the buffer is on device " + std::to_string(device) +
                       ", for which this group has no communicator (" + communicators_.text() +
                       "); make it current and call connect_device on every rank first");
    }
    return *one;
  }

  void launch(const operation& call, inside& here, ncclResult_t result) {
    if (result != ncclSuccess) [[unlikely]] {
      settle(call, here, result);
    }
    if (auto* held = nccl_batch::current(); held != nullptr && held->is_full_with_one_more()) [[unlikely]] {
      end_batch(call);
      begin_batch(call);
    }
  }

  /// Only where a variable makes NCCL's calls non-blocking.
  void settle(const operation& call, inside& here, ncclResult_t result) {
    if (result == ncclInProgress && !is_in_batch()) {
      const auto context = this->context(call, current_number());
      try {
        result = here.communicator().settle(here.comm(), call.timeout, context, "NCCL's part of the call",
                                            [&] { host_->health().check_device_operation(context, sequence()); });
      } catch (const timeout_error&) {
        leave();
        expire(call, sequence());
      } catch (...) {
        leave();
        abort();
        throw;
      }
    }
    if (result != ncclSuccess && result != ncclInProgress) {
      fail(call, result);
    }
  }

  /// Several of NCCL's calls as one. `body(add)` gives each one's result to `add`.
  template <class Body>
  void together(const operation& call, inside& here, Body&& body) {
    require(call, nccl_.ncclGroupStart());
    ncclResult_t worst = ncclSuccess;
    const auto add = [&](ncclResult_t result) {
      worst = worst == ncclSuccess || worst == ncclInProgress ? result : worst;
    };
    body(add);
    add(nccl_.ncclGroupEnd());  // also after a failure: the depth is the thread's
    launch(call, here, worst);
  }

  void require(const operation& call, ncclResult_t result) {
    if (result != ncclSuccess) [[unlikely]] {
      fail(call, result);
    }
  }

  /// Throws for what NCCL has returned. Whatever is not this call's own fault ends the group.
  [[noreturn]] void fail(const operation& call, ncclResult_t result) {
    leave();
    const std::string text = nccl_text(nccl_, result);
    if (result == ncclInvalidArgument || result == ncclInvalidUsage) {
      reject(call, text);
    }
    // Most often another rank has died, which the host plane knows, or will in a moment, by name.
    const auto here = context(call, current_number());
    try {
      for (auto waited = std::chrono::milliseconds(0); waited < hearsay; waited += std::chrono::milliseconds(10)) {
        host_->health().check_device_operation(here, 0);
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    } catch (...) {
      abort();
      throw;
    }
    break_group(call, current_number(), "met in " + call_name(call) + " an error of its device plane: " + text);
    throw engine_error(here, text);
  }

  const cuda::nccl_api& nccl_;
  int exceptions_;
  nccl_communicators communicators_;
  /// Of the thread that operates; kept by who waits for it.
  shared_whereabouts inside_ = std::make_shared<std::atomic<whereabouts>>(whereabouts::outside);
};

}  // namespace hfcomm::engines
