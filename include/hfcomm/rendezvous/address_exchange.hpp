// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <hfcomm/machine/unix_socket.hpp>

namespace hfcomm::rendezvous {

class pmi_client;

/// The address of the root: the process to which the leaders of the other machines connect.
struct root_address {
  std::vector<std::string> hosts;    ///< Names or numeric addresses of its machine, to be tried in this order.
  std::vector<std::uint16_t> ports;  ///< The same of its ports.
  /// Names one start of one job, by a random text. A leader sends it in its proof, and the root refuses another: then
  /// the leader has an earlier job's address. Empty where the address was not published.
  std::string nonce;
};

/// The longest text of an address, which every channel can carry.
inline constexpr std::size_t longest_root_address = 1000;
/// How many hosts such a text can have.
inline constexpr std::size_t most_published_hosts = 16;

/// Returns a text without spaces. Throws engine_error where it would be longer than longest_root_address, or its parts
/// have characters that no host or nonce has.
std::string to_text(const root_address& address);

/// Returns the address of such a text; nullopt where the text is none.
std::optional<root_address> parse_root_address(std::string_view text);

/// Tells the leaders of the other machines where the root is. Each rank starts with one of publish(), look_up() and
/// attend(), and then calls is_done() every few milliseconds until it returns true. None of them waits for other ranks.
/// Each throws engine_error where the channel fails. Not thread-safe.
///
/// An exchange that needs all ranks takes each rank's part only once, and a leader does its own before it knows whether
/// rank 0 will come to its machine. So there rank 0 itself publishes, also where another process is the root.
///
/// This base is the exchange of an address that each rank knows.
class address_exchange {
 public:
  explicit address_exchange(root_address known = {}) : found_(std::move(known)) {}
  address_exchange(const address_exchange&) = delete;
  address_exchange& operator=(const address_exchange&) = delete;
  /// Removes what publish() has left. The root destroys it when all leaders have come.
  virtual ~address_exchange() = default;

  /// Returns whether the ranks that neither publish nor look up must attend. Then none learns the address before all
  /// ranks have started.
  [[nodiscard]] virtual bool needs_all_ranks() const noexcept { return false; }

  /// Makes an address known. For the root, once it listens there; for rank 0 where all ranks are needed.
  virtual void publish(const root_address& /*address*/) {}
  /// Starts to look for the address. For the leaders of the other machines.
  virtual void look_up() {}
  /// Takes part without learning the address. For all other ranks.
  virtual void attend() {}

  /// Returns whether this rank's part is over.
  virtual bool is_done() { return true; }
  /// Returns the address that was looked up, or is known from the beginning. Empty before.
  [[nodiscard]] const root_address& found() const noexcept { return found_; }

  /// Looks up the address again, for a leader whom nobody answers at found(): that may be an earlier job's. Where
  /// another root has published its own since, found() is that.
  virtual void refresh() {}

 protected:
  root_address found_;
};

/// Waits until this rank's part is over. Throws timeout_error, with `whom` it has waited for.
void finish_exchange(address_exchange& exchange, deadline give_up, std::string_view whom);

/// Returns an exchange through a file on a file system that all machines share. The root writes it in one step, with
/// mode 0600, and removes it in the end. The file of a job that was killed stays until the next root replaces it (see
/// `refresh`). A file that has other content, or is another user's, is an error.
std::unique_ptr<address_exchange> exchange_in_file(std::string path);

/// Returns an exchange through a PMI-1 server: a put, a barrier of all ranks, a get. `number` is that of the start in
/// this process: a key can be put once.
std::unique_ptr<address_exchange> exchange_by_pmi(std::shared_ptr<pmi_client> client, int number);

/// Returns an exchange through the PMIx server of this process's launcher: a put, a fence of all ranks, gets. In
/// version 5, ranks do not see what a rank of another machine puts after their first get of it, so a second start
/// fails.
std::unique_ptr<address_exchange> exchange_by_pmix(int number, int world_size);

}  // namespace hfcomm::rendezvous
