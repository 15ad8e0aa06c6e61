// SPDX-License-Identifier: MIT
#pragma once

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <sys/stat.h>
#include <sys/utsname.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <hfcomm/core/call_site.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/core/options.hpp>
#include <hfcomm/group/detail/connect_by.hpp>
#include <hfcomm/group/environment.hpp>
#include <hfcomm/group/process_group.hpp>
#include <hfcomm/machine/random_id.hpp>
#include <hfcomm/rendezvous/address_exchange.hpp>

/// Groups whose ranks find each other through a store of torch.distributed.
namespace hfcomm::torch_backend_detail {

using store_ptr = c10::intrusive_ptr<::c10d::Store>;

inline void put_text(::c10d::Store& store, const std::string& key, std::string_view text) {
  store.set(key, std::vector<std::uint8_t>(text.begin(), text.end()));
}
inline std::string get_text(::c10d::Store& store, const std::string& key) {
  const auto bytes = store.get(key);
  return {bytes.begin(), bytes.end()};
}

/// Returns a store of its own connection, where PyTorch has such: a wait in it then keeps no other user of the store.
template <class Store>
c10::intrusive_ptr<::c10d::Store> own_connection(const c10::intrusive_ptr<Store>& store) {
  if constexpr (requires { store->clone(); }) {
    return store->clone();
  } else {
    return store;
  }
}

/// Tells the other machines through the store where the root is.
class exchange_in_store final : public rendezvous::address_exchange {
 public:
  explicit exchange_in_store(store_ptr store) : store_(std::move(store)) {}

  [[nodiscard]] bool needs_all_ranks() const noexcept override { return false; }
  void publish(const rendezvous::root_address& address) override {
    with_store([&](::c10d::Store& store) { put_text(store, key, to_text(address)); });
    is_done_ = true;
  }
  void look_up() override { is_done_ = false; }
  void attend() override { is_done_ = true; }
  bool is_done() override {
    const auto now = std::chrono::steady_clock::now();
    if (!is_done_ && now >= next_look_) {
      next_look_ = now + std::chrono::milliseconds(20);
      refresh();
      is_done_ = !found_.hosts.empty();
    }
    return is_done_;
  }
  void refresh() override {
    const auto text = with_store([](::c10d::Store& store) { return store.check({key}) ? get_text(store, key) : ""; });
    if (text.empty()) {
      return;
    }
    auto address = rendezvous::parse_root_address(text);
    if (!address) {
      detail::throw_error<engine_error>({"the store of torch.distributed has something else than the root's address"});
    }
    found_ = std::move(*address);
  }

 private:
  static constexpr const char* key = "root";

  /// Returns `use(store)`. Throws the store's errors as an exchange does.
  template <class Use>
  std::invoke_result_t<Use, ::c10d::Store&> with_store(Use use) {
    try {
      return use(*store_);
    } catch (const std::exception& problem) {
      detail::throw_error<engine_error>({"the store of torch.distributed failed: ", problem.what()});
    }
  }

  store_ptr store_;
  std::chrono::steady_clock::time_point next_look_{};
  bool is_done_ = false;
};

/// Names this machine, and the network namespace in which its processes find each other. Where the number of the boot
/// in `boot_file` cannot be read, the host's name stands for it: namespaces of several machines have equal numbers.
inline std::string machine_name(const char* boot_file = "/proc/sys/kernel/random/boot_id") {
  std::string machine;
  if (!std::getline(std::ifstream(boot_file), machine)) {
    struct utsname system{};
    (void)::uname(&system);
    machine = detail::concat({"host ", system.nodename});
  }
  struct stat network{};
  (void)::stat("/proc/self/ns/net", &network);
  return detail::concat({machine, '/', network.st_ino});
}

/// Returns the keys of one group in a store which may have had groups of the same ranks before.
inline c10::intrusive_ptr<::c10d::Store> store_of_group(const c10::intrusive_ptr<::c10d::Store>& store, int rank) {
  const auto number = store->add(detail::concat({"hfcomm/groups/", rank}), 1);
  return c10::make_intrusive<::c10d::PrefixStore>(detail::concat({"hfcomm/", number}), store);
}

/// Returns the text that `who` sets. Throws c10::Error that names it where it has not within `timeout`.
inline std::string await_text(::c10d::Store& store, const std::string& key, const std::string& who,
                              std::chrono::milliseconds timeout) {
  const auto began = std::chrono::steady_clock::now();
  try {
    store.wait({key}, timeout);
  } catch (const std::exception&) {
    TORCH_CHECK(std::chrono::steady_clock::now() < began + timeout, "hfcomm: Timed out: ", who,
                " did not come to make the process group within ", timeout.count(), " ms");
    throw;
  }
  return get_text(store, key);
}

/// The name of a job, and what its ranks need to start it, as rank 0 tells the others.
struct job_invitation {
  std::string name;
  int machines = 1;
  std::string secret;  ///< Empty where each machine has it from its user.
};

/// Returns whether this process has a secret, or the word that there is none, from its user.
inline bool has_credentials() {
  const auto is_set = [](const char* name) { return !read_process_environment(name).value_or(std::string()).empty(); };
  return is_set("HFCOMM_SECRET") || is_set("HFCOMM_SECRET_FILE") || is_set("HFCOMM_AUTH");
}

/// Puts the invitation into the store when all ranks have told their machine. For rank 0.
inline job_invitation invite(::c10d::Store& store, int size, std::chrono::milliseconds timeout) {
  std::set<std::string> machines{machine_name()};
  for (int rank = 1; rank < size; ++rank) {
    machines.insert(await_text(store, detail::concat({"machine/", rank}), detail::concat({"rank ", rank}), timeout));
  }
  job_invitation made{detail::concat({"torch-", rendezvous::random_id()}), static_cast<int>(machines.size()), {}};
  if (made.machines > 1 && !has_credentials()) {
    made.secret = rendezvous::random_id() + rendezvous::random_id();
  }
  put_text(store, "job", detail::concat({made.name, ' ', made.machines, ' ', made.secret}));
  return made;
}

/// Tells rank 0 this rank's machine, and returns its invitation. For the other ranks.
inline job_invitation await_invitation(::c10d::Store& store, int rank, std::chrono::milliseconds timeout) {
  put_text(store, detail::concat({"machine/", rank}), machine_name());
  std::istringstream text(await_text(store, "job", "rank 0, or another one that it waits for,", timeout));
  job_invitation got;
  text >> got.name >> got.machines >> got.secret;
  return got;
}

/// Makes the group of the ranks that share `store`, a store of this group only. All ranks call it.
inline process_group connect_over(const store_ptr& store, int rank, int size, std::chrono::milliseconds timeout) {
  const job_invitation job = rank == 0 ? invite(*store, size, timeout) : await_invitation(*store, rank, timeout);
  init_options options;
  options.timeout = timeout;
  options.start_timeout = timeout;
  options.secret = job.secret;
  launch_environment who;
  who.rank = who.local_rank = rank;
  who.world_size = who.local_size = size;
  who.rendezvous = job.name;
  who.source = "torch.distributed";
  who.node_count = job.machines;
  auto exchange = job.machines > 1 ? std::make_unique<exchange_in_store>(store) : nullptr;
  return hfcomm::detail::connect_by(std::move(who), options, std::move(exchange),
                                    {rank, size, "connect", 0, call_site::current()});
}

}  // namespace hfcomm::torch_backend_detail
