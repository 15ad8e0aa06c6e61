// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <hfcomm/ddp.hpp>

#include "../periodic.hpp"
#include "device_ranks.hpp"

namespace host_reduce {

using namespace hfcomm;
using device_ranks::on_host;
using device_ranks::to_device;

/// Returns options of host_reduce, with buckets of a few elements, or with the default sizes.
inline ddp_options staged(stream_ref stream, bool small_buckets) {
  ddp_options options;
  options.host_reduce = true;
  options.stream = stream;
  if (small_buckets) {
    options.first_bucket_bytes = 16;
    options.bucket_bytes = 300;
  }
  return options;
}

/// Two models with the same values and gradients, one on a device with host_reduce and one in host memory.
template <class T>
class pair_of_models {
 public:
  pair_of_models(const std::vector<std::size_t>& sizes, bool one_piece, const process_group& world, ddp_options options,
                 stream_ref stream, std::vector<ddp_buffer> buffers = {})
      : stream_(stream),
        rank_(world.rank()),
        host_values_(std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}), value_of(world.rank())),
        values_(host_values_.size()),
        seen_(host_values_.size()) {
    to_device(host_values_, values_, stream);
    if (one_piece) {
      gradients_.emplace_back(values_.size());
    }
    host_gradients_.resize(sizes.size());
    std::size_t offset = 0;
    std::vector<ddp_parameter> on_device;
    std::vector<ddp_parameter> on_the_host;
    for (std::size_t index = 0; index < sizes.size(); ++index) {
      const std::size_t size = sizes[index];
      if (!one_piece) {
        gradients_.emplace_back(size);
      }
      gradient_.push_back(one_piece ? gradients_.front().span().subspan(offset, size) : gradients_.back().span());
      host_gradients_[index].resize(size);
      const std::string name = "p" + std::to_string(index);
      on_device.push_back(named_parameter(name, values_.span().subspan(offset, size), gradient_.back()));
      on_the_host.push_back(
          named_parameter(name, std::span(host_values_).subspan(offset, size), std::span(host_gradients_[index])));
      offset += size;
    }
    device_.emplace(std::move(on_device), std::move(buffers), options, world);
    options.host_reduce = false;
    host_.emplace(std::move(on_the_host), std::vector<ddp_buffer>{}, options, world);
  }

  [[nodiscard]] distributed_data_parallel& on_device() { return *device_; }
  [[nodiscard]] distributed_data_parallel& on_host() { return *host_; }

  [[nodiscard]] bool has_values_of_rank_0() const {
    return device_ranks::on_host(values_, stream_) == std::vector<T>(values_.size(), value_of(0));
  }

  /// Gives both models gradients that depend on the rank, the element and `seed`, and whose sums are rounded. Those of
  /// a long parameter repeat with a period that no chunk has.
  void fill(int seed) {
    auto state = static_cast<std::uint32_t>(seed * 31 + rank_ + 1) * 2654435761U;
    for (std::size_t index = 0; index < gradient_.size(); ++index) {
      const std::span<T> all = host_gradients_[index];
      for (T& one : all.first(periodic::period_of(all.size()))) {
        state = state * 1664525U + 1013904223U;
        one = T(static_cast<float>(state >> 8) / 1e6F - 8.0F);
      }
      periodic::repeat_period(all);
      to_device(host_gradients_[index], gradient_[index], stream_);
    }
  }

  /// One pass of both models, in which these parameters become ready, in this order.
  void pass(const std::vector<std::size_t>& ready) {
    device_pass(ready);
    host_pass(ready);
  }
  void pass() { pass(all_ready()); }
  void device_pass(const std::vector<std::size_t>& ready) { pass_of(*device_, ready); }
  void host_pass(const std::vector<std::size_t>& ready) { pass_of(*host_, ready); }

  /// One pass of both models, in which the device's kernels give the gradients some time after they were marked.
  void pass_with_kernels() {
    for (std::size_t index = 0; index < gradient_.size(); ++index) {
      std::memset(static_cast<void*>(gradient_[index].data()), 0, gradient_[index].size_bytes());
    }
    device_->begin_forward();
    for (const std::size_t index : all_ready()) {
      fake_cuda::launch(stream_.get(), [to = gradient_[index], from = host_gradients_[index]] {
        std::this_thread::sleep_for(std::chrono::milliseconds(3));
        std::copy(from.begin(), from.end(), to.data());
      });
      device_->mark_ready(index);
    }
    device_->finish();
    host_pass(all_ready());
  }

  /// Puts a copy of the gradients on the stream, into memory that is returned by the host's address.
  [[nodiscard]] device_span<T> copy_on_stream() {
    std::size_t offset = 0;
    for (const auto gradient : gradient_) {
      fake_cuda::launch(stream_.get(), [gradient, to = seen_.data() + offset] {
        std::copy(gradient.data(), gradient.data() + gradient.size(), to);
      });
      offset += gradient.size();
    }
    return seen_.span();
  }
  /// Puts zeros into the gradients, in stream order, some time later.
  void clear_on_stream(std::chrono::milliseconds time = {}) {
    for (const auto gradient : gradient_) {
      fake_cuda::launch(stream_.get(), [gradient, time] {
        std::this_thread::sleep_for(time);
        std::fill_n(gradient.data(), gradient.size(), T{});
      });
    }
  }
  [[nodiscard]] bool equals_host(device_span<T> all) const {
    std::vector<T> expected;
    for (const auto& one : host_gradients_) {
      expected.insert(expected.end(), one.begin(), one.end());
    }
    return are_same(device_ranks::on_host(all, stream_), expected);
  }

  [[nodiscard]] std::vector<T> device_gradient(std::size_t index) const {
    return device_ranks::on_host(gradient_[index], stream_);
  }
  [[nodiscard]] const std::vector<T>& host_gradient(std::size_t index) const { return host_gradients_[index]; }
  /// Returns whether the gradients of both models have the same bits.
  [[nodiscard]] bool are_equal() const {
    for (std::size_t index = 0; index < gradient_.size(); ++index) {
      if (!are_same(device_gradient(index), host_gradients_[index])) {
        return false;
      }
    }
    return true;
  }

  /// Returns whether the elements have the same bits.
  [[nodiscard]] static bool are_same(const std::vector<T>& left, const std::vector<T>& right) {
    return left.size() == right.size() &&
           (left.empty() || std::memcmp(left.data(), right.data(), left.size() * sizeof(T)) == 0);
  }

 private:
  static T value_of(int rank) { return T(static_cast<float>(rank) + 3.0F); }

  [[nodiscard]] std::vector<std::size_t> all_ready() const {
    std::vector<std::size_t> order(gradient_.size());
    std::iota(order.rbegin(), order.rend(), std::size_t{0});
    return order;
  }

  static void pass_of(distributed_data_parallel& ddp, const std::vector<std::size_t>& ready) {
    ddp.begin_forward();
    for (const std::size_t index : ready) {
      ddp.mark_ready(index);
    }
    ddp.finish();
  }

  stream_ref stream_;
  int rank_;
  std::vector<T> host_values_;
  device_buffer<T> values_;
  device_buffer<T> seen_;
  std::deque<device_buffer<T>> gradients_;
  std::vector<device_span<T>> gradient_;
  std::vector<std::vector<T>> host_gradients_;
  std::optional<distributed_data_parallel> device_;
  std::optional<distributed_data_parallel> host_;
};

}  // namespace host_reduce
