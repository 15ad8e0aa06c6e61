// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <source_location>
#include <string>
#include <system_error>
#include <vector>

#include <stdlib.h>
#include <ucp/api/ucp.h>

#include <hfcomm/core/error.hpp>
#include <hfcomm/machine/library.hpp>
#include <hfcomm/machine/network_interfaces.hpp>

namespace hfcomm::engines {

/// The functions of UCX that hfcomm calls, under their own names.
struct ucx_api {
  // NOLINTBEGIN(readability-identifier-naming): UCX's names
  decltype(&::ucp_config_read) ucp_config_read = nullptr;
  decltype(&::ucp_config_release) ucp_config_release = nullptr;
  decltype(&::ucp_init_version) ucp_init_version = nullptr;
  decltype(&::ucp_cleanup) ucp_cleanup = nullptr;
  decltype(&::ucp_worker_create) ucp_worker_create = nullptr;
  decltype(&::ucp_worker_destroy) ucp_worker_destroy = nullptr;
  decltype(&::ucp_worker_query) ucp_worker_query = nullptr;
  decltype(&::ucp_worker_release_address) ucp_worker_release_address = nullptr;
  decltype(&::ucp_worker_get_efd) ucp_worker_get_efd = nullptr;
  decltype(&::ucp_worker_arm) ucp_worker_arm = nullptr;
  decltype(&::ucp_worker_progress) ucp_worker_progress = nullptr;
  decltype(&::ucp_ep_create) ucp_ep_create = nullptr;
  decltype(&::ucp_ep_close_nbx) ucp_ep_close_nbx = nullptr;
  decltype(&::ucp_tag_send_nbx) ucp_tag_send_nbx = nullptr;
  decltype(&::ucp_tag_recv_nbx) ucp_tag_recv_nbx = nullptr;
  decltype(&::ucp_request_check_status) ucp_request_check_status = nullptr;
  decltype(&::ucp_request_cancel) ucp_request_cancel = nullptr;
  decltype(&::ucp_request_free) ucp_request_free = nullptr;
  decltype(&::ucs_status_string) ucs_status_string = nullptr;
  // NOLINTEND(readability-identifier-naming)
};

/// Loads UCX and fills the table.
inline ucx_api load_ucx(const std::source_location& where) {
  const hfcomm::detail::library found("UCX", "HFCOMM_UCX_LIBRARY", "ucp_worker_progress", {"libucp.so.0"});
  if (!found.is_found()) {
    detail::throw_error<engine_error>({-1, 0, "UCX", 0, where}, {found.problem()});
  }
  ucx_api api;
#define HFCOMM_FILL(name) found.fill(api.name, #name, false, where)
  HFCOMM_FILL(ucp_config_read);
  HFCOMM_FILL(ucp_config_release);
  HFCOMM_FILL(ucp_init_version);
  HFCOMM_FILL(ucp_cleanup);
  HFCOMM_FILL(ucp_worker_create);
  HFCOMM_FILL(ucp_worker_destroy);
  HFCOMM_FILL(ucp_worker_query);
  HFCOMM_FILL(ucp_worker_release_address);
  HFCOMM_FILL(ucp_worker_get_efd);
  HFCOMM_FILL(ucp_worker_arm);
  HFCOMM_FILL(ucp_worker_progress);
  HFCOMM_FILL(ucp_ep_create);
  HFCOMM_FILL(ucp_ep_close_nbx);
  HFCOMM_FILL(ucp_tag_send_nbx);
  HFCOMM_FILL(ucp_tag_recv_nbx);
  HFCOMM_FILL(ucp_request_check_status);
  HFCOMM_FILL(ucp_request_cancel);
  HFCOMM_FILL(ucp_request_free);
  HFCOMM_FILL(ucs_status_string);
#undef HFCOMM_FILL
  return api;
}

/// Returns the table of UCX's functions. The first call loads the library. Throws engine_error where that fails.
inline const ucx_api& ucx_functions(const std::source_location& where = std::source_location::current()) {
  return hfcomm::detail::table_of<ucx_api>(&load_ucx, where);
}

/// The settings of UCX that hfcomm needs, as variables of the environment while this object lives: UCX reads some of
/// them nowhere else. A variable that the user has set is left alone.
class ucx_settings {
 public:
  /// `largest_message`: no message of TCP up to this length is cut into several segments.
  explicit ucx_settings(std::size_t largest_message) {
    // hfcomm reports errors itself, and must not replace the program's handlers of signals or its malloc.
    set("UCX_HANDLE_ERRORS", "none");
    set("UCX_MEM_EVENTS", "n");
    set("UCX_LOG_LEVEL", "error");
    // Processes of one machine talk through hfcomm's own shared memory.
    set("UCX_TLS", "^sm");
    const auto segment = std::to_string(largest_message + 4096);
    set("UCX_TCP_TX_SEG_SIZE", segment);
    set("UCX_TCP_RX_SEG_SIZE", segment);
    const auto chosen =
        std::getenv("HFCOMM_INTERFACE") != nullptr ? rendezvous::chosen_interface() : rendezvous::interface_address{};
    if (!chosen.interface.empty()) {
      set("UCX_NET_DEVICES", chosen.interface);
    }
    std::error_code none;
    if (!chosen.address.empty() || std::filesystem::is_empty("/sys/class/infiniband", none) || none) {
      // Over TCP a rendezvous costs a round trip and saves no copy. RDMA needs it to leave out the copies.
      set("UCX_RNDV_THRESH", "inf");
      // In UCX 1.13 an assertion fails where a connection breaks within a send without copies.
      set("UCX_ZCOPY_THRESH", "inf");
    }
  }
  ucx_settings(const ucx_settings&) = delete;
  ucx_settings& operator=(const ucx_settings&) = delete;
  ~ucx_settings() {
    for (const char* name : set_) {
      ::unsetenv(name);
    }
  }

 private:
  void set(const char* name, const std::string& value) {
    if (std::getenv(name) == nullptr && ::setenv(name, value.c_str(), 0) == 0) {
      set_.push_back(name);
    }
  }

  std::vector<const char*> set_;
};

}  // namespace hfcomm::engines
