// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <hfcomm/core/call_site.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/error.hpp>

namespace hfcomm::engines {

/// One transfer over a link. The link uses its memory until `done`; the object must not move meanwhile. A send may be
/// done before its bytes have left, and a receive before the sender knows: `progress` must go on to be called.
struct link_transfer {
  int machine = -1;              ///< The machine that it goes to, or comes from.
  std::uint64_t channel = 0;     ///< Transfers of one machine, channel and direction keep their order.
  std::span<std::byte> bytes{};  ///< Both sides know the length; another length is an error. Never empty.
  bool sends = false;            ///< False for a receive.
  bool failed = false;           ///< Set before `done`.
  std::atomic<bool> done{false};
  void* native = nullptr;  ///< For the link.

  /// For the link. From then on, the object is its user's.
  void finish(bool succeeds) noexcept {
    failed = !succeeds;
    done.store(true, std::memory_order_release);
  }
};

/// Carries bytes between the machines of a job, one process of each. Knows nothing of ranks and operations, and need
/// not notice that a machine is silent: the side channel does.
///
/// One thread at a time calls, not always the same one; only `sleep` may run beside another function. Only `open`
/// throws.
class link {
 public:
  /// `name` outlives this. The others are what the functions of their names return.
  explicit link(std::string_view name, bool takes_any_channel = false, std::size_t most_unasked = 0) noexcept
      : name_(name), takes_any_channel_(takes_any_channel), most_unasked_(most_unasked) {}
  link(const link&) = delete;
  link& operator=(const link&) = delete;
  /// Gives up what is under way. Does not wait for other machines.
  virtual ~link() = default;

  /// Returns "ucx", "gloo", "mpi" or "tcp".
  [[nodiscard]] std::string_view name() const noexcept { return name_; }

  /// Returns the bytes by which the other machines' links find this one: at most 4 KiB.
  [[nodiscard]] virtual std::vector<std::byte> address() const = 0;

  /// Makes this the link of machine `self`. `addresses` has each machine's, this one's too. May connect later, when a
  /// transfer is started. Throws engine_error.
  virtual void open(int self, std::vector<std::vector<std::byte>> addresses) = 0;

  /// Returns whether a channel may be any number, and receives can be cancelled. Otherwise it is below 2^20.
  [[nodiscard]] bool takes_any_channel() const noexcept { return takes_any_channel_; }

  /// Returns how many bytes of a transfer may well be sent before the other side starts its receive, although they are
  /// kept there.
  [[nodiscard]] std::size_t most_unasked() const noexcept { return most_unasked_; }

  /// Starts a send or a receive. Where it fails at once, it is done.
  virtual void start(link_transfer& one) noexcept = 0;

  /// Gives up a receive, which is done and failed then, unless it has begun: then `progress` ends it.
  virtual void cancel(link_transfer& receive) noexcept = 0;

  /// Moves all transfers on as far as possible without waiting. Returns whether any of them moved, as far as it knows.
  virtual bool progress() noexcept = 0;

  /// Returns false where `progress` has something to do. Otherwise the next `sleep` ends when it has.
  [[nodiscard]] virtual bool prepare_sleep() noexcept = 0;

  /// Waits until `progress` may have something to do, `descriptor` is readable, or the time is over. May return early.
  /// Does not read from the descriptor. Where another thread has called `progress` since `prepare_sleep`, it may miss
  /// what comes.
  virtual void sleep(int descriptor, std::chrono::microseconds most) noexcept = 0;

  /// Gives up the transfers to and from `machine`, for ever. They are done and failed when it returns, and none of them
  /// touches its memory any more.
  virtual void give_up(int machine) noexcept = 0;

  /// Returns a machine to which the connection has failed; -1 where there is none. A hint: the side channel
  /// decides.
  [[nodiscard]] virtual int failing_machine() const noexcept = 0;

 private:
  std::string_view name_;
  bool takes_any_channel_;
  std::size_t most_unasked_;
};

/// A kind of link, mostly made of a library.
struct link_kind {
  std::string_view name;                      ///< As `link::name` returns it.
  std::string_view how_to_install;            ///< For the error where no link can be made; empty: it has no library.
  bool (*is_meant)() noexcept = nullptr;      ///< Whether to try it where the user has named none; null: always.
  void (*prepare)() = nullptr;                ///< Does what every process of the job has to do. Throws engine_error.
  void (*abandon)() noexcept = nullptr;       ///< Says that processes of the job are lost, in any process.
  std::unique_ptr<link> (*make)() = nullptr;  ///< Throws engine_error. The only one that is never null.

  [[nodiscard]] bool is_tried() const noexcept { return is_meant == nullptr || is_meant(); }
};

/// Returns the kinds that entrances which the program includes have registered before main.
HFCOMM_PROCESS_STATE inline std::vector<link_kind>& registered_links() {
  static std::vector<link_kind> kinds;
  return kinds;
}

/// Adds a kind. Returns true, for the initialisers of variables.
inline bool register_link(link_kind kind) {
  registered_links().push_back(kind);
  return true;
}

class lockstep;
class machine_agent;
class machine_collectives;

/// Makes the collectives of a group with one rank on each machine, in the process of its agent.
using direct_maker = std::unique_ptr<machine_collectives> (*)(lockstep& steps, machine_agent& agent,
                                                              const std::vector<int>& machine_of);

/// Returns the maker that <hfcomm/direct.hpp> has registered; null where the program does not include it.
HFCOMM_PROCESS_STATE inline direct_maker& registered_direct() {
  static direct_maker maker = nullptr;
  return maker;
}

/// Throws engine_error with a text that begins with the link's name.
[[noreturn]] inline void throw_link_error(std::string_view name, const std::string& text,
                                          const call_site& where = call_site::current()) {
  detail::throw_error<engine_error>({-1, 0, detail::concat({"link ", name}), 0, where}, {text});
}

/// Returns a link's name as it is published. All machines have to carry their ranks' bytes in the same way.
inline std::string published_name(std::string_view name) {
  return std::string(name) + (registered_direct() != nullptr ? " with <hfcomm/direct.hpp>" : "");
}

/// Returns an address as links publish it: the link's name before its own bytes.
inline std::vector<std::byte> published_address(std::string_view link, std::span<const std::byte> bytes) {
  const std::string name = published_name(link);
  std::vector<std::byte> address(name.size() + 1 + bytes.size());
  std::transform(name.begin(), name.end(), address.begin(), [](char one) { return static_cast<std::byte>(one); });
  std::copy(bytes.begin(), bytes.end(), address.begin() + static_cast<std::ptrdiff_t>(name.size() + 1));
  if (address.size() > 4096) {
    throw_link_error(name, detail::concat({"its address has ", address.size(), " bytes, more than 4096; name one ",
                                           "network interface in HFCOMM_INTERFACE"}));
  }
  return address;
}

/// Returns the link's own bytes of each machine's address. Throws engine_error where a machine has another link.
inline std::vector<std::vector<std::byte>> own_addresses(std::string_view link,
                                                         std::vector<std::vector<std::byte>> published) {
  const std::string name = published_name(link);
  for (std::size_t machine = 0; machine < published.size(); ++machine) {
    auto& address = published[machine];
    const auto end = std::find(address.begin(), address.end(), std::byte{0});
    std::string theirs;
    std::transform(address.begin(), end, std::back_inserter(theirs),
                   [](std::byte one) { return static_cast<char>(one); });
    if (end == address.end() || theirs != name) {
      throw_link_error(
          name, detail::concat({"machine ", machine, " has ",
                                end == address.end() ? "no address of a link" : detail::concat({"the link ", theirs}),
                                ", this one ", name, "; set HFCOMM_LINK to the same link on all machines"}));
    }
    address.erase(address.begin(), end + 1);
  }
  return published;
}

}  // namespace hfcomm::engines
