// SPDX-License-Identifier: MIT
// The yardstick: a small program that serializes with cereal alone.
#include <cereal/archives/binary.hpp>
#include <cereal/types/map.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/vector.hpp>

#include <map>
#include <sstream>
#include <string>
#include <vector>

int main() {
  const std::map<std::string, std::vector<int>> sent{{"a", {1, 2}}, {"b", {}}};
  std::map<std::string, std::vector<int>> received;
  std::stringstream bytes;
  cereal::BinaryOutputArchive{bytes}(sent);
  cereal::BinaryInputArchive{bytes}(received);
  return sent == received ? 0 : 1;
}
