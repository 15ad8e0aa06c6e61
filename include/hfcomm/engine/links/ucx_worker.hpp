// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <poll.h>
#include <ucp/api/ucp.h>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/engine/links/registry.hpp>
#include <hfcomm/engine/links/ucx_api.hpp>
#include <hfcomm/machine/waiting.hpp>

namespace hfcomm::engines {

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
