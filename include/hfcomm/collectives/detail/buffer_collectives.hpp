// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include <hfcomm/call/argument_checks.hpp>
#include <hfcomm/call/async.hpp>
#include <hfcomm/engine/operation.hpp>
#include <hfcomm/group/process_group.hpp>

/// The operations on elements in host memory, without their type. Each enters the group, checks its arguments, and
/// passes bytes to the engine. `call` has the name, the type, the root and the reduction. The `_parts` forms are for
/// parts of different lengths: `counts[r]` elements for, or from, rank r.
namespace hfcomm::detail {

void all_gather_buffer(operation&& call, const const_elements& in, const elements& out, const process_group& group);
void all_gather_parts(operation&& call, const const_elements& in, const elements& out,
                      std::span<const std::size_t> counts, const process_group& group);
void all_reduce_buffer(operation&& call, const const_elements& in, const elements& out, const process_group& group);
void all_to_all_buffer(operation&& call, const const_elements& in, const elements& out, const process_group& group);
void all_to_all_parts(operation&& call, const const_elements& in, std::span<const std::size_t> in_counts,
                      const elements& out, std::span<const std::size_t> out_counts, const process_group& group);
void broadcast_buffer(operation&& call, const elements& data, const process_group& group);
void gather_buffer(operation&& call, const const_elements& in, const elements& out, const process_group& group);
void gather_parts(operation&& call, const const_elements& in, const elements& out, std::span<const std::size_t> counts,
                  const process_group& group);
void reduce_buffer(operation&& call, const const_elements& in, const elements& out, const process_group& group);
void reduce_scatter_buffer(operation&& call, const const_elements& in, const elements& out, const process_group& group);
void reduce_scatter_parts(operation&& call, const const_elements& in, const elements& out,
                          std::span<const std::size_t> counts, const process_group& group);
void scatter_buffer(operation&& call, const const_elements& in, const elements& out, const process_group& group);
void scatter_parts(operation&& call, const const_elements& in, const elements& out, std::span<const std::size_t> counts,
                   const process_group& group);

using buffer_check = void (*)(checked_call& running, const const_elements& in, const const_elements& out);
using buffer_collective = void (*)(operation&& call, const const_elements& in, const elements& out,
                                   const process_group& group);
using parts_check = void (*)(checked_call& running, const const_elements& in, const const_elements& out,
                             std::span<const std::size_t> counts);
using parts_collective = void (*)(operation&& call, const const_elements& in, const elements& out,
                                  std::span<const std::size_t> counts, const process_group& group);

/// Starts one of the operations above, once its arguments are checked. The buffers must stay until the work is done.
template <buffer In, output_for<In> Out>
work<void> start_on_buffers(const operation& call, buffer_check check, buffer_collective run, const In& in, Out& out,
                            const process_group& group) {
  return start_on(call, check, run, group, elements_of(in), writable_elements_of(out));
}
template <buffer In, output_for<In> Out>
work<void> start_on_parts(const operation& call, parts_check check, parts_collective run, const In& in, Out& out,
                          std::vector<std::size_t> counts, const process_group& group) {
  return start_on(call, check, run, group, elements_of(in), writable_elements_of(out), std::move(counts));
}

/// Returns the result of `run`, a reduction in place, of one number per rank on the ranks that receive; Result()
/// elsewhere.
template <class Result, class T>
Result reduce_number(operation&& call, buffer_collective run, T value, const process_group& group) {
  const bool receives = call.receives(group.rank());
  const elements element{reinterpret_cast<std::byte*>(&value), 1, sizeof(T)};
  run(std::move(call), element, element, group);  // NOLINT(*-move-const-arg): it takes the call as its own
  return receives ? Result(value) : Result();
}

/// Starts the same.
template <class Result, class T>
work<Result> start_on_number(const operation& call, buffer_check check, buffer_collective run, T value,
                             const process_group& group) {
  const auto check_number = [check](checked_call& running, const T& number) {
    const auto element = elements_of(std::span(&number, 1));
    check(running, element, element);
  };
  const auto reduce = [run](operation&& begun, const T& number, const process_group& its_group) {
    return reduce_number<Result>(std::move(begun), run, number, its_group);
  };
  return start_on(call, check_number, reduce, group, value);
}

class running_call;

/// The bytes for each rank, and the memory for those of each rank, wherever they are.
using bytes_of_ranks = std::span<const std::span<const std::byte>>;
using memory_of_ranks = std::span<const std::span<std::byte>>;

/// Sends each rank its part, and receives the ranks' parts in their places.
void exchange_places(running_call& running, const operation& call, bytes_of_ranks parts, memory_of_ranks to);
/// Sends `mine` to the root, which receives the ranks' parts in their places. Other ranks have empty ones.
void send_to_root(running_call& running, const operation& call, std::span<const std::byte> mine, memory_of_ranks to);
/// Gives every rank the part of the root's `parts` that is for it, in `out`. Other ranks have empty parts.
void receive_from_root(running_call& running, const operation& call, bytes_of_ranks parts, std::span<std::byte> out);

}  // namespace hfcomm::detail
