// error: enable_raw_bytes_or_include_hfcomm_aggregates_hpp
// SPDX-License-Identifier: MIT
#include <string>

#include <hfcomm/collectives/all_gather.hpp>

struct sample {
  int id;
  std::string text;
};

int main() { return static_cast<int>(hfcomm::all_gather(sample()).size()); }
