// compiles
// SPDX-License-Identifier: MIT
#include <string>
#include <vector>

#include <hfcomm/aggregates.hpp>
#include <hfcomm/comm.hpp>

// The header of aggregates may stand before the others.
struct sample {
  int id = 0;
  std::string text = {};
};
struct box {
  float left, right;
};
static_assert(hfcomm::serializable<sample> && hfcomm::plain<box>);

std::vector<sample> everyone();
std::vector<sample> everyone() { return hfcomm::all_gather(sample()); }
