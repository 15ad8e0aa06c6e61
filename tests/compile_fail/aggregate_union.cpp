// error: not_serializable<number>::a_union_does_not_say_which_member_it_holds_so_use_a_std_variant
// SPDX-License-Identifier: MIT
#include <hfcomm/aggregates.hpp>
#include <hfcomm/collectives/all_gather.hpp>

struct number {
  bool is_float;
  union {
    int integer;
    float real;
  };
};

int main() { return static_cast<int>(hfcomm::all_gather(number()).size()); }
