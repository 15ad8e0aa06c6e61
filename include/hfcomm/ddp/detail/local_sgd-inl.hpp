// SPDX-License-Identifier: MIT
#pragma once

#include <utility>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/ddp/all_reduce_params.hpp>
#include <hfcomm/ddp/ddp_options.hpp>
#include <hfcomm/ddp/detail/communication_hook-inl.hpp>
#include <hfcomm/ddp/local_sgd.hpp>

namespace hfcomm {

HFCOMM_INLINE communication_hook local_sgd(const process_group& subgroup, std::uint64_t first_local_pass,
                                           std::source_location where) {
  return [own = subgroup.split(0, subgroup.rank(), where), first_local_pass](gradient_bucket bucket) {
    detail::require_host_bucket(bucket, "local_sgd");
    if (bucket.divisor() != bucket.group().size()) {
      detail::throw_error<usage_error>(
          {bucket.group().rank(), bucket.group().size(), "distributed_data_parallel", 0, bucket.where()},
          {"local_sgd does not know which ranks of a subgroup have data in a join scope"});
    }
    return bucket.pass() < first_local_pass ? bucket.average() : bucket.average_within(own);
  };
}

HFCOMM_INLINE periodic_averager::periodic_averager(std::vector<ddp_parameter> parameters, std::uint64_t period,
                                                   std::uint64_t warmup, const process_group& group,
                                                   std::source_location where)
    : parameters_(std::move(parameters)), period_(period), warmup_(warmup), group_(group) {
  if (period == 0) {
    detail::throw_error<usage_error>({group.rank(), group.size(), "periodic_averager", 0, where},
                                     {"values cannot be averaged in every 0th step; 1 averages in each"});
  }
}

HFCOMM_INLINE bool periodic_averager::step(std::source_location where) {
  ++steps_;
  if (steps_ <= warmup_ || (steps_ - warmup_) % period_ != 0) {
    return false;
  }
  all_reduce_param_values(parameters_, reduce_op::average, ddp_options{}.bucket_bytes, group_, where);
  return true;
}

}  // namespace hfcomm
