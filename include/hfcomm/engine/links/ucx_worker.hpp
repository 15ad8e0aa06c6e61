// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <poll.h>
#include <stdlib.h>
#include <ucp/api/ucp.h>

#include <hfcomm/core/call_site.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/engine/links/link.hpp>
#include <hfcomm/machine/library.hpp>
#include <hfcomm/machine/network_interfaces.hpp>
#include <hfcomm/machine/waiting.hpp>

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
inline ucx_api load_ucx(const call_site& where) {
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
inline const ucx_api& ucx_functions(const call_site& where = call_site::current()) {
  return hfcomm::detail::table_of<ucx_api>(&load_ucx, where);
}

/// Returns whether this machine has hardware for RDMA.
inline bool has_rdma() noexcept {
  std::error_code none;
  return !std::filesystem::is_empty("/sys/class/infiniband", none) && !none;
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
    if (!chosen.address.empty() || !has_rdma()) {
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

/// A context of UCX and a worker in it, with what hfcomm needs of them.
class ucx_worker {
 public:
  static constexpr std::size_t largest_message = 512 << 10;  ///< See the class ucx.

  /// Throws engine_error.
  ucx_worker() {
    const ucx_settings settings(largest_message);
    api_ = &ucx_functions();
    try {
      make_context();
      make_worker();
    } catch (...) {
      release();
      throw;
    }
  }
  ucx_worker(const ucx_worker&) = delete;
  ucx_worker& operator=(const ucx_worker&) = delete;
  ~ucx_worker() { release(); }

  [[nodiscard]] const ucx_api& api() const noexcept { return *api_; }
  /// Returns null after `destroy`.
  [[nodiscard]] ucp_worker_h get() const noexcept { return worker_; }
  [[nodiscard]] const std::vector<std::byte>& address() const noexcept { return address_; }

  bool progress() noexcept { return worker_ != nullptr && api_->ucp_worker_progress(worker_) != 0; }

  /// See `link::prepare_sleep`.
  [[nodiscard]] bool prepare_sleep() noexcept { return worker_ == nullptr || api_->ucp_worker_arm(worker_) == UCS_OK; }

  /// See `link::sleep`.
  void sleep(int descriptor, std::chrono::microseconds most) noexcept {
    std::array<pollfd, 2> events{{{descriptor, POLLIN, 0}, {event_descriptor_.load(), POLLIN, 0}}};
    detail::poll_events(events, most);
  }

  /// Ends the worker and all its endpoints. No callback comes any more, and nothing touches memory.
  void destroy() noexcept {
    event_descriptor_.store(-1);
    if (worker_ != nullptr) {
      api_->ucp_worker_destroy(std::exchange(worker_, nullptr));
    }
  }

 private:
  void make_context() {
    ucp_config_t* config = nullptr;
    check(api_->ucp_config_read(nullptr, nullptr, &config), "ucp_config_read");
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME;
    params.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
    params.name = "hfcomm";
    const auto status = api_->ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context_);
    api_->ucp_config_release(config);
    check(status, "ucp_init");
  }

  void make_worker() {
    ucp_worker_params_t params{};
    params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
    check(api_->ucp_worker_create(context_, &params, &worker_), "ucp_worker_create");
    int descriptor = -1;
    check(api_->ucp_worker_get_efd(worker_, &descriptor), "ucp_worker_get_efd");
    event_descriptor_.store(descriptor);
    ucp_worker_attr_t attributes{};
    attributes.field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS | UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS;
    attributes.address_flags = UCP_WORKER_ADDRESS_FLAG_NET_ONLY;
    check(api_->ucp_worker_query(worker_, &attributes), "ucp_worker_query");
    const std::span bytes(reinterpret_cast<const std::byte*>(attributes.address), attributes.address_length);
    const std::vector<std::byte> copy(bytes.begin(), bytes.end());
    api_->ucp_worker_release_address(worker_, attributes.address);
    address_ = published_address("ucx", copy);
  }

  void check(ucs_status_t status, const char* what) const {
    if (status != UCS_OK) {
      throw_link_error("ucx", detail::concat({what, ": ", api_->ucs_status_string(status)}));
    }
  }

  void release() noexcept {
    destroy();
    if (context_ != nullptr) {
      api_->ucp_cleanup(context_);
    }
  }

  const ucx_api* api_ = nullptr;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  std::atomic<int> event_descriptor_{-1};  // read while another thread destroys the worker
  std::vector<std::byte> address_;
};

}  // namespace hfcomm::engines
