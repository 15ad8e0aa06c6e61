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

/// A job whose ranks are threads of this process. Its destructor waits until what the ranks wrote has arrived.
class pretended_job {
 public:
  pretended_job() = default;
  pretended_job(const pretended_job&) = delete;
  pretended_job& operator=(const pretended_job&) = delete;
  virtual ~pretended_job() = default;

  /// Takes what `rank` has of its job. Once for each rank.
  [[nodiscard]] virtual rendezvous::membership take(int rank) = 0;
};

/// The interface to all that only jobs of several machines need. Everything else knows one machine.
class several_machines {
 public:
  several_machines() = default;
  several_machines(const several_machines&) = delete;
  several_machines& operator=(const several_machines&) = delete;

  /// Joins the job that `who` describes, which may have several machines. Its ranks find the root by `exchange`; where
  /// that is null, as `who` says. Throws as `init` does.
  [[nodiscard]] virtual rendezvous::membership join(const launch_environment& who, const init_options& options,
                                                    std::unique_ptr<rendezvous::address_exchange> exchange,
                                                    const error_context& context) const = 0;

  /// Tells the libraries between machines that ranks of the job are lost, so that they do not wait for them at their
  /// end. Any process of the job may call.
  virtual void abandon() const noexcept = 0;

  /// Makes a job of ranks as threads, on pretended machines with as many ranks each as `sizes` has.
  [[nodiscard]] virtual std::unique_ptr<pretended_job> pretend(const std::vector<int>& sizes) const = 0;

 protected:
  ~several_machines() = default;
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
