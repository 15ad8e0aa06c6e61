// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <vector>

#include <hfcomm/ddp/detail/reducer.hpp>

namespace hfcomm::detail {

/// Counts the passes of a group of one, where every gradient is its own average. For gradients in host memory.
class local_reducer final : public reducer {
 public:
  local_reducer(const process_group& group, std::span<ddp_parameter> parameters, const ddp_options& options)
      : reducer(group, parameters, options, false) {
    make_buckets();
  }

 private:
  std::shared_ptr<std::byte> allocate(std::size_t bytes) override {
    const auto memory = std::make_shared<std::vector<std::byte>>(bytes);
    return {memory, memory->data()};
  }
  void prepare_staging() override {}
  void copy_gradient(std::span<const std::byte> from, std::span<std::byte> to,
                     std::source_location /*where*/) override {
    std::memcpy(to.data(), from.data(), from.size());
  }
  void start_bucket(std::size_t index, std::source_location /*where*/) override {
    record_bucket(buckets_[index].bytes, 0);
  }
  void start_usage(std::vector<std::uint8_t>& /*used*/, std::source_location /*where*/) override {}
  void finish_buckets(std::source_location /*where*/) override {}
  void clean_up(std::source_location /*where*/) noexcept override {}
  void announce_failure(bool /*is_incomplete*/, const std::string& /*why*/, std::source_location /*where*/) override {}
  void wait_for_started() override {}
};

}  // namespace hfcomm::detail
