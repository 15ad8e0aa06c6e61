// error: not_serializable<view>::a_member_is_constant_or_a_reference_or_has_no_default_constructor
// SPDX-License-Identifier: MIT
#include <hfcomm/aggregates.hpp>
#include <hfcomm/collectives/all_gather.hpp>

struct view {
  const int& number;
};

int main() { return static_cast<int>(hfcomm::all_gather(view{1}).size()); }
