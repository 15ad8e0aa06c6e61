// SPDX-License-Identifier: MIT
#pragma once

#include <ATen/Parallel.h>

#include <sched.h>

#include <hfcomm/core/config.hpp>
#include <hfcomm/group/session.hpp>
#include <hfcomm/torch/threads.hpp>

namespace hfcomm::torch {

HFCOMM_INLINE int set_threads_for_ranks() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  const int count = ::sched_getaffinity(0, sizeof(cores), &cores) == 0 ? CPU_COUNT(&cores) : 1;
  const int threads = detail::threads_of_rank(count, local_size());
  at::set_num_threads(threads);
  return threads;
}

}  // namespace hfcomm::torch
