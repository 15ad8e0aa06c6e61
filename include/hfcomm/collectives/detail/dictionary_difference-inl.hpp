// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <hfcomm/collectives/detail/dictionary_difference.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/engine/call_text.hpp>

namespace hfcomm::detail {

/// Returns `size` bytes and removes them from the front of `rest`.
HFCOMM_INLINE std::span<const std::byte> take_bytes(std::span<const std::byte>& rest, std::uint64_t size) {
  if (size > rest.size()) {
    throw_error<decode_error>({"its keys are cut off"});
  }
  const auto taken = rest.first(static_cast<std::size_t>(size));
  rest = rest.subspan(static_cast<std::size_t>(size));
  return taken;
}

HFCOMM_INLINE std::span<const std::byte> take_key(std::span<const std::byte>& rest) {
  std::uint64_t size = 0;
  const auto number = take_bytes(rest, sizeof(size));
  std::memcpy(&size, number.data(), sizeof(size));
  return take_bytes(rest, size);
}

HFCOMM_INLINE std::vector<dictionary_entry> read_entries(std::span<const std::byte> structure, path_reader take_path) {
  std::vector<dictionary_entry> entries;
  while (!structure.empty()) {
    const auto start = structure;
    bool quoted = false;
    dictionary_entry entry;
    entry.name = take_path(structure, quoted);
    entry.name = quoted ? concat({'"', entry.name, '"'}) : entry.name;
    entry.path.assign(reinterpret_cast<const char*>(start.data()), start.size() - structure.size());
    entry.kind = static_cast<leaf_kind>(take_bytes(structure, 1)[0]);
    entries.push_back(std::move(entry));
  }
  return entries;
}

HFCOMM_INLINE dictionary_difference::dictionary_difference(const std::vector<std::vector<dictionary_entry>>& of_ranks)
    : ranks_(of_ranks.size()) {
  std::map<std::pair<std::string_view, std::string_view>, std::vector<leaf_kind>> kinds;  // in the order of the texts
  for (std::size_t rank = 0; rank < ranks_; ++rank) {
    for (const auto& entry : of_ranks[rank]) {
      auto& of_key = kinds[{entry.name, entry.path}];
      of_key.resize(ranks_);
      of_key[rank] = entry.kind;
    }
  }
  table_.reserve(kinds.size());
  for (auto& [key, of_key] : kinds) {
    table_.push_back({std::string(key.first), std::move(of_key)});
  }
}

HFCOMM_INLINE std::string dictionary_difference::describe() const {
  std::string text = missing_keys();
  for (const row& key : table_) {
    const std::string types = different_types(key);
    text += types.empty() || text.empty() ? types : concat({"; ", types});
  }
  return text.empty() ? "the ranks have the same keys in another order" : text;
}

/// Returns the text about missing keys. Ranks that lack the same keys are named together.
HFCOMM_INLINE std::string dictionary_difference::missing_keys() const {
  std::vector<std::pair<std::vector<std::size_t>, std::vector<int>>> groups;
  for (std::size_t rank = 0; rank < ranks_; ++rank) {
    std::vector<std::size_t> lacks;
    for (std::size_t key = 0; key < table_.size(); ++key) {
      if (table_[key].kinds[rank] == leaf_kind{}) {
        lacks.push_back(key);
      }
    }
    if (!lacks.empty()) {
      auto known = std::find_if(groups.begin(), groups.end(), [&](const auto& group) { return group.first == lacks; });
      if (known == groups.end()) {
        known = groups.emplace(known, std::move(lacks), std::vector<int>());
      }
      known->second.push_back(static_cast<int>(rank));
    }
  }
  std::string text;
  for (const auto& [lacks, ranks] : groups) {
    append(text, {text.empty() ? "" : "; ", engines::list_ranks(ranks), ranks.size() == 1 ? " lacks " : " lack "});
    for (std::size_t i = 0; i < std::min(lacks.size(), max_names); ++i) {
      append(text, {i == 0 ? "" : ", ", table_[lacks[i]].name});
    }
    if (lacks.size() > max_names) {
      append(text, {" and ", lacks.size() - max_names, " more"});
    }
  }
  return text;
}

HFCOMM_INLINE std::string dictionary_difference::different_types(const row& key) const {
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
    append(text,
           {text.empty() ? concat({key.name, " is "}) : ", ", to_string(kind), " on ", engines::list_ranks(those)});
  }
  return text;
}

}  // namespace hfcomm::detail
