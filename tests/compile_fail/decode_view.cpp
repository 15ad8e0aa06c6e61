// error: is_same_v<(_Tp, _Up> \[with _Tp = )?std::basic_string_view<char(, std::char_traits<char> )?>[,;]
// SPDX-License-Identifier: MIT
// A decoded view would have nothing to view.
#include <string_view>
#include <vector>

#include <hfcomm/serialization/encoding.hpp>

int main() {
  const std::vector<std::byte> bytes;
  return static_cast<int>(hfcomm::decode<std::vector<std::string_view>>(bytes).size());
}
