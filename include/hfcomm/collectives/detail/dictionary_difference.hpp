// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <hfcomm/collectives/detail/dictionary.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/engine/call_text.hpp>
#include <hfcomm/serialization/object.hpp>

/// What to say about dictionaries that cannot be reduced. Every rank has every rank's structure, and so says the same.
namespace hfcomm::detail {

/// Where a leaf is, and what it is.
struct dictionary_entry {
  std::string path;  ///< The keys' bytes with their sizes: equal for equal keys.
  std::string name;  ///< The keys for people: "val/loss"
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

/// Takes the front of `rest`.
inline std::span<const std::byte> take_bytes(std::span<const std::byte>& rest, std::uint64_t size) {
  if (size > rest.size()) {
    throw decode_error(error_context{}, "its keys are cut off");
  }
  const auto taken = rest.first(static_cast<std::size_t>(size));
  rest = rest.subspan(static_cast<std::size_t>(size));
  return taken;
}

/// Takes the keys on one leaf's way from the front of `rest` and returns them with slashes between; `quoted` becomes
/// true where one of them is text.
template <dictionary Map>
std::string take_path(std::span<const std::byte>& rest, bool& quoted) {
  using key_type = typename Map::key_type;
  std::uint64_t size = 0;
  const auto number = take_bytes(rest, sizeof(size));
  std::memcpy(&size, number.data(), sizeof(size));
  key_type key{};
  decode_into(key, take_bytes(rest, size));
  quoted = quoted || std::convertible_to<const key_type&, std::string_view>;
  if constexpr (dictionary<typename Map::mapped_type>) {
    return key_text(key) + '/' + take_path<typename Map::mapped_type>(rest, quoted);
  } else {
    return key_text(key);
  }
}

/// Throws decode_error where the bytes are not those of a structure.
template <dictionary Map>
std::vector<dictionary_entry> entries_of(std::span<const std::byte> structure) {
  std::vector<dictionary_entry> entries;
  while (!structure.empty()) {
    const auto start = structure;
    bool quoted = false;
    dictionary_entry entry;
    entry.name = take_path<Map>(structure, quoted);
    entry.name = quoted ? '"' + entry.name + '"' : entry.name;
    entry.path.assign(reinterpret_cast<const char*>(start.data()), start.size() - structure.size());
    entry.kind = static_cast<leaf_kind>(take_bytes(structure, 1)[0]);
    entries.push_back(std::move(entry));
  }
  return entries;
}

/// All ranks' leaves in one table.
class dictionary_difference {
 public:
  /// `of_ranks[rank]` are that rank's entries.
  explicit dictionary_difference(const std::vector<std::vector<dictionary_entry>>& of_ranks) : ranks_(of_ranks.size()) {
    std::map<std::pair<std::string_view, std::string_view>, std::size_t> places;
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      for (const auto& entry : of_ranks[rank]) {
        const auto [place, is_new] = places.try_emplace({entry.name, entry.path}, table_.size());
        if (is_new) {
          table_.push_back({entry.name, entry.path, std::vector<leaf_kind>(ranks_)});
        }
        table_[place->second].kinds[rank] = entry.kind;
      }
    }
    std::sort(table_.begin(), table_.end(), [](const row& left, const row& right) {
      return std::tie(left.name, left.path) < std::tie(right.name, right.path);
    });
  }

  /// `rank 1 lacks "a"; ranks 0 and 2 lack "b", "c"; "d" is float64 on rank 0, int32 on ranks 1 and 2`
  [[nodiscard]] std::string describe() const {
    std::string text = missing();
    for (const row& key : table_) {
      const std::string types = different_types(key);
      text += types.empty() || text.empty() ? types : "; " + types;
    }
    return text.empty() ? "they have the same ones in another order" : text;
  }

 private:
  struct row {
    std::string name;
    std::string path;
    std::vector<leaf_kind> kinds;  // by rank; zero where it has none
  };

  static constexpr std::size_t most_names = 32;

  /// Ranks that lack the same keys are told about together.
  [[nodiscard]] std::string missing() const {
    std::vector<std::pair<std::vector<std::size_t>, std::vector<int>>> groups;
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      std::vector<std::size_t> lacks;
      for (std::size_t key = 0; key < table_.size(); ++key) {
        if (table_[key].kinds[rank] == leaf_kind{}) {
          lacks.push_back(key);
        }
      }
      if (!lacks.empty()) {
        auto known =
            std::find_if(groups.begin(), groups.end(), [&](const auto& group) { return group.first == lacks; });
        if (known == groups.end()) {
          known = groups.emplace(known, std::move(lacks), std::vector<int>());
        }
        known->second.push_back(static_cast<int>(rank));
      }
    }
    std::string text;
    for (const auto& [lacks, ranks] : groups) {
      text += (text.empty() ? "" : "; ") + engines::list_ranks(ranks) + (ranks.size() == 1 ? " lacks " : " lack ");
      for (std::size_t i = 0; i < std::min(lacks.size(), most_names); ++i) {
        text += (i == 0 ? "" : ", ") + table_[lacks[i]].name;
      }
      if (lacks.size() > most_names) {
        text += " and " + std::to_string(lacks.size() - most_names) + " more";
      }
    }
    return text;
  }

  [[nodiscard]] std::string different_types(const row& key) const {
    std::map<leaf_kind, std::vector<int>> ranks;
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      if (key.kinds[rank] != leaf_kind{}) {
        ranks[key.kinds[rank]].push_back(static_cast<int>(rank));
      }
    }
    if (ranks.size() < 2) {
      return {};
    }
    std::string text;
    for (const auto& [kind, those] : ranks) {
      text += (text.empty() ? key.name + " is " : ", ") + std::string(to_string(kind)) + " on " +
              engines::list_ranks(those);
    }
    return text;
  }

  std::size_t ranks_;
  std::vector<row> table_;
};

}  // namespace hfcomm::detail
