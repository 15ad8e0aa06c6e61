// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <exception>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/engine/nccl/communicator_setup.hpp>
#include <hfcomm/engine/nccl/nccl_plane.hpp>
#include <hfcomm/engine/nccl/one_device.hpp>

namespace hfcomm::engines {

/// The device engine that hands device memory to NCCL. It has one communicator for each device that `connect` was
/// called on.
class nccl final : public nccl_plane {
 public:
  using nccl_plane::nccl_plane;

  [[nodiscard]] std::string_view name() const noexcept override { return "nccl"; }

  void connect(const operation& call) override {
    std::string problem = nccl_batch::problem();
    int device = 0;
    bool is_connected = false;
    try {
      device = current_device();
      is_connected = communicators_.at(device) != nullptr;
    } catch (const std::exception&) {
      problem = problem.empty() ? detail::current_exception_text() : problem;
    }
    const nccl_call scope(*this);
    if (auto made = nccl_communicator_setup::connect(api_, nccl_, *host_, call, device, is_connected, problem)) {
      communicators_.add(std::move(made));
    }
  }

  std::shared_ptr<device_engine> subgroup(const operation& call, std::shared_ptr<host_engine> host,
                                          int color) override {
    const bool is_alone = host && host->size() == 1;
    const nccl_call scope(*this);
    auto made = nccl_communicator_setup::split(communicators_.latest(), *host_, call, is_alone ? nullptr : host.get(),
                                               color, nccl_batch::problem());
    if (!host || is_alone) {
      return host ? std::make_shared<one_device>(std::move(host), api_) : nullptr;
    }
    auto engine = std::make_shared<nccl>(std::move(host), api_, nccl_);
    engine->communicators_.add(std::move(made));
    return engine;
  }

  std::shared_ptr<std::byte> allocate(const operation& call, std::size_t bytes) override {
    return registered_memory::bytes_of(
        std::make_shared<registered_memory>(api_, nullptr, current_device(), bytes, call.where));
  }

  std::shared_ptr<std::byte> allocate_registered(const operation& call, std::size_t bytes) override {
    std::string problem = nccl_batch::problem();
    nccl_communicator* communicator = nullptr;
    try {
      communicator = communicators_.at(current_device());
    } catch (const std::exception&) {
      problem = detail::current_exception_text();
    }
    if (communicator == nullptr || communicator->get() == nullptr) {
      problem = problem.empty() ? detail::concat({"this group has no communicator for the current device; ",
                                                  communicators_.describe_devices()})
                                : problem;
      communicator = &communicators_.latest();  // only to tell the other ranks
    }
    const nccl_call scope(*this);
    return communicator->allocate(*host_, call, bytes, problem, [this] {
      leave_nccl();  // another thread registers, and may be in NCCL for ever
      set_failure("memory could not be registered with NCCL");
      abort();
    });
  }

  void reduce(const operation& call, const void* in, void* out, std::size_t count, stream_ref stream) override {
    const std::size_t bytes = count * size_of(call.element);
    // The output of a rank that receives nothing may be any memory.
    const bool receives = call.receives(host_->rank());
    nccl_call scope(*this, call, {in, bytes}, receives ? device_memory{out, bytes} : device_memory{in, bytes});
    if (count == 0) {
      return;  // NCCL also does nothing
    }
    const nccl_reduction reduction(nccl_, call, scope.comm());
    require(reduction, call, scope);
    finish_launch(call, scope,
                  call.pattern == movement::to_all ? nccl_.ncclAllReduce(in, out, count, reduction.type(),
                                                                         reduction.op(), scope.comm(), stream.get())
                                                   : nccl_.ncclReduce(in, out, count, reduction.type(), reduction.op(),
                                                                      call.root, scope.comm(), stream.get()));
  }

  void reduce_scatter(const operation& call, const void* in, void* out, std::size_t count, stream_ref stream) override {
    const std::size_t bytes = count * size_of(call.element);
    nccl_call scope(*this, call, {in, bytes * static_cast<std::size_t>(host_->size())}, {out, bytes});
    if (count == 0) {
      return;
    }
    const nccl_reduction reduction(nccl_, call, scope.comm());
    require(reduction, call, scope);
    finish_launch(
        call, scope,
        nccl_.ncclReduceScatter(in, out, count, reduction.type(), reduction.op(), scope.comm(), stream.get()));
  }

  void reduce_scatter(const operation& call, const void* in, void* out, std::span<const std::size_t> counts,
                      stream_ref stream) override {
    const std::size_t width = size_of(call.element);
    const std::size_t total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
    const std::size_t mine = counts[static_cast<std::size_t>(host_->rank())];
    nccl_call scope(*this, call, {in, total * width}, {out, mine * width});
    if (total == 0) {
      return;
    }
    const nccl_reduction reduction(nccl_, call, scope.comm());
    require(reduction, call, scope);
    launch_group(call, scope, [&](auto&& add) {
      const auto* part = static_cast<const std::byte*>(in);
      for (std::size_t rank = 0; rank < counts.size(); ++rank) {
        if (counts[rank] != 0) {
          // NCCL writes only the root's output.
          void* const to = static_cast<int>(rank) == host_->rank() ? out : const_cast<std::byte*>(part);
          add(nccl_.ncclReduce(part, to, counts[rank], reduction.type(), reduction.op(), static_cast<int>(rank),
                               scope.comm(), stream.get()));
        }
        part += counts[rank] * width;
      }
    });
  }

  void broadcast(const operation& call, const void* in, void* out, std::size_t bytes, stream_ref stream) override {
    nccl_call scope(*this, call, {in, bytes}, {out, bytes});
    if (bytes != 0) {
      finish_launch(call, scope, nccl_.ncclBroadcast(in, out, bytes, ncclUint8, call.root, scope.comm(), stream.get()));
    }
  }

  void all_gather(const operation& call, const void* in, void* out, std::size_t bytes, stream_ref stream) override {
    nccl_call scope(*this, call, {in, bytes}, {out, bytes * static_cast<std::size_t>(host_->size())});
    if (bytes != 0) {
      finish_launch(call, scope, nccl_.ncclAllGather(in, out, bytes, ncclUint8, scope.comm(), stream.get()));
    }
  }

  void all_gather(const operation& call, const void* in, void* out, std::span<const std::size_t> counts,
                  stream_ref stream) override {
    const std::size_t total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
    nccl_call scope(*this, call, {in, counts[static_cast<std::size_t>(host_->rank())]}, {out, total});
    if (total == 0) {
      return;
    }
    launch_group(call, scope, [&](auto&& add) {
      auto* part = static_cast<std::byte*>(out);
      for (std::size_t rank = 0; rank < counts.size(); ++rank) {
        if (counts[rank] != 0) {
          const void* const from = static_cast<int>(rank) == host_->rank() ? in : part;
          add(nccl_.ncclBroadcast(from, part, counts[rank], ncclUint8, static_cast<int>(rank), scope.comm(),
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
        const device_memory other{part.data, part.bytes};
        memory = memory.bytes == 0 ? other : memory;
        (void)device_of(call, memory, other);
      }
    }
    if (outgoing.empty() && incoming.empty()) {
      return;
    }
    nccl_call scope(*this, call, memory, memory);
    if (auto* batch = nccl_batch::current(); batch != nullptr) {
      batch->add_messages();
    }
    launch_group(call, scope, [&](auto&& add) {
      for (const device_part& part : outgoing) {
        add(nccl_.ncclSend(part.data, part.bytes, ncclUint8, part.rank, scope.comm(), stream.get()));
      }
      for (const device_part& part : incoming) {
        add(nccl_.ncclRecv(part.data, part.bytes, ncclUint8, part.rank, scope.comm(), stream.get()));
      }
    });
  }

  void barrier(const operation& call, stream_ref stream) override {
    nccl_call scope(*this, call, {}, {});
    // The reduction has one element, because NCCL does nothing for none.
    finish_launch(call, scope,
                  nccl_.ncclAllReduce(scope.dummy_element(), scope.dummy_element(), 1, ncclUint8, ncclMax, scope.comm(),
                                      stream.get()));
  }
};

}  // namespace hfcomm::engines
