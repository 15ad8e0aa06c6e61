// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <hfcomm/collectives/detail/collect_parts.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/engine/host_engine.hpp>
#include <hfcomm/engine/reduction/copy_bytes.hpp>
#include <hfcomm/group/detail/running_call.hpp>

namespace hfcomm::detail {

/// A receiver that gets memory for all parts as soon as it knows their lengths.
class parts_collector final : public receiver {
 public:
  parts_collector(parts_memory memory, std::size_t width, int own) : memory_(memory), width_(width), own_(own) {}

  void expect(std::span<const std::uint64_t> totals) override {
    if (places_.empty()) {
      std::vector<std::size_t> counts;
      counts.reserve(totals.size());
      std::size_t sum = 0;
      for (const std::uint64_t total : totals) {
        counts.push_back(static_cast<std::size_t>(total) / width_);
        sum += counts.back();
      }
      places_ = parts_of(memory_(counts, sum), counts, width_);
    }
  }
  void receive(int source, std::span<const std::byte> chunk, std::uint64_t offset, std::uint64_t total) override {
    if (!chunk.empty()) {
      copy_received(place_for(source, total) + offset, chunk, source, own_);
    }
  }
  std::byte* place_for(int source, std::uint64_t /*total*/) override {
    return places_[static_cast<std::size_t>(source)].data();
  }

 private:
  parts_memory memory_;
  std::size_t width_;
  int own_;
  std::vector<std::span<std::byte>> places_;
};

HFCOMM_INLINE void collect_parts(operation&& call, const const_elements& in, parts_memory memory,
                                 const process_group& group) {
  running_call running(group, call);
  check_contribution(running, in);
  parts_collector received(memory, in.width, group.rank());
  running.engine().exchange(call, in.bytes(), received);
}

HFCOMM_INLINE void exchange_parts(operation&& call, const const_elements& in, std::span<const std::size_t> in_counts,
                                  parts_memory memory, const process_group& group) {
  running_call running(group, call);
  check_all_to_all(running, in, in_counts);
  const auto parts = parts_of(in.bytes(), in_counts, in.width);
  parts_collector received(memory, in.width, group.rank());
  running.engine().all_to_all_v(call, {.outgoing = parts}, received);
}

}  // namespace hfcomm::detail
