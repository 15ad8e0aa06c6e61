// error: not_serializable<row>::it_has_more_than_24_members_so_group_them_or_give_it_a_serialize_member
// SPDX-License-Identifier: MIT
#include <hfcomm/aggregates.hpp>
#include <hfcomm/collectives/all_gather.hpp>

struct row {
  int m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18, m19, m20, m21, m22, m23, m24;
  int m25;
};

int main() { return static_cast<int>(hfcomm::all_gather(row()).size()); }
