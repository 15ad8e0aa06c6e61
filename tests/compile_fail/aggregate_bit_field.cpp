// error: not_serializable<flags>::it_has_a_bit_field_so_use_an_integer_or_give_it_a_serialize_member
// SPDX-License-Identifier: MIT
#include <vector>

#include <hfcomm/aggregates.hpp>
#include <hfcomm/collectives/all_gather.hpp>

struct flags {
  unsigned low : 4;
  unsigned high : 28;
};

int main() { return static_cast<int>(hfcomm::all_gather(std::vector<flags>()).size()); }
