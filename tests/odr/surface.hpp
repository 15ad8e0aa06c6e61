// SPDX-License-Identifier: MIT
// The public names with their parameters in order: a change that breaks a user's call breaks the build of this.
// Included by both translation units, so that every template exists twice in the program.
#pragma once

#include <chrono>
#include <concepts>
#include <map>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <vector>

#include <hfcomm/comm.hpp>

namespace surface {

/// Calls everything in the group of two that `launch` or `run_ranks` has made; returns what must be equal in both
/// units.
inline std::size_t call_everything() {
  using namespace hfcomm;
  const process_group& group = world();
  const std::source_location here = std::source_location::current();
  const int me = rank();
  auto seen = static_cast<std::size_t>(world_size()) + static_cast<std::size_t>(local_rank() + local_size());
  seen += static_cast<std::size_t>(node_rank() + node_count());
  seen += is_initialized() && is_main_process() == (me == 0) && is_local_main_process() == (local_group().rank() == 0);
  seen += group.host_backend().size() + group.device_backend().size();

  const process_group halves = group.split(/*color*/ 0, /*key*/ -me);
  const std::optional<process_group> first = group.subgroup({0});
  const process_group hasty = group.with_timeout(std::chrono::minutes(1));
  seen += static_cast<std::size_t>(halves.size()) + (first ? 1U : 0U) + static_cast<std::size_t>(hasty.size());

  // objects
  const std::map<std::string, std::vector<int>> object{{"a", {1, 2}}};
  const std::vector<std::map<std::string, std::vector<int>>> everyone = all_gather(object, group, here);
  const std::vector<int> at_root = gather(me, 0, group, here);
  std::string text = me == 0 ? "text" : "";
  broadcast(text, 0, group, here);
  const int most = all_reduce(me, [](int left, int right) { return left < right ? right : left; }, group, here);
  const std::map<std::string, double> metrics{{"loss", 1.0 + me}};
  const std::map<std::string, double> at_main = reduce_dict(metrics, reduce_op::average, 0, group, here);
  const std::map<std::string, double> anywhere = all_reduce_dict(metrics, reduce_op::average, group, here);
  seen += everyone.size() + text.size() + static_cast<std::size_t>(most) + anywhere.size() + at_main.size();

  // buffers
  std::vector<float> values(8, 1.0F);
  std::vector<float> out(16);
  all_reduce(std::span(values), reduce_op::sum, group, here);
  all_reduce(values, values, reduce_op::max, group, here);
  reduce(std::span(values), 0, reduce_op::sum, group, here);
  broadcast(std::span(values), 0, group, here);
  all_gather(values, out, group, here);
  gather(values, out, 0, group, here);
  barrier(group, here);
  const double mean = all_reduce(1.5 + me, reduce_op::average, group, here);
  const std::optional<float> total = reduce(1.0F, 0, reduce_op::sum, group, here);
  seen += static_cast<std::size_t>(mean) + (total ? 1U : 0U) + static_cast<std::size_t>(out[15]);

  // scopes
  {
    const master_first guard;
  }
  {
    const master_first guard(group);
  }
  {
    const local_master_first guard;
  }
  {
    const barrier_scope guard(group);
  }
  seen += static_cast<std::size_t>(run_master_first([] { return 1; }, group));
  seen += static_cast<std::size_t>(run_local_master_first([] { return 1; }));
  seen += static_cast<std::size_t>(run_barrier_scope([] { return 1; }, group));

  // the rest of the seeds, and training
  const std::string file = read_file_dist("/proc/self/comm", group, here);
  const std::uint64_t seed = shared_random_seed(group, here);
  std::vector<float> gradients(values.size());
  distributed_data_parallel ddp({named_parameter("weights", values, gradients)}, {named_buffer("statistics", out)},
                                ddp_options{}, group);
  {
    const auto accumulating = ddp.no_sync();
    ddp.mark_ready(0);
    ddp.finish();
  }
  ddp.begin_forward();
  ddp.mark_ready("weights");
  ddp.finish();
  return seen + (file.empty() ? 1U : 0U) + (seed == 0 ? 1U : 0U);
}

template <class... Errors>
inline constexpr bool all_are_errors = (std::derived_from<Errors, hfcomm::error> && ...);
static_assert(all_are_errors<hfcomm::usage_error, hfcomm::mismatch_error, hfcomm::peer_error, hfcomm::timeout_error,
                             hfcomm::decode_error, hfcomm::engine_error>);

}  // namespace surface
