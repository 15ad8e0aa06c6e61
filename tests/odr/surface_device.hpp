// SPDX-License-Identifier: MIT
// The public names of the device plane with their parameters in order. Compiled, not called: that takes devices.
#pragma once

#include <chrono>
#include <map>
#include <source_location>
#include <string>
#include <vector>

#include <hfcomm/comm.hpp>
#include <hfcomm/ddp.hpp>

namespace surface {

inline void call_devices(hfcomm::device_span<float> one, hfcomm::device_span<const float> fixed,
                         hfcomm::stream_ref stream) {
  using namespace hfcomm;
  const process_group group = world().with_device_checks(world().checks_devices());
  const std::source_location here = std::source_location::current();
  const std::vector<std::size_t> counts{one.size()};
  constexpr auto sum = reduce_op::sum;
  connect_device(group, here);
  all_reduce(one, stream, sum, group, here);
  all_reduce(fixed, one, stream, sum, group, here);
  reduce(one, stream, /*root*/ 0, sum, group, here);
  reduce(fixed, one, stream, /*root*/ 0, sum, group, here);
  broadcast(one, stream, /*root*/ 0, group, here);
  all_gather(fixed, one, stream, group, here);
  all_gather(fixed, one, counts, stream, group, here);
  reduce_scatter(fixed, one, stream, sum, group, here);
  reduce_scatter(fixed, one, counts, stream, sum, group, here);
  gather(fixed, one, stream, /*root*/ 0, group, here);
  gather(fixed, one, counts, stream, /*root*/ 0, group, here);
  scatter(fixed, one, stream, /*root*/ 0, group, here);
  scatter(fixed, one, counts, stream, /*root*/ 0, group, here);
  all_to_all(fixed, one, stream, group, here);
  all_to_all(fixed, counts, one, counts, stream, group, here);
  barrier(stream, group, here);
  send(fixed, stream, /*destination*/ 0, group, here);
  recv(one, stream, /*source*/ 0, group, here);
  send_receive(fixed, /*destination*/ 0, one, /*source*/ 0, stream, group, here);
  const std::map<std::string, device_span<float>> losses{{"loss", one}};
  reduce_dict(losses, stream, sum, /*root*/ 0, group, here);
  all_reduce_dict(losses, stream, sum, group, here);
  device_work work = all_reduce_async(one, stream, sum, group, here);
  work = all_reduce_async(fixed, one, stream, sum, group, here);
  work = reduce_async(one, stream, /*root*/ 0, sum, group, here);
  work = reduce_async(fixed, one, stream, /*root*/ 0, sum, group, here);
  work = broadcast_async(one, stream, /*root*/ 0, group, here);
  work = all_gather_async(fixed, one, stream, group, here);
  work = all_gather_async(fixed, one, counts, stream, group, here);
  work = reduce_scatter_async(fixed, one, stream, sum, group, here);
  work = reduce_scatter_async(fixed, one, counts, stream, sum, group, here);
  work = gather_async(fixed, one, stream, /*root*/ 0, group, here);
  work = gather_async(fixed, one, counts, stream, /*root*/ 0, group, here);
  work = scatter_async(fixed, one, stream, /*root*/ 0, group, here);
  work = scatter_async(fixed, one, counts, stream, /*root*/ 0, group, here);
  work = all_to_all_async(fixed, one, stream, group, here);
  work = all_to_all_async(fixed, counts, one, counts, stream, group, here);
  work = barrier_async(stream, group, here);
  work = isend(fixed, stream, /*destination*/ 0, group, here);
  work = irecv(one, stream, /*source*/ 0, group, here);
  work.wait(stream);
  if (!work.done() && !work.synchronize(std::chrono::seconds(1))) {
    work.synchronize();
  }
  {
    nccl_group_scope together(group, here);
    all_reduce(one, stream);
    together.end();
  }
  const device_watch watch(std::chrono::seconds(10), group, here);
  registered_buffer<float> known(1, group, here);
  all_reduce(known, stream);
  ddp_options options;
  options.stream = stream;
  const distributed_data_parallel training({named_parameter("known", known, one)}, {named_buffer("one", one)}, options,
                                           group, here);
  synchronize(stream, training.device_group());
  synchronize(stream, group, here);
}

}  // namespace surface
