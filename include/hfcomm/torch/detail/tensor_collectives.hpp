// SPDX-License-Identifier: MIT
#pragma once

#include <utility>

#include <hfcomm/call/argument_checks.hpp>
#include <hfcomm/collectives/detail/buffer_collectives.hpp>
#include <hfcomm/device/detail/device_moves.hpp>
#include <hfcomm/device/detail/device_reductions.hpp>
#include <hfcomm/engine/operation.hpp>
#include <hfcomm/group/process_group.hpp>
#include <hfcomm/torch/detail/tensor_operation.hpp>

/// The collectives, each as a class of its names, the check of its arguments, and its forms on the two planes. `How` is
/// on_stream or on_own_stream; with the latter the result is a device_work.
namespace hfcomm::torch::detail {

using hfcomm::detail::checked_call;

struct all_gather_of {
  static constexpr tensor_collective names{"all_gather", "device all_gather", engines::movement::to_all};
  static void check(checked_call& running, const tensor_buffers& of) {
    of.has_counts ? hfcomm::detail::check_all_gather(running, of.in, of.out, of.counts)
                  : hfcomm::detail::check_all_gather(running, of.in, of.out);
  }
  static void on_host(engines::operation&& call, const tensor_buffers& of, const process_group& group) {
    of.has_counts ? hfcomm::detail::all_gather_parts(std::move(call), of.in, of.out, of.counts, group)
                  : hfcomm::detail::all_gather_buffer(std::move(call), of.in, of.out, group);
  }
  template <class How>
  static auto on_device(const engines::operation& call, const tensor_buffers& of, How how, const process_group& group) {
    return of.has_counts ? hfcomm::detail::device_all_gather(call, of.in, of.out, of.counts, how, group)
                         : hfcomm::detail::device_all_gather(call, of.in, of.out, how, group);
  }
};

struct all_reduce_of {
  static constexpr tensor_collective names{"all_reduce", "device all_reduce", engines::movement::to_all};
  static void check(checked_call& running, const tensor_buffers& of) {
    hfcomm::detail::check_all_reduce(running, of.in, of.out);
  }
  static void on_host(engines::operation&& call, const tensor_buffers& of, const process_group& group) {
    hfcomm::detail::all_reduce_buffer(std::move(call), of.in, of.out, group);
  }
  template <class How>
  static auto on_device(const engines::operation& call, const tensor_buffers& of, How how, const process_group& group) {
    return hfcomm::detail::device_all_reduce(call, of.in, of.out, how, group);
  }
};

struct all_to_all_of {
  static constexpr tensor_collective names{"all_to_all", "device all_to_all", engines::movement::to_all, true};
  static void check(checked_call& running, const tensor_buffers& of) {
    of.has_counts ? hfcomm::detail::check_all_to_all(running, of.in, of.counts, of.out, of.out_counts)
                  : hfcomm::detail::check_all_to_all(running, of.in, of.out);
  }
  static void on_host(engines::operation&& call, const tensor_buffers& of, const process_group& group) {
    of.has_counts ? hfcomm::detail::all_to_all_parts(std::move(call), of.in, of.counts, of.out, of.out_counts, group)
                  : hfcomm::detail::all_to_all_buffer(std::move(call), of.in, of.out, group);
  }
  template <class How>
  static auto on_device(const engines::operation& call, const tensor_buffers& of, How how, const process_group& group) {
    return of.has_counts ? hfcomm::detail::device_all_to_all(call, of.in, of.counts, of.out, of.out_counts, how, group)
                         : hfcomm::detail::device_all_to_all(call, of.in, of.out, how, group);
  }
};

struct broadcast_of {
  static constexpr tensor_collective names{"broadcast", "device broadcast", engines::movement::from_root};
  static void check(checked_call& running, const tensor_buffers& of) {
    hfcomm::detail::check_broadcast(running, of.out);
  }
  static void on_host(engines::operation&& call, const tensor_buffers& of, const process_group& group) {
    hfcomm::detail::broadcast_buffer(std::move(call), of.out, group);
  }
  template <class How>
  static auto on_device(const engines::operation& call, const tensor_buffers& of, How how, const process_group& group) {
    return hfcomm::detail::device_broadcast(call, of.out, how, group);
  }
};

struct gather_of {
  static constexpr tensor_collective names{"gather", "device gather", engines::movement::to_root};
  static void check(checked_call& running, const tensor_buffers& of) {
    of.has_counts ? hfcomm::detail::check_gather(running, of.in, of.out, of.counts)
                  : hfcomm::detail::check_gather(running, of.in, of.out);
  }
  static void on_host(engines::operation&& call, const tensor_buffers& of, const process_group& group) {
    of.has_counts ? hfcomm::detail::gather_parts(std::move(call), of.in, of.out, of.counts, group)
                  : hfcomm::detail::gather_buffer(std::move(call), of.in, of.out, group);
  }
  template <class How>
  static auto on_device(const engines::operation& call, const tensor_buffers& of, How how, const process_group& group) {
    return of.has_counts ? hfcomm::detail::device_gather(call, of.in, of.out, of.counts, how, group)
                         : hfcomm::detail::device_gather(call, of.in, of.out, how, group);
  }
};

struct reduce_of {
  static constexpr tensor_collective names{"reduce", "device reduce", engines::movement::to_root};
  static void check(checked_call& running, const tensor_buffers& of) {
    hfcomm::detail::check_reduce(running, of.in, of.out);
  }
  static void on_host(engines::operation&& call, const tensor_buffers& of, const process_group& group) {
    hfcomm::detail::reduce_buffer(std::move(call), of.in, of.out, group);
  }
  template <class How>
  static auto on_device(const engines::operation& call, const tensor_buffers& of, How how, const process_group& group) {
    return hfcomm::detail::device_reduce(call, of.in, of.out, how, group);
  }
};

struct reduce_scatter_of {
  static constexpr tensor_collective names{"reduce_scatter", "device reduce_scatter", engines::movement::to_all};
  static void check(checked_call& running, const tensor_buffers& of) {
    of.has_counts ? hfcomm::detail::check_reduce_scatter(running, of.in, of.out, of.counts)
                  : hfcomm::detail::check_reduce_scatter(running, of.in, of.out);
  }
  static void on_host(engines::operation&& call, const tensor_buffers& of, const process_group& group) {
    of.has_counts ? hfcomm::detail::reduce_scatter_parts(std::move(call), of.in, of.out, of.counts, group)
                  : hfcomm::detail::reduce_scatter_buffer(std::move(call), of.in, of.out, group);
  }
  template <class How>
  static auto on_device(const engines::operation& call, const tensor_buffers& of, How how, const process_group& group) {
    return of.has_counts ? hfcomm::detail::device_reduce_scatter(call, of.in, of.out, of.counts, how, group)
                         : hfcomm::detail::device_reduce_scatter(call, of.in, of.out, how, group);
  }
};

struct scatter_of {
  static constexpr tensor_collective names{"scatter", "device scatter", engines::movement::from_root};
  static void check(checked_call& running, const tensor_buffers& of) {
    of.has_counts ? hfcomm::detail::check_scatter(running, of.in, of.out, of.counts)
                  : hfcomm::detail::check_scatter(running, of.in, of.out);
  }
  static void on_host(engines::operation&& call, const tensor_buffers& of, const process_group& group) {
    of.has_counts ? hfcomm::detail::scatter_parts(std::move(call), of.in, of.out, of.counts, group)
                  : hfcomm::detail::scatter_buffer(std::move(call), of.in, of.out, group);
  }
  template <class How>
  static auto on_device(const engines::operation& call, const tensor_buffers& of, How how, const process_group& group) {
    return of.has_counts ? hfcomm::detail::device_scatter(call, of.in, of.out, of.counts, how, group)
                         : hfcomm::detail::device_scatter(call, of.in, of.out, how, group);
  }
};

}  // namespace hfcomm::torch::detail
