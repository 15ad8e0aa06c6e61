// error: not_serializable<widget>::give_it_a_serialize_member_or_save_and_load_or_enable_raw_bytes
// SPDX-License-Identifier: MIT
#include <vector>

#include <hfcomm/collectives/collect_results.hpp>

struct widget {
  int x = 0;
};

int main() { return static_cast<int>(hfcomm::collect_results(std::vector<widget>(), 3).size()); }
