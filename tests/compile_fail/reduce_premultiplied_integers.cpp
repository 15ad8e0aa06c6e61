// error: reduction\(typed_reduce_op<Kind>\) = delete;  // an average or premultiplied sum needs floating-point elements
// SPDX-License-Identifier: MIT
#include <hfcomm/collectives/reduce.hpp>

int main() { return hfcomm::reduce(1, 0, hfcomm::reduce_op::premultiplied_sum(0.5)).has_value() ? 0 : 1; }
