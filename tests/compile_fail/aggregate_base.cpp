// error: not_serializable<derived>::it_has_a_base_class_so_make_that_a_member_or_give_it_a_serialize_member
// SPDX-License-Identifier: MIT
#include <hfcomm/aggregates.hpp>
#include <hfcomm/collectives/all_gather.hpp>

struct base {
  int first = 0;
};
struct derived : base {
  int second = 0;
};

int main() { return static_cast<int>(hfcomm::all_gather(derived()).size()); }
