// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <hfcomm/core/error.hpp>
#include <hfcomm/machine/unix_socket.hpp>
#include <hfcomm/rendezvous/address_exchange.hpp>
#include <hfcomm/rendezvous/connected_member.hpp>
#include <hfcomm/rendezvous/follower_start.hpp>
#include <hfcomm/rendezvous/handshake.hpp>
#include <hfcomm/rendezvous/job_options.hpp>
#include <hfcomm/rendezvous/job_plan.hpp>
#include <hfcomm/rendezvous/local_rendezvous.hpp>
#include <hfcomm/rendezvous/machine_member.hpp>
#include <hfcomm/rendezvous/machine_start.hpp>
#include <hfcomm/rendezvous/root_start.hpp>

namespace hfcomm::rendezvous {

/// The start of a job that may have several machines, as the leader of one of them takes part: the first process of the
/// machine that has the job's local socket.
///
/// The leader on the machine of rank 0 is the root. It listens for the other leaders, unless all ranks come to its own
/// machine soon. Each of them tells which ranks have come to its machine. When the root knows all, it sends each the
/// plan of the job. The leaders make their machines' memory and hand it over; when all ranks are ready, the root lets
/// all go. Its connections stay, for the agents.
class job_start {
 public:
  job_start(job_options options, local_listener listener) : mine_(std::move(options), std::move(listener)) {}

  membership run() {
    try {
      while (!mine_.ranks.has(0)) {
        if (auto joined = others_.run()) {
          return std::move(*joined);
        }
      }
      return root_start(mine_).run();
    } catch (const timeout_error& problem) {
      mine_.tell(start_kind::timed_out, local::timed_out_text(problem.missing(), problem.detail()));
      throw;
    } catch (const usage_error& problem) {
      mine_.tell(start_kind::refused, problem.detail());
      throw;
    } catch (const error& problem) {
      mine_.tell(start_kind::failed, problem.detail());
      throw;
    }
  }

 private:
  machine_start mine_;
  follower_start others_{mine_};
};

/// Joins a job that may have several machines, and waits until all of its ranks have come. Throws as join_local_job
/// does.
inline membership join_job(job_options options) {
  const auto give_up = deadline::in(options.timeout);
  const std::string name = socket_name(options.local_key);
  const auto introduction = local::hello::of(options.rank, options.world_size, give_up);
  while (true) {
    if (auto listener = local_listener::try_at(name)) {
      return job_start(std::move(options), std::move(*listener)).run();
    }
    auto connection = connect_to(name);
    if (connection && local::introduce(*connection, introduction, give_up, std::nullopt)) {
      if (options.rank != 0 || !options.exchange->needs_all_ranks()) {
        options.exchange->attend();
      }
      const machine_member::parts own{
          .rank = options.rank, .world_size = options.world_size, .give_up = give_up, .leader = std::nullopt};
      return connected_member(std::move(*connection), own, *options.exchange).run();
    }
    if (give_up.passed()) {
      detail::throw_error<timeout_error>(
          {"timed out: the job did not start in time: the process that has its local socket (@", name,
           ") does not answer"},
          std::vector<int>{});
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace hfcomm::rendezvous
