// compiles
// SPDX-License-Identifier: MIT
// If the other programs failed because of a missing header or a wrong flag, this one would fail as well.
#include <map>
#include <string>
#include <vector>

#include <hfcomm/comm.hpp>

std::vector<std::map<std::string, std::vector<float>>> everyone();
std::vector<std::map<std::string, std::vector<float>>> everyone() {
  return hfcomm::all_gather(std::map<std::string, std::vector<float>>{{"loss", {1.0F, 0.5F}}});
}
