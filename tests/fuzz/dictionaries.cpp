// SPDX-License-Identifier: MIT
// Bytes as two ranks' messages of a dictionary reduction, and as a dictionary that becomes such a message.
#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include <hfcomm/collectives/detail/dictionary_difference.hpp>
#include <hfcomm/collectives/detail/dictionary_message.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/serialization/encoding.hpp>
#include <hfcomm/serialization/std_types.hpp>

#include "targets.hpp"

namespace fuzz {

namespace {

/// Compares the keys of two messages, as the ranks of a reduction do.
template <class Map>
void compare_messages(bytes input) {
  const std::size_t wanted = choose(input, 256);  // before the size is asked for
  const std::size_t middle = std::min(wanted, input.size());
  const bytes messages[] = {input.first(middle), input.subspan(middle)};
  try {
    std::vector<hfcomm::detail::dictionary_entry> entries;
    for (int rank = 0; rank < 2; ++rank) {
      hfcomm::detail::read_entries(hfcomm::detail::structure_of(messages[rank]), &hfcomm::detail::take_path<Map>, rank,
                                   entries);
    }
    require(!hfcomm::detail::describe_difference(entries, 2).empty(), "a difference has a text");
  } catch (const hfcomm::decode_error& problem) {
    require(!problem.detail().empty(), "a decode_error has a text");
  }
}

template <class Map>
std::size_t count_leaves(const Map& map) {
  if constexpr (hfcomm::dictionary<typename Map::mapped_type>) {
    std::size_t sum = 0;
    for (const auto& [key, value] : map) {
      sum += count_leaves(value);
    }
    return sum;
  } else {
    return map.size();
  }
}

/// The message of a dictionary has its leaves; reduced alone, the dictionary keeps its values.
template <class Map>
void write_message(bytes input) {
  Map map;
  try {
    hfcomm::decode_into(map, input);
  } catch (const hfcomm::decode_error&) {
    return;
  }
  std::vector<std::byte> before;
  hfcomm::encode(map, before);
  hfcomm::detail::dictionary_leaves<Map> leaves(map);
  std::vector<std::vector<std::byte>> messages(1);
  leaves.encode_to(messages[0], 1.0);
  require(messages[0].size() == leaves.message_bytes(), "a message is as long as announced");
  const auto structure = hfcomm::detail::structure_of(messages[0]);
  std::vector<hfcomm::detail::dictionary_entry> entries;
  hfcomm::detail::read_entries(structure, &hfcomm::detail::take_path<Map>, 0, entries);
  require(entries.size() == count_leaves(map), "a message has every leaf");
  leaves.reduce(messages, hfcomm::reduce_kind::max);
  std::vector<std::byte> after;
  hfcomm::encode(map, after);
  require(before == after, "one rank's reduction changes nothing");
}

using handler = void (*)(bytes input);
using flat = std::map<std::string, std::int64_t>;
using mixed = std::map<std::int16_t, std::variant<std::int32_t, std::uint8_t, std::int64_t>>;
using nested = std::map<std::string, std::map<std::string, std::map<bool, std::uint16_t>>>;

constexpr handler handlers[] = {
    compare_messages<flat>, compare_messages<mixed>, compare_messages<nested>,
    write_message<flat>,    write_message<mixed>,    write_message<nested>,
};

}  // namespace

void decode_dictionaries(bytes input) { handlers[choose(input, std::size(handlers))](input); }

}  // namespace fuzz
