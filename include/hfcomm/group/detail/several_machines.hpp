// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <vector>

#include <hfcomm/core/error.hpp>
#include <hfcomm/core/options.hpp>
#include <hfcomm/group/environment.hpp>
#include <hfcomm/rendezvous/address_exchange.hpp>
#include <hfcomm/rendezvous/handshake.hpp>

namespace hfcomm::detail {

/// A job whose ranks are threads of this process. Its end waits until what the ranks wrote has arrived.
struct pretended_job {
  std::shared_ptr<const void> machines{};           ///< Ends after the memberships; null where there is one machine.
  std::vector<rendezvous::membership> memberships;  ///< By rank. Each is to be taken from here.
};

/// All that only jobs of several machines need. Everything else knows one machine.
struct several_machines {
  /// Joins the job that `who` describes, which may have several machines. Its ranks find the root by `exchange`; where
  /// that is null, as `who` says. Throws as `init` does.
  rendezvous::membership (*join)(const launch_environment& who, const init_options& options,
                                 std::unique_ptr<rendezvous::address_exchange> exchange, const error_context& context);

  /// Tells the libraries between machines that ranks of the job are lost, so that they do not wait for them at their
  /// end. Any process of the job may call.
  void (*abandon)() noexcept;

  /// Makes a job of ranks as threads, on pretended machines with as many ranks each as `sizes` has.
  pretended_job (*pretend)(const std::vector<int>& sizes);
};

/// Returns what the program has for several machines. A program without <hfcomm/machines.hpp> does not have this
/// function; its address is null there.
[[gnu::weak]] const several_machines& the_several_machines() noexcept;

/// Returns the same as a pointer; null where the program does not include <hfcomm/machines.hpp>.
inline const several_machines* find_several_machines() noexcept {
  return &the_several_machines != nullptr ? &the_several_machines() : nullptr;
}

/// The remedy for a program that finds itself in a job of several machines.
inline constexpr const char* include_machines =
    "include <hfcomm/machines.hpp> in one file of this program (or use the compiled way)";

}  // namespace hfcomm::detail
