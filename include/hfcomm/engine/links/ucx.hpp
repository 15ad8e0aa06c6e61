// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ucp/api/ucp.h>

#include <hfcomm/core/hash.hpp>
#include <hfcomm/engine/links/link.hpp>
#include <hfcomm/engine/links/ucx_worker.hpp>

namespace hfcomm::engines {

/// The link over UCX's tagged messages: TCP, and RDMA where there is hardware for it.
///
/// A transfer is cut into messages of at most `largest_message` bytes, each of which TCP carries in one segment. So a
/// receive over TCP is either not begun and can be cancelled, or complete: UCX never completes, nor cancels, the
/// receive of a message of which only some segments have arrived. The receiver has to cut alike, so the length is no
/// option.
class ucx final : public link {
 public:
  static constexpr std::size_t largest_message = ucx_worker::largest_message;

  ucx() : link("ucx", true, std::size_t{64} << 10) {}
  ~ucx() override { give_up_peers(peers_); }

  [[nodiscard]] std::vector<std::byte> address() const override { return worker_.address(); }

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
    auto* const running =
        new transfer{this, &other, &one, {}, 1};  // NOLINT(*unhandled-exception-at-new): ends the process
    running->parts.resize(messages, {running, 0, false, nullptr});
    one.native = running;
    other.transfers.push_back(running);
    connect(other, one.machine);
    for (std::size_t index = 0; index < messages; ++index) {
      const std::size_t begin = index * largest_message;
      start(running->parts[index], one.bytes.subspan(begin, std::min(largest_message, one.bytes.size() - begin)));
    }
    finish_one(*running, true);
  }

  void cancel(link_transfer& receive) noexcept override {
    if (!receive.done.load(std::memory_order_relaxed) && worker_.get() != nullptr) {
      cancel(*static_cast<transfer*>(receive.native));
    }
  }

  bool progress() noexcept override { return worker_.progress(); }

  [[nodiscard]] bool prepare_sleep() noexcept override { return worker_.prepare_sleep(); }

  void sleep(int descriptor, std::chrono::microseconds most) noexcept override { worker_.sleep(descriptor, most); }

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

  /// A message of a transfer.
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

  /// Makes the endpoint, also for a receive: its error handler tells of the other machine's death.
  void connect(peer& other, int machine) noexcept {
    if (other.endpoint != nullptr || other.is_gone || worker_.get() == nullptr) {
      return;
    }
    ucp_ep_params_t params{};
    params.field_mask =
        UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.address = reinterpret_cast<const ucp_address_t*>(addresses_[static_cast<std::size_t>(machine)].data());
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler = {[](void* failing, ucp_ep_h, ucs_status_t) { static_cast<peer*>(failing)->fails = true; },
                          &other};
    other.fails = api_->ucp_ep_create(worker_.get(), &params, &other.endpoint) != UCS_OK;
  }

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
      return api_->ucp_tag_recv_nbx(worker_.get(), bytes.data(), bytes.size(), tag(*running.one, running.one->machine),
                                    ~ucp_tag_t{0}, &param);
    }
    param.cb.send = &on_sent;
    return api_->ucp_tag_send_nbx(running.with->endpoint, bytes.data(), bytes.size(), tag(*running.one, self_), &param);
  }

  /// Returns the tag of a message, a hash of its channel and of who sends it: UCX has no other number of 64 bits.
  static ucp_tag_t tag(const link_transfer& one, int sender) noexcept {
    return hfcomm::detail::mix(hfcomm::detail::mix(one.channel, 1), static_cast<std::uint64_t>(sender));
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
    if (worker_.get() == nullptr) {
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
      if (!running->one->sends) {
        cancel(*running);
      }
    }
  }
  void cancel(transfer& receive) noexcept {
    ++receive.left;  // cancelling calls back at once
    for (const auto& one_part : receive.parts) {
      if (one_part.is_under_way) {
        api_->ucp_request_cancel(worker_.get(), one_part.request);
      }
    }
    finish_one(receive, true);
  }

  /// The last resort, where UCX keeps a transfer for itself: without a worker nothing touches memory.
  void give_up_worker() noexcept {
    worker_.destroy();
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
      if (!progress() && prepare_sleep()) {
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

  ucx_worker worker_;
  const ucx_api* api_ = &worker_.api();
  int self_ = -1;
  std::vector<std::vector<std::byte>> addresses_;
  std::vector<std::unique_ptr<peer>> peers_;
};

inline link_kind ucx_kind() {
  return {
      .name = "ucx",
      .how_to_install = "libucx0 (Debian, Ubuntu), ucx (Fedora, RHEL, conda)",
      .is_meant = &has_rdma,  // over TCP alone it takes longer than the link tcp
      .make = []() -> std::unique_ptr<link> { return std::make_unique<ucx>(); },
  };
}

}  // namespace hfcomm::engines
