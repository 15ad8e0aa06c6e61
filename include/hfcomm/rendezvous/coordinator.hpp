// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/engine/call_text.hpp>
#include <hfcomm/machine/unix_socket.hpp>
#include <hfcomm/rendezvous/handshake.hpp>
#include <hfcomm/rendezvous/machine_leader.hpp>
#include <hfcomm/rendezvous/machine_memory.hpp>

namespace hfcomm::rendezvous::local {

/// Rank 0's side of the start of a job on one machine. Accepts the other ranks, hands over the job's memory, and starts
/// the job.
///
/// Every error is sent to all ranks that have come, and thrown.
class coordinator {
 public:
  /// `hint` ends the error about ranks that did not come.
  coordinator(const std::string& key, int world_size, deadline give_up, std::string hint = {})
      : ranks_(local_listener(socket_name(key)), 0, world_size, give_up), hint_(std::move(hint)) {}

  membership run() {
    accept_all_ranks();
    ranks_.close();
    membership result = hand_over_memory();
    wait_until_all_are_ready();
    ranks_.let_go();
    return result;
  }

 private:
  static constexpr std::chrono::milliseconds slice{20};

  [[gnu::cold]] void accept_all_ranks() {
    start_warning warning;
    for (auto absent = ranks_.absent(); !absent.empty(); absent = ranks_.absent()) {
      warning.check([&] { return engines::list_ranks(absent); });
      if (ranks_.give_up().passed()) {
        fail_with_timeout(absent,
                          detail::concat({engines::list_ranks(absent),
                                          " did not come; were all ranks started, with the same job key?", hint_}));
      }
      ranks_.admit(slice);
    }
  }

  /// Makes the roster and the world group's memory, and sends both to all ranks.
  [[gnu::cold]] membership hand_over_memory() {
    try {
      const auto memory = machine_memory::make(ranks_.world_size());
      ranks_.hand_over(memory, {}, 0);
      return enter_machine(memory, nullptr, 0, 0, ranks_.world_size());
    } catch (const error& problem) {
      ranks_.fail(detail::concat({"rank 0 cannot make the job's memory: ", problem.detail()}));
    } catch (const std::exception& problem) {
      ranks_.fail(detail::concat({"rank 0 cannot make the job's memory: ", problem.what()}));
    }
  }

  [[gnu::cold]] void wait_until_all_are_ready() {
    while (!ranks_.all_are_ready(slice)) {
      if (ranks_.give_up().passed()) {
        fail_with_timeout({ranks_.unready()},
                          detail::concat({engines::list_ranks({ranks_.unready()}), " came but did not sign in"}));
      }
    }
  }

  [[noreturn, gnu::cold]] void fail_with_timeout(const std::vector<int>& missing, const std::string& why) {
    const std::string text = detail::concat({"timed out: the job did not start in time: ", why});
    ranks_.tell(timed_out, timed_out_text(missing, text));
    detail::throw_error<timeout_error>({text}, missing);
  }

  machine_ranks ranks_;
  std::string hint_;
};

}  // namespace hfcomm::rendezvous::local
