// SPDX-License-Identifier: MIT
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <hfcomm/collectives/detail/dictionary.hpp>
#include <hfcomm/serialization/encoding.hpp>

/// Error texts about dictionaries that cannot be reduced. Every rank has every rank's structure, so all ranks find the
/// same text.
namespace hfcomm::detail {

/// The place and the kind of one leaf of a rank's dictionary.
struct dictionary_entry {
  int rank = 0;
  std::string path;  ///< The keys' bytes with their sizes: equal for equal keys.
  std::string name;  ///< The readable keys: "val/loss".
  leaf_kind kind{};
};

template <class Key>
std::string key_text(const Key& key) {
  if constexpr (std::convertible_to<const Key&, std::string_view>) {
    return std::string(std::string_view(key));
  } else if constexpr (std::is_arithmetic_v<Key>) {
    return std::to_string(key);
  } else {
    return "(a key)";
  }
}

/// Returns the bytes of one key, which stand behind their size, and removes both from the front of `rest`. Throws
/// decode_error.
std::span<const std::byte> take_key(std::span<const std::byte>& rest);

/// Returns the keys on the path to one leaf, with slashes between, and removes them from the front of `rest`. Sets
/// `quoted` where one of them is text.
template <dictionary Map>
std::string take_path(std::span<const std::byte>& rest, bool& quoted) {
  using key_type = typename Map::key_type;
  key_type key{};
  decode_into(key, take_key(rest));
  quoted = quoted || std::convertible_to<const key_type&, std::string_view>;
  if constexpr (dictionary<typename Map::mapped_type>) {
    return key_text(key) + '/' + take_path<typename Map::mapped_type>(rest, quoted);
  } else {
    return key_text(key);
  }
}

/// A `take_path` of one type of dictionary.
using path_reader = std::string (*)(std::span<const std::byte>& rest, bool& quoted);

/// Adds the entries of a rank's structure. Throws decode_error where the bytes are not those of a structure.
[[gnu::cold]] void read_entries(std::span<const std::byte> structure, path_reader take_path, int rank,
                                std::vector<dictionary_entry>& entries);

/// Returns `rank 1 lacks "a"; ranks 0 and 2 lack "b", "c"; "d" is float64 on rank 0, int32 on ranks 1 and 2`. `entries`
/// are those of all ranks.
[[nodiscard, gnu::cold]] std::string describe_difference(std::span<const dictionary_entry> entries, int ranks);

}  // namespace hfcomm::detail
