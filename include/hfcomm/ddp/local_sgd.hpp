// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

#include <hfcomm/core/call_site.hpp>
#include <hfcomm/ddp/communication_hook.hpp>
#include <hfcomm/ddp/parameter.hpp>
#include <hfcomm/group/process_group.hpp>
#include <hfcomm/group/session.hpp>

namespace hfcomm {

/// Returns a hook that averages gradients over all ranks before the pass `first_local_pass`, and from then on over the
/// ranks of `subgroup` only, often those of a machine: `local_group()`. The models of different subgroups then part
/// until a `periodic_averager` averages them.
///
/// Every pass still ends with an operation of a few bytes among all ranks, as with every hook, and `broadcast_buffers`
/// begins it with rank 0's buffers. Collective over `subgroup`, of which it makes a group of its own. For gradients in
/// host memory, and not in passes that a join_scope divides by fewer ranks (usage_error). (Semantics of torch's
/// post_localSGD_hook.)
[[nodiscard]] communication_hook local_sgd(const process_group& subgroup, std::uint64_t first_local_pass,
                                           call_site where = call_site::current());

/// Averages the values of a model over the ranks, once in a number of steps, while the ranks train on their own between
/// them (local SGD):
///
///     hfcomm::periodic_averager averager(parameters, 4);
///     for (...) {
///       ...
///       optimizer.step();
///       averager.step();
///     }
///
/// The memory that the parameters name must outlive it; their gradients are not used. Host memory only. Thread-safety:
/// one thread at a time. (torch's PeriodicModelAverager, which averages in the first step after the warm-up, too.)
class periodic_averager {
 public:
  /// Averages in each `period`-th step after the first `warmup` steps, in which nothing is done. Throws usage_error
  /// where `period` is 0. Not collective.
  periodic_averager(std::vector<ddp_parameter> parameters, std::uint64_t period, std::uint64_t warmup = 0,
                    const process_group& group = world(), call_site where = call_site::current());

  /// To be called after each step of the optimizer. Collective in the steps that average. Returns whether this one did.
  /// Throws the errors of all_reduce_param_values; the step counts all the same.
  bool step(call_site where = call_site::current());

 private:
  std::vector<ddp_parameter> parameters_;
  std::uint64_t period_;
  std::uint64_t warmup_;
  std::uint64_t steps_ = 0;
  process_group group_;
};

}  // namespace hfcomm
