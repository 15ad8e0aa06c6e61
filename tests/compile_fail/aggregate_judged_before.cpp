// error: partial specialization of .*aggregate_traits.* after instantiation|or_include_hfcomm_aggregates_hpp
// SPDX-License-Identifier: MIT
// A type that was judged before the header stays refused, and is never sent in two ways.
#include <string>

#include <hfcomm/collectives/all_gather.hpp>

struct sample {
  int id = 0;
  std::string text = {};
};
static_assert(!hfcomm::serializable<sample>);

#include <hfcomm/aggregates.hpp>

int main() { return static_cast<int>(hfcomm::all_gather(sample()).size()); }
