// compiles
// SPDX-License-Identifier: MIT
// Were the others to fail for a reason of their own (a missing header, a wrong flag), this one would fail with them.
#include <map>
#include <string>
#include <vector>

#include <hfcomm/comm.hpp>

std::vector<std::map<std::string, std::vector<float>>> everyone();
std::vector<std::map<std::string, std::vector<float>>> everyone() {
  return hfcomm::all_gather(std::map<std::string, std::vector<float>>{{"loss", {1.0F, 0.5F}}});
}
