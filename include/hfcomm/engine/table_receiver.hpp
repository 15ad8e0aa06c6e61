// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <hfcomm/core/config.hpp>
#include <hfcomm/engine/host_engine.hpp>

namespace hfcomm::detail {

/// Collects equally long contributions, one after another in rank order.
class table_receiver final : public receiver {
 public:
  /// `own` is this rank. Its contribution may be in the table already; then it is not copied.
  table_receiver(std::span<std::byte> table, int own) : table_(table), own_(own) {}

  HFCOMM_INLINE void receive(int source, std::span<const std::byte> chunk, std::uint64_t offset,
                             std::uint64_t total) override;
  HFCOMM_INLINE std::byte* place_for(int source, std::uint64_t total) override;

 private:
  std::span<std::byte> table_;
  int own_;
};

}  // namespace hfcomm::detail
