// SPDX-License-Identifier: MIT
#pragma once

#include <cstring>
#include <span>
#include <vector>

#include <hfcomm/comm.hpp>

#include "char_lm/model.hpp"

namespace char_lm {

/// Whether every rank holds rank 0's parameters, bit for bit. Collective; all ranks get the same answer.
inline bool identical_everywhere(const model& network, const hfcomm::process_group& group = hfcomm::world()) {
  bool equal = true;
  for (const auto& parameter : network.parameters()) {
    std::vector<float> reference(parameter.value.begin(), parameter.value.end());
    hfcomm::broadcast(std::span(reference), 0, group);
    equal = equal && std::memcmp(reference.data(), parameter.value.data(), parameter.value.size_bytes()) == 0;
  }
  return hfcomm::all_reduce(equal ? 1 : 0, hfcomm::reduce_op::min, group) == 1;
}

}  // namespace char_lm
