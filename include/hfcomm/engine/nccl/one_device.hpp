// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/engine/device/device_plane.hpp>
#include <hfcomm/engine/device/device_scaling.hpp>
#include <hfcomm/engine/nccl/registered_memory.hpp>

namespace hfcomm::engines {

/// The device engine of a group of one. It copies on the stream, whether an operation reduces or moves. It needs no
/// NCCL: for one rank, NCCL itself leaves out elements of some counts (up to 2.29.3) and refuses averages of 8-bit
/// floats.
class one_device final : public device_plane {
 public:
  using device_plane::device_plane;

  [[nodiscard]] std::string_view name() const noexcept override { return "cuda"; }
  void connect(const operation& /*call*/) override {}
  std::shared_ptr<device_engine> subgroup(const operation& /*call*/, std::shared_ptr<host_engine> host,
                                          int /*color*/) override {
    return host ? std::make_shared<one_device>(std::move(host), api_) : nullptr;
  }
  void check_operation(const operation& /*call*/, std::uint64_t /*number*/) override {}

  void reduce(const operation& call, const void* in, void* out, std::size_t count, stream_ref stream) override {
    if ((hfcomm::detail::needs_integers(call.op) || hfcomm::detail::is_logical(call.op)) && count != 0) [[unlikely]] {
      // A copy would do, but a program that works with one rank has to work with more.
      refuse(call, detail::concat({"NCCL has no ", to_string(call.op)}));
    }
    if (call.op == reduce_kind::premultiplied_sum && call.factor != 1.0) {
      scale(call, in, out, count, stream);
      return;
    }
    copy(call, in, out, count * size_of(call.element), stream);
  }
  void reduce_scatter(const operation& call, const void* in, void* out, std::size_t count, stream_ref stream) override {
    reduce(call, in, out, count, stream);
  }
  void reduce_scatter(const operation& call, const void* in, void* out, std::span<const std::size_t> counts,
                      stream_ref stream) override {
    reduce(call, in, out, counts[0], stream);
  }
  void broadcast(const operation& call, const void* in, void* out, std::size_t bytes, stream_ref stream) override {
    copy(call, in, out, bytes, stream);
  }
  void all_gather(const operation& call, const void* in, void* out, std::size_t bytes, stream_ref stream) override {
    copy(call, in, out, bytes, stream);
  }
  void all_gather(const operation& call, const void* in, void* out, std::span<const std::size_t> counts,
                  stream_ref stream) override {
    copy(call, in, out, counts[0], stream);
  }
  void exchange_parts(const operation& call, std::span<const device_part> outgoing,
                      std::span<const device_part> incoming, stream_ref stream) override {
    for (std::size_t index = 0; index < std::min(outgoing.size(), incoming.size()); ++index) {
      copy(call, outgoing[index].data, incoming[index].data, outgoing[index].bytes, stream);
    }
  }
  void barrier(const operation& /*call*/, stream_ref /*stream*/) override {}

  void begin_batch(const operation& /*call*/) override { in_batch_ = true; }
  void end_batch(const operation& /*call*/) override { in_batch_ = false; }
  [[nodiscard]] bool is_in_batch() const noexcept override { return in_batch_; }

  void abort() noexcept override {}  // nothing here waits for other ranks

  std::shared_ptr<std::byte> allocate(const operation& call, std::size_t bytes) override {
    return registered_memory::bytes_of(
        std::make_shared<registered_memory>(api_, nullptr, current_device(), bytes, call.where));
  }
  std::shared_ptr<std::byte> allocate_registered(const operation& call, std::size_t bytes) override {
    return allocate(call, bytes);
  }

 private:
  void scale(const operation& call, const void* in, void* out, std::size_t count, stream_ref stream) {
    const std::size_t bytes = count * size_of(call.element);
    const cuda::device_guard on_device(api_, device_of(call, {in, bytes}, {out, bytes}));
    auto& scaling = device_scaling::of(api_);
    if (!scaling.is_available()) {
      const std::string why =
          "in a group of one a premultiplied sum needs a CUDA runtime of 12.8 or later, both at compile time and at "
          "run time; scale the buffer with a kernel of your own";
      announce_failure(current_number(), why);
      detail::throw_error<engine_error>(context(call, current_number()), {why});
    }
    scaling.scale(call.element, call.factor, in, out, count, stream, call.where);
  }

  bool in_batch_ = false;
};

}  // namespace hfcomm::engines
