// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/engines/device_plane.hpp>
#include <hfcomm/engines/nccl_communicator.hpp>
#include <hfcomm/engines/one_device.hpp>
#include <hfcomm/float16.hpp>
#include <hfcomm/float8.hpp>

namespace hfcomm::engines {

/// Device memory through NCCL. One communicator for each device that `connect` was called on.
class nccl final : public device_plane {
 public:
  nccl(std::shared_ptr<host_engine> host, const cuda::runtime_api& cuda, const cuda::nccl_api& api)
      : device_plane(std::move(host), cuda), nccl_(api), exceptions_(std::uncaught_exceptions()) {}

  ~nccl() override {
    if (!home_.at_home() || process_end::begun()) {
      // NCCL is not in this process, or may be gone: what is left of it is left to itself.
      for (auto& one : owned_) {
        (void)one.release();  // NOLINT(*unused-return-value)
      }
      return;
    }
    // With a rank lost, or this one on its way out, what is under way would never end.
    const bool in_vain = lost_.load() || host_->broken() || std::uncaught_exceptions() > exceptions_;
    for (const auto& one : owned_) {
      in_vain ? one->abort() : one->destroy();
    }
  }

  [[nodiscard]] std::string_view name() const noexcept override { return "nccl"; }

  void connect(const operation& call) override {
    int device = 0;
    api_.check(api_.cudaGetDevice(&device), "cudaGetDevice", call.where);
    auto& place = by_device_.at(static_cast<std::size_t>(device));
    auto made = nccl_communicator::open(api_, nccl_, *host_, call, device, place.load() != nullptr);
    if (made) {
      adopt(std::move(made));
    }
  }

  std::shared_ptr<device_engine> subgroup(const operation& call, std::shared_ptr<host_engine> host,
                                          int color) override {
    if (lost_.load(std::memory_order_acquire)) {
      throw_lost(call);
    }
    const bool alone = host && host->size() == 1;
    auto made = owned_.back()->split(*host_, call, alone ? nullptr : host.get(), color);
    if (!host || alone) {
      return host ? std::make_shared<one_device>(std::move(host), api_) : nullptr;
    }
    auto engine = std::make_shared<nccl>(std::move(host), api_, nccl_);
    engine->adopt(std::move(made));
    return engine;
  }

  void reduce(const operation& call, const void* in, void* out, std::size_t count, stream_ref stream) override {
    const std::size_t bytes = count * size_of(call.element);
    // On a rank that receives nothing the output may be anything.
    const bool receives = call.receives(host_->rank());
    nccl_communicator& one = on(call, {in, bytes}, receives ? device_memory{out, bytes} : device_memory{in, bytes});
    if (count == 0) {
      return;  // NCCL drops it, too
    }
    const reduction how(*this, call, one);
    launch(call, one,
           call.pattern == movement::to_all
               ? nccl_.ncclAllReduce(in, out, count, how.type(), how.op(), one.get(), stream.get())
               : nccl_.ncclReduce(in, out, count, how.type(), how.op(), call.root, one.get(), stream.get()));
  }

  void reduce_scatter(const operation& call, const void* in, void* out, std::span<const std::size_t> counts,
                      stream_ref stream) override {
    const std::size_t width = size_of(call.element);
    std::size_t total = 0;
    bool equal = true;
    for (const std::size_t count : counts) {
      total += count;
      equal = equal && count == counts.front();
    }
    const std::size_t mine = counts[static_cast<std::size_t>(host_->rank())];
    nccl_communicator& one = on(call, {in, total * width}, {out, mine * width});
    if (total == 0) {
      return;
    }
    const reduction how(*this, call, one);
    if (equal) {
      launch(call, one, nccl_.ncclReduceScatter(in, out, mine, how.type(), how.op(), one.get(), stream.get()));
      return;
    }
    together(call, one, [&](auto&& add) {
      const auto* part = static_cast<const std::byte*>(in);
      for (std::size_t rank = 0; rank < counts.size(); ++rank) {
        if (counts[rank] != 0) {
          // Only the root's output is looked at.
          void* const to = static_cast<int>(rank) == host_->rank() ? out : const_cast<std::byte*>(part);
          add(nccl_.ncclReduce(part, to, counts[rank], how.type(), how.op(), static_cast<int>(rank), one.get(),
                               stream.get()));
        }
        part += counts[rank] * width;
      }
    });
  }

  void broadcast(const operation& call, const void* in, void* out, std::size_t bytes, stream_ref stream) override {
    nccl_communicator& one = on(call, {in, bytes}, {out, bytes});
    if (bytes != 0) {
      launch(call, one, nccl_.ncclBroadcast(in, out, bytes, ncclUint8, call.root, one.get(), stream.get()));
    }
  }

  void all_gather(const operation& call, const void* in, void* out, std::size_t bytes, stream_ref stream) override {
    nccl_communicator& one = on(call, {in, bytes}, {out, bytes * static_cast<std::size_t>(host_->size())});
    if (bytes != 0) {
      launch(call, one, nccl_.ncclAllGather(in, out, bytes, ncclUint8, one.get(), stream.get()));
    }
  }

  void all_gather(const operation& call, const void* in, void* out, std::span<const std::size_t> counts,
                  stream_ref stream) override {
    std::size_t total = 0;
    for (const std::size_t count : counts) {
      total += count;
    }
    nccl_communicator& one = on(call, {in, counts[static_cast<std::size_t>(host_->rank())]}, {out, total});
    together(call, one, [&](auto&& add) {
      auto* part = static_cast<std::byte*>(out);
      for (std::size_t rank = 0; rank < counts.size(); ++rank) {
        if (counts[rank] != 0) {
          const void* const from = static_cast<int>(rank) == host_->rank() ? in : part;
          add(nccl_.ncclBroadcast(from, part, counts[rank], ncclUint8, static_cast<int>(rank), one.get(),
                                  stream.get()));
        }
        part += counts[rank];
      }
    });
  }

  void pass(const operation& call, std::span<const device_part> outgoing, std::span<const device_part> incoming,
            stream_ref stream) override {
    device_memory here{};
    for (const auto parts : {outgoing, incoming}) {
      for (const device_part& part : parts) {
        const device_memory memory{part.data, part.bytes};
        here = here.bytes == 0 ? memory : here;
        (void)device_of(call, here, memory);
      }
    }
    nccl_communicator& one = on(call, here, here);
    together(call, one, [&](auto&& add) {
      for (const device_part& part : outgoing) {
        add(nccl_.ncclSend(part.data, part.bytes, ncclUint8, part.rank, one.get(), stream.get()));
      }
      for (const device_part& part : incoming) {
        add(nccl_.ncclRecv(part.data, part.bytes, ncclUint8, part.rank, one.get(), stream.get()));
      }
    });
  }

  void meet(const operation& call, stream_ref stream) override {
    nccl_communicator& one = on(call, {}, {});
    // Not of nothing: NCCL would drop it.
    launch(call, one,
           nccl_.ncclAllReduce(one.nothing(), one.nothing(), 1, ncclUint8, ncclMax, one.get(), stream.get()));
  }

  void begin_batch(const operation& call) override {
    require(call, nccl_.ncclGroupStart());
    batched_ = 1;
  }
  void end_batch(const operation& call) override {
    batched_ = 0;
    finish_group(call);
  }
  [[nodiscard]] bool in_batch() const noexcept override { return batched_ != 0; }

  void abort() noexcept override {
    lost_.store(true, std::memory_order_release);
    const std::scoped_lock lock(mutex_);
    for (const auto& one : owned_) {
      one->abort();
    }
  }

  void check(const operation& call, std::uint64_t number) override {
    try {
      host_->look(context(call, number), number);
    } catch (...) {
      abort();
      throw;
    }
    ncclResult_t state = ncclSuccess;
    {
      const std::scoped_lock lock(mutex_);
      for (const auto& one : owned_) {
        if (one->get() != nullptr && state == ncclSuccess) {
          (void)nccl_.ncclCommGetAsyncError(one->get(), &state);
        }
      }
    }
    if (state != ncclSuccess && state != ncclInProgress) {
      fail(call, state);
    }
  }

 private:
  /// NCCL's limit for what one group may hold is 2048 messages of a peer.
  static constexpr int most_batched = 1024;
  static constexpr std::chrono::milliseconds hearsay{300};

  /// A reduction in NCCL's words; a premultiplied sum's lives until the call has been made.
  class reduction {
   public:
    reduction(nccl& engine, const operation& call, const nccl_communicator& one) : engine_(engine), one_(one) {
      const auto type = nccl_type(call.element);
      if (!type) {
        engine.reject(call, "NCCL does not reduce elements of type " + std::string(to_string(call.element)));
      }
      type_ = *type;
      if (const auto op = nccl_op(call.op)) {
        op_ = *op;
      } else if (call.op == reduce_kind::premultiplied_sum) {
        auto factor = scalar(call.element, std::bit_cast<double>(call.tag));
        engine.require(call, engine.nccl_.ncclRedOpCreatePreMulSum(&op_, factor.data(), type_, ncclScalarHostImmediate,
                                                                   one.get()));
        made_ = true;
      } else {
        engine.reject(call, "NCCL has no " + std::string(to_string(call.op)));
      }
    }
    reduction(const reduction&) = delete;
    reduction& operator=(const reduction&) = delete;
    ~reduction() {
      if (made_) {
        (void)engine_.nccl_.ncclRedOpDestroy(op_, one_.get());
      }
    }
    [[nodiscard]] ncclDataType_t type() const noexcept { return type_; }
    [[nodiscard]] ncclRedOp_t op() const noexcept { return op_; }

   private:
    static std::array<std::byte, 8> scalar(element_type type, double factor) {
      std::array<std::byte, 8> bytes{};
      const auto put = [&](auto value) { std::memcpy(bytes.data(), &value, sizeof(value)); };
      const auto narrow = static_cast<float>(factor);
      switch (type) {
        case element_type::float16: put(float16(narrow)); break;
        case element_type::bfloat16: put(bfloat16(narrow)); break;
        case element_type::float8_e4m3: put(float8_e4m3(narrow)); break;
        case element_type::float8_e5m2: put(float8_e5m2(narrow)); break;
        case element_type::float32: put(narrow); break;
        default: put(factor); break;
      }
      return bytes;
    }

    nccl& engine_;
    const nccl_communicator& one_;
    ncclDataType_t type_ = ncclUint8;
    ncclRedOp_t op_ = ncclSum;
    bool made_ = false;
  };

  void adopt(std::unique_ptr<nccl_communicator> made) {
    const std::scoped_lock lock(mutex_);
    auto& place = by_device_.at(static_cast<std::size_t>(made->device()));
    if (auto* before = place.exchange(made.get()); before != nullptr) {
      before->destroy();
    }
    owned_.push_back(std::move(made));
  }

  /// The communicator of the device that an operation's memory is on.
  nccl_communicator& on(const operation& call, device_memory in, device_memory out) {
    const int device = device_of(call, in, out);
    nccl_communicator* const one = static_cast<std::size_t>(device) < by_device_.size()
                                       ? by_device_[static_cast<std::size_t>(device)].load(std::memory_order_acquire)
                                       : nullptr;
    if (one == nullptr) [[unlikely]] {
      reject(call, "the buffer is on device " + std::to_string(device) +
                       ", for which this group has no communicator (" + connected() +
                       "); make it current and call connect_device on every rank first");
    }
    if (one->get() == nullptr) [[unlikely]] {
      throw_lost(call);
    }
    return *one;
  }

  [[nodiscard]] std::string connected() const {
    std::string devices;
    for (std::size_t device = 0; device < by_device_.size(); ++device) {
      if (by_device_[device].load() != nullptr) {
        devices += (devices.empty() ? "it has one for device " : ", ") + std::to_string(device);
      }
    }
    return devices;
  }

  void launch(const operation& call, nccl_communicator& one, ncclResult_t result) {
    if (result != ncclSuccess) [[unlikely]] {
      settle(call, one, result);
    }
    batched_ += batched_ != 0 ? 1 : 0;
    if (batched_ > most_batched) [[unlikely]] {
      finish_group(call);
      require(call, nccl_.ncclGroupStart());
      batched_ = 1;
    }
  }

  void settle(const operation& call, nccl_communicator& one, ncclResult_t result) {
    if (result == ncclInProgress) {
      const auto here = context(call, sequence());
      try {
        result = one.settle(one.get(), call.timeout, here, "NCCL's part of the call",
                            [&] { host_->look(here, sequence()); });
      } catch (const timeout_error&) {
        expire(call, sequence());
      } catch (...) {
        abort();
        throw;
      }
    }
    require(call, result);
  }

  /// Several of NCCL's calls as one. `body(add)` gives each one's result to `add`.
  template <class Body>
  void together(const operation& call, nccl_communicator& one, Body&& body) {
    require(call, nccl_.ncclGroupStart());
    ncclResult_t worst = ncclSuccess;
    int members = 0;
    body([&](ncclResult_t result) {
      ++members;
      worst = worst == ncclSuccess || worst == ncclInProgress ? result : worst;
    });
    const ncclResult_t ended = nccl_.ncclGroupEnd();  // also after a failure: the depth is the thread's
    worst = worst == ncclSuccess || worst == ncclInProgress ? ended : worst;
    batched_ += batched_ != 0 ? members : 0;
    launch(call, one, worst);
  }

  void finish_group(const operation& call) {
    const ncclResult_t result = nccl_.ncclGroupEnd();
    if (result == ncclInProgress) {
      for (const auto& one : owned_) {
        settle(call, *one, result);
      }
      return;
    }
    require(call, result);
  }

  void require(const operation& call, ncclResult_t result) {
    if (result != ncclSuccess) [[unlikely]] {
      fail(call, result);
    }
  }

  /// Throws for what NCCL has returned. Whatever is not this call's own fault ends the group.
  [[noreturn]] void fail(const operation& call, ncclResult_t result) {
    const std::string text = nccl_text(nccl_, result);
    if (result == ncclInvalidArgument || result == ncclInvalidUsage) {
      reject(call, text);
    }
    // Most often another rank has died, which the host plane knows, or will in a moment, by name.
    const auto here = context(call, sequence());
    try {
      for (auto waited = std::chrono::milliseconds(0); waited < hearsay; waited += std::chrono::milliseconds(10)) {
        host_->look(here, 0);
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    } catch (...) {
      abort();
      throw;
    }
    lose(call, sequence(), "met in " + call_name(call) + " an error of its device plane: " + text);
    throw engine_error(here, text);
  }

  const cuda::nccl_api& nccl_;
  int exceptions_;
  std::mutex mutex_;  // connect, abort and check; operations only look at what `by_device_` points to
  std::vector<std::unique_ptr<nccl_communicator>> owned_;
  std::array<std::atomic<nccl_communicator*>, 64> by_device_{};
  int batched_ = 0;  // 1 more than the operations in the batch; 0: there is none
};

}  // namespace hfcomm::engines
