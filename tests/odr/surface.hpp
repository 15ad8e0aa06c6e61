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
#include <variant>
#include <vector>

#include <hfcomm/aggregates.hpp>
#include <hfcomm/comm.hpp>
#include <hfcomm/ddp.hpp>

#if defined(HFCOMM_NCCL)
#include "surface_device.hpp"
#endif

namespace surface {

struct point {
  float x, y;
};
struct record {
  std::string name;
  std::vector<point> points;
};

inline std::size_t call_parts();
inline std::size_t call_messages();
inline std::size_t call_the_rest();

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

#if defined(HFCOMM_NCCL)
  // In a volatile, so that the compiler does not see that it is never called.
  void (*volatile device_calls)(device_span<float>, device_span<const float>, stream_ref) = &call_devices;
  seen += device_calls != nullptr ? 1U : 0U;
#endif

  const process_group halves = group.split(/*color*/ 0, /*key*/ -me);
  const std::optional<process_group> first = group.subgroup({0});
  const process_group hasty = group.with_timeout(std::chrono::minutes(1));
  seen += static_cast<std::size_t>(halves.size()) + (first ? 1U : 0U) + static_cast<std::size_t>(hasty.size());

  // objects
  const std::map<std::string, std::vector<int>> object{{"a", {1, 2}}};
  const std::vector<std::map<std::string, std::vector<int>>> everyone = all_gather(object, group, here);
  const std::vector<int> at_root = gather(me, 0, group, here);
  seen += all_gather(record{"a", {{1, 2}, {3, 4}}}, group, here).back().points.size();
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
  seen += call_parts() + call_messages() + call_the_rest();
  return seen + (file.empty() ? 1U : 0U) + (seed == 0 ? 1U : 0U);
}

/// Parts, lists and other reductions.
inline std::size_t call_parts() {
  using namespace hfcomm;
  const process_group& group = world();
  const std::source_location here = std::source_location::current();
  const int me = rank();
  const std::vector<int> list = me == 0 ? std::vector<int>{1, 2} : std::vector<int>{};
  std::size_t seen = static_cast<std::size_t>(scatter(list, 0, group, here)) - static_cast<std::size_t>(me);
  seen += all_to_all(std::vector<std::string>{"a", "b"}, group, here).size();

  std::vector<double> four(4, 1.0);
  std::vector<double> two(2);
  std::vector<double> out(4);
  const std::vector<std::size_t> counts{2, 2};
  scatter(four, two, 0, group, here);
  scatter(four, two, counts, 0, group, here);
  all_to_all(four, out, group, here);
  all_to_all(four, counts, out, counts, group, here);
  reduce_scatter(four, two, reduce_op::max, group, here);
  reduce_scatter(four, two, counts, reduce_op::sum, group, here);
  all_gather(two, out, counts, group, here);
  gather(two, out, counts, 0, group, here);

  const received_parts<double> parts = all_gather_v(two, group, here);
  seen += parts.part(1).size() + all_to_all_v(four, counts, group, here).elements.size();
  seen += gather_v(two, 0, group, here).counts.size() / 2U - (me == 0 ? 1U : 0U);

  all_reduce(four, reduce_op::premultiplied_sum(0.5), group, here);
  const auto bits = all_reduce(1U << me, reduce_op::bit_or, group, here);
  const reduce_op chosen = reduce_op{reduce_kind::min};
  all_reduce(four, chosen, group, here);
  all_reduce(std::span(four), [](double left, double right) { return left + right; }, group, here);
  reduce(std::span(four), 0, [](double left, double right) { return left + right; }, group, here);
  scan(four, out, reduce_op::max, group, here);
  scan(std::span(four), [](double left, double right) { return left + right; }, group, here);
  hfcomm::exclusive_scan(four, reduce_op::sum, group, here);
  hfcomm::exclusive_scan(four, out, 0.5, [](double left, double right) { return left + right; }, group, here);
  seen += static_cast<std::size_t>(scan(me, reduce_op::sum, group, here) + hfcomm::exclusive_scan(1) - 2 * me);
  std::vector<std::span<double>> spans{four, two};
  broadcast(spans, 0, coalesce_options{.chunk_bytes = 24}, group, here);
  all_reduce(spans, reduce_op::average, group, here);

  weighted_mean accuracy;
  accuracy.add(0.5, 2.0);
  const std::map<std::string, std::variant<double, weighted_mean>> mixed{{"loss", 1.0}, {"accuracy", accuracy}};
  seen += all_reduce_dict(mixed, reduce_op::average, group, here).size();
  return seen + bits + static_cast<std::size_t>(out[3]);
}

/// Messages, and operations that are started.
inline std::size_t call_messages() {
  using namespace hfcomm;
  const process_group& group = world();
  const std::source_location here = std::source_location::current();
  const int me = rank();
  const int other = 1 - me;
  std::vector<float> mine(3, 1.0F);
  std::vector<float> theirs(3);
  std::size_t seen = 0;
  if (me == 0) {
    send(std::string("text"), other, group, /*tag*/ 1, here);
    send(std::span(mine), other, group, 1, here);
    seen += recv<std::string>(other, group, 0, here).size();
    seen += static_cast<std::size_t>(recv(std::span(theirs), any_source, group, 0, here)) - 1;
  } else {
    seen += recv<std::string>(any_source, group, 1, here).value.size();
    recv(std::span(theirs), other, group, 1, here);
    send(std::string("text"), other, group, 0, here);
    send(std::span(mine), other, group, 0, here);
  }
  work<std::string> object = irecv<std::string>(other, group, 2, here);
  work<void> elements = irecv(std::span(theirs), other, group, 3, here);
  isend(std::string("text"), other, group, 2, here).wait();
  isend(std::span(mine), other, group, 3, here).wait();
  seen += object.wait().size();
  elements.wait();
  seen += send_receive(std::string("text"), other, other, group, 0, here).size();
  send_receive(std::span(mine), other, std::span(theirs), other, group, 0, here);
  work<received_with_tag<int>> any = irecv<int>(any_source, group, any_tag, here);
  isend(7, other, group, 4, here).wait();
  seen += any.wait().tag == 4 && !try_probe(other, group, 99, here) ? 1U : 0U;
  send(1, null_rank, group, 0, here);
  seen += static_cast<std::size_t>(probe(null_rank, group, 0, here).bytes) + recv<std::string>(null_rank).size();
  message_batch batch(group);
  batch.send(std::span(mine), other).recv(std::span(theirs), other).run();

  work<void> started = all_reduce_async(mine, reduce_op::sum, group, here);
  work<std::vector<int>> gathered = all_gather_async(me, group, here);
  std::vector<work<int>> several;
  several.push_back(all_reduce_async(1, reduce_op::sum, group, here));
  seen += wait_any(several) + wait_any(several, std::chrono::minutes(1)).value_or(9);
  seen += wait_all(several, std::chrono::minutes(1)) ? static_cast<std::size_t>(wait_all(several).front()) : 9U;
  seen += started.wait(std::chrono::minutes(1)) ? 1U : 0U;
  seen += started.done() && started.error() == nullptr ? 1U : 0U;
  started.wait();
  return seen + gathered.wait().size();
}

/// Roles, data, and the rest of training.
inline std::size_t call_the_rest() {
  using namespace hfcomm;
  const process_group& group = world();
  const std::source_location here = std::source_location::current();
  const int me = rank();
  std::size_t seen = leader_group().has_value() == (me == 0) ? 1U : 0U;
  seen += master_only([] { return 1; }, group).has_value() == (me == 0) ? 1U : 0U;
  seen += on_rank(1, [] { return 1; }, group, here).has_value() == (me == 1) ? 1U : 0U;
  seen += static_cast<std::size_t>(run_master_only([] { return 1; }, group));
  print_main(group, "a line of ", 2, " ranks");
  std::vector<int> list{me};
  broadcast_object_list(list, 0, group, here);
  const std::vector<int> results = collect_results(std::vector<int>{me}, 2, 0, group, here);
  const std::vector<std::size_t> indices{static_cast<std::size_t>(me)};
  const std::vector<int> sorted = collect_results(indices, std::vector<int>{me}, 2, 0, group, here);
  seen += results == sorted ? 1U : 0U;

  distributed_sampler sampler(5, sampler_options{.shuffle = true, .seed = 1, .tail = tail::keep}, group);
  sampler.set_epoch(1);
  seen += sampler.size() + sampler.indices().size();

  std::vector<float> values(4);
  std::vector<float> gradients(4);
  distributed_data_parallel ddp({named_parameter("weights", values, gradients)}, {}, ddp_options{}, group);
  const auto pass = [&] {
    ddp.begin_forward();
    ddp.mark_ready(0);
    ddp.finish();
  };
  accumulate cycle(ddp, 2);
  for (int i = 0; i < 2; ++i) {
    const auto step = cycle.step();
    pass();
    seen += step.synchronizes() ? 1U : 0U;
  }
  run_joined(ddp, join_options{.divisor = divide_by::live_ranks}, [&] { pass(); });
  const std::vector<ddp_parameter> parameters{named_parameter("weights", values, gradients)};
  all_reduce_params(parameters);
  all_reduce_param_values(parameters);
  return seen;
}

template <class... Errors>
inline constexpr bool all_are_errors = (std::derived_from<Errors, hfcomm::error> && ...);
static_assert(all_are_errors<hfcomm::usage_error, hfcomm::mismatch_error, hfcomm::peer_error, hfcomm::timeout_error,
                             hfcomm::decode_error, hfcomm::engine_error>);

}  // namespace surface
