// SPDX-License-Identifier: MIT
#pragma once

#include <span>

#include <hfcomm/engine/links/link.hpp>

namespace hfcomm::engines {

/// Carries transfers of this process's ranks over the link of its machine. Any thread may call.
class direct_carrier {
 public:
  /// Starts transfers, in this order. They must not move, and their memory has to stay, until they are done.
  virtual void start_all(std::span<link_transfer* const> transfers) noexcept = 0;

  /// Moves everything on that is under way, without waiting.
  virtual void move_on() noexcept = 0;

  /// Gives up transfers, which are done when it returns: receives at once, and sends when the other machine has taken
  /// them, or is lost. Where that takes more than ten seconds, it gives up the machine.
  virtual void stop_all(std::span<link_transfer* const> transfers) noexcept = 0;

 protected:
  ~direct_carrier() = default;
};

}  // namespace hfcomm::engines
