// error: a_decoded_view_would_have_nothing_to_view_so_use_a_container
// SPDX-License-Identifier: MIT
// A decoded view would have nothing to view.
#include <string_view>
#include <vector>

#include <hfcomm/serialization/encoding.hpp>

int main() {
  const std::vector<std::byte> bytes;
  return static_cast<int>(hfcomm::decode<std::vector<std::string_view>>(bytes).size());
}
