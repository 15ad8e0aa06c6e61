// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <poll.h>
#include <ucp/api/ucp.h>

#include <hfcomm/engine/links/link.hpp>
#include <hfcomm/engine/links/registry.hpp>
#include <hfcomm/engine/links/ucx_api.hpp>

namespace hfcomm::engines {

/// The link over UCX's tagged messages: TCP, and RDMA where there is hardware for it.
///
/// A transfer is cut into messages of at most `largest_message` bytes, each of which TCP carries in one segment. So a
/// receive over TCP is either not begun and can be cancelled, or complete: UCX never completes, nor cancels, the
/// receive of a message of which only some segments have arrived. The receiver has to cut alike, so the length is no
/// option.
///
/// UCX calls a send done when its bytes are copied into a buffer of one segment, where they may wait until somebody
/// calls UCX again; a rank that computes does not. So an empty message, the push, follows: it is accepted when the
/// buffer is free. (UCX's own flush would wait for the receiver's answer.)
class ucx final : public link {
 public:
  static constexpr std::size_t largest_message = 512 << 10;

  ucx() {
    const ucx_settings settings(largest_message);
    api_ = &ucx_functions();
    make_context();
    try {
      make_worker();
    } catch (...) {
      release();
      throw;
    }
  }

  ~ucx() override {
    if (worker_ != nullptr) {
      give_up_peers(peers_);
    }
    release();
  }

  [[nodiscard]] std::string_view name() const noexcept override { return "ucx"; }
  [[nodiscard]] std::vector<std::byte> address() const override { return address_; }

  void open(int self, std::vector<std::vector<std::byte>> addresses) override {
    addresses_ = own_addresses(name(), std::move(addresses));
    self_ = self;
    peers_.reserve(addresses_.size());
    for (std::size_t machine = 0; machine < addresses_.size(); ++machine) {
      peers_.push_back(std::make_unique<peer>());
    }
  }

  void start(link_transfer& one) noexcept override {
    auto& other = *peers_[static_cast<std::size_t>(one.machine)];
    const std::size_t messages = (one.bytes.size() + largest_message - 1) / largest_message;
    auto* const running = new transfer{this, &other, &one, {}, 1};
    running->parts.resize(messages + (one.sends ? 1 : 0), {running, 0, false, nullptr});
    one.native = running;
    other.transfers.push_back(running);
    connect(other, one.machine);
    for (std::size_t index = 0; index < messages; ++index) {
      const std::size_t begin = index * largest_message;
      start(running->parts[index], one.bytes.subspan(begin, std::min(largest_message, one.bytes.size() - begin)));
    }
    if (one.sends) {
      start(running->parts.back(), {});
    }
    finish_one(*running, true);
  }

  bool progress() noexcept override { return worker_ != nullptr && api_->ucp_worker_progress(worker_) != 0; }

  void sleep(int descriptor, std::chrono::microseconds most) noexcept override {
    if (worker_ != nullptr && api_->ucp_worker_arm(worker_) != UCS_OK) {
      return;  // there is work
    }
    std::array<pollfd, 2> events{{{descriptor, POLLIN, 0}, {worker_ != nullptr ? event_descriptor_ : -1, POLLIN, 0}}};
    const auto time = std::max(most, std::chrono::microseconds(0)).count();
    const timespec limit{static_cast<time_t>(time / 1'000'000), static_cast<long>(time % 1'000'000 * 1000)};
    ::ppoll(events.data(), events.size(), &limit, nullptr);
  }

  void give_up(int machine) noexcept override {
    give_up_peers(std::span(peers_).subspan(static_cast<std::size_t>(machine), 1));
  }

  [[nodiscard]] int failing_machine() const noexcept override {
    const auto failing =
        std::find_if(peers_.begin(), peers_.end(), [](auto& one) { return one->fails && !one->is_gone; });
    return failing == peers_.end() ? -1 : static_cast<int>(failing - peers_.begin());
  }

 private:
  struct peer;
  struct transfer;

  static constexpr unsigned push = 1;  // the number of an active message

  /// A message of a transfer, or the push after those of a send.
  struct part {
    transfer* of;
    std::size_t length = 0;
    bool is_under_way = false;
    void* request = nullptr;  // while it is under way
  };

  /// A transfer that is not done.
  struct transfer {
    ucx* owner;
    peer* with;
    link_transfer* one;
    std::vector<part> parts;
    std::size_t left;  // parts, and functions that work on this
  };

  /// Another machine.
  struct peer {
    ucp_ep_h endpoint = nullptr;
    bool fails = false;
    bool is_gone = false;
    std::vector<transfer*> transfers{};
  };

  void make_context() {
    ucp_config_t* config = nullptr;
    check(api_->ucp_config_read(nullptr, nullptr, &config), "ucp_config_read");
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME;
    params.features = UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
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
    check(api_->ucp_worker_get_efd(worker_, &event_descriptor_), "ucp_worker_get_efd");
    ucp_am_handler_param_t ignores_pushes{};
    ignores_pushes.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB;
    ignores_pushes.id = push;
    ignores_pushes.cb = [](void*, const void*, size_t, void*, size_t, const ucp_am_recv_param_t*) { return UCS_OK; };
    check(api_->ucp_worker_set_am_recv_handler(worker_, &ignores_pushes), "ucp_worker_set_am_recv_handler");
    ucp_worker_attr_t attributes{};
    attributes.field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS | UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS;
    attributes.address_flags = UCP_WORKER_ADDRESS_FLAG_NET_ONLY;
    check(api_->ucp_worker_query(worker_, &attributes), "ucp_worker_query");
    const std::span bytes(reinterpret_cast<const std::byte*>(attributes.address), attributes.address_length);
    const std::vector<std::byte> copy(bytes.begin(), bytes.end());
    api_->ucp_worker_release_address(worker_, attributes.address);
    address_ = published_address(name(), copy);
  }

  void check(ucs_status_t status, const char* what) const {
    if (status != UCS_OK) {
      throw_link_error(name(), std::string(what) + ": " + api_->ucs_status_string(status));
    }
  }

  /// Makes the endpoint, also for a receive: its error handler tells of the other machine's death.
  void connect(peer& other, int machine) noexcept {
    if (other.endpoint != nullptr || other.is_gone || worker_ == nullptr) {
      return;
    }
    ucp_ep_params_t params{};
    params.field_mask =
        UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.address = reinterpret_cast<const ucp_address_t*>(addresses_[static_cast<std::size_t>(machine)].data());
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler = {[](void* failing, ucp_ep_h, ucs_status_t) { static_cast<peer*>(failing)->fails = true; },
                          &other};
    other.fails = api_->ucp_ep_create(worker_, &params, &other.endpoint) != UCS_OK;
  }

  /// Starts a message of `bytes`; without any, the push.
  void start(part& one, std::span<std::byte> bytes) noexcept {
    transfer& running = *one.of;
    const peer& other = *running.with;
    ++running.left;
    one.length = bytes.size();
    void* request = UCS_STATUS_PTR(UCS_ERR_NOT_CONNECTED);
    if (other.endpoint != nullptr) {
      one.is_under_way = true;
      request = post(one, bytes);
    }
    if (UCS_PTR_IS_ERR(request)) {
      one.is_under_way = false;
      finish_one(running, false);
    } else if (one.is_under_way) {  // else the callback came already
      one.request = request;
    }
  }

  void* post(part& one, std::span<std::byte> bytes) noexcept {
    const transfer& running = *one.of;
    ucp_request_param_t param{};
    // Without an immediate end, because only the callback gets the length that was received.
    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE |
                         UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    param.user_data = &one;
    param.memory_type = UCS_MEMORY_TYPE_HOST;
    if (!running.one->sends) {
      param.cb.recv = &on_received;
      return api_->ucp_tag_recv_nbx(worker_, bytes.data(), bytes.size(), tag(*running.one, running.one->machine),
                                    ~ucp_tag_t{0}, &param);
    }
    param.cb.send = &on_sent;
    if (bytes.empty()) {
      return api_->ucp_am_send_nbx(running.with->endpoint, push, nullptr, 0, nullptr, 0, &param);
    }
    return api_->ucp_tag_send_nbx(running.with->endpoint, bytes.data(), bytes.size(), tag(*running.one, self_), &param);
  }

  /// Returns the tag of a message: its channel and who sends it.
  static ucp_tag_t tag(const link_transfer& one, int sender) noexcept {
    return ucp_tag_t{one.channel} << 32 | static_cast<std::uint32_t>(sender);
  }

  static void on_sent(void* request, ucs_status_t status, void* one) noexcept {
    finish(request, *static_cast<part*>(one), status == UCS_OK);
  }

  static void on_received(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info, void* one) noexcept {
    auto& received = *static_cast<part*>(one);
    finish(request, received, status == UCS_OK && info->length == received.length);
  }

  static void finish(void* request, part& one, bool succeeded) noexcept {
    one.is_under_way = false;
    one.of->owner->api_->ucp_request_free(request);
    finish_one(*one.of, succeeded);
  }

  /// Ends one part of a transfer, or one function's work on it. The last one ends the transfer.
  static void finish_one(transfer& running, bool succeeded) noexcept {
    link_transfer& one = *running.one;
    one.failed = one.failed || !succeeded;
    if (--running.left == 0) {
      auto& transfers = running.with->transfers;
      *std::find(transfers.begin(), transfers.end(), &running) = transfers.back();
      transfers.pop_back();
      delete &running;
      one.native = nullptr;
      one.done.store(true, std::memory_order_release);
    }
  }

  void give_up_peers(std::span<const std::unique_ptr<peer>> peers) noexcept {
    if (worker_ == nullptr) {
      return;
    }
    std::vector<void*> closes;
    for (const auto& one : peers) {
      one->is_gone = true;
      if (one->endpoint != nullptr) {
        ucp_request_param_t param{};
        param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
        param.flags = UCP_EP_CLOSE_FLAG_FORCE;
        closes.push_back(api_->ucp_ep_close_nbx(std::exchange(one->endpoint, nullptr), &param));
      }
      cancel_receives(*one);
    }
    const bool all_ended = wait_until(std::chrono::milliseconds(200), [&] {
      return std::all_of(peers.begin(), peers.end(), [](auto& one) { return one->transfers.empty(); }) &&
             std::all_of(closes.begin(), closes.end(), [&](void* one) { return ended(one); });
    });
    free(closes);
    if (!all_ended) {
      give_up_worker();
    }
  }

  /// An endpoint's end completes the sends, but no receive: UCX knows a receive's sender by its tag alone.
  void cancel_receives(const peer& other) noexcept {
    for (transfer* running : std::vector(other.transfers)) {
      ++running->left;  // cancelling calls back at once
      for (auto& one_part : running->parts) {
        if (one_part.is_under_way && !running->one->sends) {
          api_->ucp_request_cancel(worker_, one_part.request);
        }
      }
      finish_one(*running, true);
    }
  }

  /// The last resort, where UCX keeps a transfer for itself: without a worker nothing touches memory.
  void give_up_worker() noexcept {
    api_->ucp_worker_destroy(std::exchange(worker_, nullptr));
    for (const auto& one : peers_) {
      one->endpoint = nullptr;
      one->fails = true;
      while (!one->transfers.empty()) {
        one->transfers.back()->left = 1;
        finish_one(*one->transfers.back(), false);
      }
    }
  }

  template <class Condition>
  bool wait_until(std::chrono::milliseconds most, Condition is_true) noexcept {
    const auto end = std::chrono::steady_clock::now() + most;
    while (!is_true()) {
      if (std::chrono::steady_clock::now() >= end) {
        return false;
      }
      if (!progress()) {
        sleep(-1, std::chrono::milliseconds(1));
      }
    }
    return true;
  }

  [[nodiscard]] bool ended(void* request) const noexcept {
    return !UCS_PTR_IS_PTR(request) || api_->ucp_request_check_status(request) != UCS_INPROGRESS;
  }

  void free(const std::vector<void*>& requests) const noexcept {
    for (void* one : requests) {
      if (UCS_PTR_IS_PTR(one)) {
        api_->ucp_request_free(one);
      }
    }
  }

  void release() noexcept {
    if (worker_ != nullptr) {
      give_up_worker();
    }
    api_->ucp_cleanup(context_);
  }

  const ucx_api* api_ = nullptr;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int event_descriptor_ = -1;
  int self_ = -1;
  std::vector<std::byte> address_;
  std::vector<std::vector<std::byte>> addresses_;
  std::vector<std::unique_ptr<peer>> peers_;
};

inline const bool has_ucx_link = register_link({
    .name = "ucx",
    .how_to_install = "libucx0 (Debian, Ubuntu), ucx (Fedora, RHEL, conda)",
    .place = 2,
    .is_meant = []() noexcept { return true; },
    .prepare = nullptr,
    .make = []() -> std::unique_ptr<link> { return std::make_unique<ucx>(); },
});

}  // namespace hfcomm::engines
