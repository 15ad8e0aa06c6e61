// SPDX-License-Identifier: MIT
#pragma once

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <sys/stat.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include <hfcomm/core/options.hpp>
#include <hfcomm/group/connect.hpp>
#include <hfcomm/group/process_group.hpp>
#include <hfcomm/machine/random_id.hpp>

/// Groups whose ranks find each other through a store of torch.distributed.
namespace hfcomm::torch_backend_detail {

inline void put_text(::c10d::Store& store, const std::string& key, std::string_view text) {
  store.set(key, std::vector<std::uint8_t>(text.begin(), text.end()));
}
inline std::string get_text(::c10d::Store& store, const std::string& key) {
  const auto bytes = store.get(key);
  return {bytes.begin(), bytes.end()};
}

/// Names this machine, and the network namespace in which its processes find each other.
inline std::string machine_name() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  struct stat network{};
  (void)::stat("/proc/self/ns/net", &network);
  return boot + '/' + std::to_string(network.st_ino);
}

/// Returns the keys of one group in a store which may have had groups of the same ranks before.
inline c10::intrusive_ptr<::c10d::Store> store_of_group(const c10::intrusive_ptr<::c10d::Store>& store, int rank) {
  const auto number = store->add("hfcomm/groups/" + std::to_string(rank), 1);
  return c10::make_intrusive<::c10d::PrefixStore>("hfcomm/" + std::to_string(number), store);
}

/// Returns the text that `rank` sets. Throws c10::Error that names the rank where it has not within `timeout`.
inline std::string await_text(::c10d::Store& store, const std::string& key, int rank,
                              std::chrono::milliseconds timeout) {
  const auto began = std::chrono::steady_clock::now();
  try {
    store.wait({key}, timeout);
  } catch (const std::exception&) {
    TORCH_CHECK(std::chrono::steady_clock::now() < began + timeout, "hfcomm: Timed out: rank ", rank,
                " did not come to make the process group within ", timeout.count(), " ms");
    throw;
  }
  return get_text(store, key);
}

/// Returns what rank 0 tells the others: the group's name, or why there is no group.
inline std::string agree_on_name(::c10d::Store& store, int size, std::chrono::milliseconds timeout) {
  const std::string mine = machine_name();
  for (int rank = 1; rank < size; ++rank) {
    if (await_text(store, "machine/" + std::to_string(rank), rank, timeout) != mine) {
      return "!rank " + std::to_string(rank) + " is on another machine, or in another network namespace, than rank 0";
    }
  }
  return "job://torch-" + rendezvous::random_id();
}

/// Makes the group of the ranks that share `store`, a store of this group only. All ranks call it.
/// They are processes of one machine; throws c10::Error otherwise, on every rank.
inline process_group connect_over(::c10d::Store& store, int rank, int size, std::chrono::milliseconds timeout) {
  if (rank == 0) {
    put_text(store, "name", agree_on_name(store, size, timeout));
  } else {
    put_text(store, "machine/" + std::to_string(rank), machine_name());
  }
  const std::string name = await_text(store, "name", 0, timeout);
  TORCH_CHECK(!name.starts_with('!'), "hfcomm: ", name.substr(1), "; this backend is for processes of one machine");
  init_options options;
  options.init_method = name;
  options.rank = rank;
  options.world_size = size;
  options.timeout = timeout;
  options.start_timeout = timeout;
  return connect(options);
}

}  // namespace hfcomm::torch_backend_detail
