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
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/serialization/encoding.hpp>

/// Error texts about dictionaries that cannot be reduced. Every rank has every rank's structure, so all ranks find the
/// same text.
namespace hfcomm::detail {

/// The place and the kind of one leaf.
struct dictionary_entry {
  std::string path;  ///< The keys' bytes with their sizes: equal for equal keys.
  std::string name;  ///< The readable keys: "val/loss".
  leaf_kind kind{};
};

template <class Key>
[[gnu::cold]] std::string key_text(const Key& key) {
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
[[gnu::cold]] std::string take_path(std::span<const std::byte>& rest, bool& quoted) {
  using key_type = typename Map::key_type;
  key_type key{};
  decode_into(key, take_key(rest));
  quoted = quoted || std::convertible_to<const key_type&, std::string_view>;
  if constexpr (dictionary<typename Map::mapped_type>) {
    return concat({key_text(key), '/', take_path<typename Map::mapped_type>(rest, quoted)});
  } else {
    return key_text(key);
  }
}

/// A `take_path` of one type of dictionary.
using path_reader = std::string (*)(std::span<const std::byte>& rest, bool& quoted);

/// Returns the entries of a structure. Throws decode_error where the bytes are not those of a structure.
[[gnu::cold]] std::vector<dictionary_entry> read_entries(std::span<const std::byte> structure, path_reader take_path);

template <dictionary Map>
std::vector<dictionary_entry> entries_of(std::span<const std::byte> structure) {
  return read_entries(structure, &take_path<Map>);
}

/// A table of all ranks' leaves.
class dictionary_difference {
 public:
  /// `of_ranks[rank]` are that rank's entries.
  [[gnu::cold]] explicit dictionary_difference(const std::vector<std::vector<dictionary_entry>>& of_ranks);

  /// Returns `rank 1 lacks "a"; ranks 0 and 2 lack "b", "c"; "d" is float64 on rank 0, int32 on ranks 1 and 2`.
  [[nodiscard, gnu::cold]] std::string describe() const;

 private:
  struct row {
    std::string name;
    std::vector<leaf_kind> kinds;  // by rank; zero where it has none
  };

  static constexpr std::size_t max_names = 32;

  [[nodiscard, gnu::cold]] std::string missing_keys() const;
  [[nodiscard, gnu::cold]] std::string different_types(const row& key) const;

  std::size_t ranks_;
  std::vector<row> table_;
};

}  // namespace hfcomm::detail
