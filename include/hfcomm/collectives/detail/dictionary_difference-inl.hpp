// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <hfcomm/collectives/detail/dictionary_difference.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/core/plain_list.hpp>
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

HFCOMM_INLINE void read_entries(std::span<const std::byte> structure, path_reader take_path, int rank,
                                std::vector<dictionary_entry>& entries) {
  while (!structure.empty()) {
    const auto start = structure;
    bool quoted = false;
    dictionary_entry entry;
    entry.rank = rank;
    entry.name = take_path(structure, quoted);
    entry.name = quoted ? concat({'"', entry.name, '"'}) : entry.name;
    entry.path.assign(reinterpret_cast<const char*>(start.data()), start.size() - structure.size());
    entry.kind = static_cast<leaf_kind>(take_bytes(structure, 1)[0]);
    entries.push_back(std::move(entry));
  }
}

/// A table of all ranks' leaves.
class dictionary_difference {
 public:
  /// `entries` are those of all ranks, and must outlive this.
  [[gnu::cold]] dictionary_difference(std::span<const dictionary_entry> entries, int ranks);

  /// Returns `rank 1 lacks "a"; ranks 0 and 2 lack "b", "c"; "d" is float64 on rank 0, int32 on ranks 1 and 2`.
  [[nodiscard, gnu::cold]] std::string describe() const;

 private:
  static constexpr std::size_t max_names = 32;

  /// Returns the place of an entry's key among the keys; where it is not there, the place at which to add it.
  [[nodiscard, gnu::cold]] std::size_t place_of(const dictionary_entry& entry) const;
  [[nodiscard, gnu::cold]] leaf_kind kind_of(std::size_t key, int rank) const;
  [[nodiscard]] bool lacks(std::size_t key, int rank) const { return kind_of(key, rank) == leaf_kind{}; }
  [[nodiscard, gnu::cold]] bool lack_the_same(int rank, int other) const;
  [[nodiscard, gnu::cold]] std::string missing_keys() const;
  [[nodiscard, gnu::cold]] std::string different_types(std::size_t key) const;

  int ranks_;
  plain_list<const dictionary_entry*> keys_;  // one entry for each, by name and path
  plain_list<leaf_kind> kinds_;               // by key and rank; zero where a rank has none
};

HFCOMM_INLINE dictionary_difference::dictionary_difference(std::span<const dictionary_entry> entries, int ranks)
    : ranks_(ranks) {
  for (const dictionary_entry& entry : entries) {
    const std::size_t place = place_of(entry);
    if (place == keys_.size() || keys_[place]->name != entry.name || keys_[place]->path != entry.path) {
      keys_.insert(place, &entry);
    }
  }
  kinds_.resize(keys_.size() * static_cast<std::size_t>(ranks));
  for (const dictionary_entry& entry : entries) {
    kinds_[place_of(entry) * static_cast<std::size_t>(ranks) + static_cast<std::size_t>(entry.rank)] = entry.kind;
  }
}

HFCOMM_INLINE std::size_t dictionary_difference::place_of(const dictionary_entry& entry) const {
  std::size_t first = 0;
  for (std::size_t last = keys_.size(); first < last;) {
    const std::size_t middle = first + (last - first) / 2;
    const int order = keys_[middle]->name.compare(entry.name);
    if (order < 0 || (order == 0 && keys_[middle]->path < entry.path)) {
      first = middle + 1;
    } else {
      last = middle;
    }
  }
  return first;
}

HFCOMM_INLINE leaf_kind dictionary_difference::kind_of(std::size_t key, int rank) const {
  return kinds_[key * static_cast<std::size_t>(ranks_) + static_cast<std::size_t>(rank)];
}

HFCOMM_INLINE std::string dictionary_difference::describe() const {
  std::string text = missing_keys();
  for (std::size_t key = 0; key < keys_.size(); ++key) {
    const std::string types = different_types(key);
    text += types.empty() || text.empty() ? types : concat({"; ", types});
  }
  return text.empty() ? "the ranks have the same keys in another order" : text;
}

HFCOMM_INLINE bool dictionary_difference::lack_the_same(int rank, int other) const {
  for (std::size_t key = 0; key < keys_.size(); ++key) {
    if (lacks(key, rank) != lacks(key, other)) {
      return false;
    }
  }
  return true;
}

/// Returns the text about missing keys. Ranks that lack the same keys are named together.
HFCOMM_INLINE std::string dictionary_difference::missing_keys() const {
  std::string text;
  plain_list<bool> is_named(static_cast<std::size_t>(ranks_));
  for (int rank = 0; rank < ranks_; ++rank) {
    std::string names;
    std::size_t count = 0;
    for (std::size_t key = 0; key < keys_.size(); ++key) {
      if (lacks(key, rank) && ++count <= max_names) {
        append(names, {count == 1 ? "" : ", ", keys_[key]->name});
      }
    }
    if (count == 0 || is_named[static_cast<std::size_t>(rank)]) {
      continue;
    }
    std::vector<int> ranks;
    for (int other = rank; other < ranks_; ++other) {
      if (lack_the_same(rank, other)) {
        ranks.push_back(other);
        is_named[static_cast<std::size_t>(other)] = true;
      }
    }
    append(text,
           {text.empty() ? "" : "; ", engines::list_ranks(ranks), ranks.size() == 1 ? " lacks " : " lack ", names});
    if (count > max_names) {
      append(text, {" and ", count - max_names, " more"});
    }
  }
  return text;
}

/// Returns the text about a key whose values have several types; an empty one where they have not.
HFCOMM_INLINE std::string dictionary_difference::different_types(std::size_t key) const {
  std::string text;
  int kinds = 0;
  leaf_kind first{};  // most keys have one type on all ranks
  bool differ = false;
  for (int rank = 0; rank < ranks_; ++rank) {
    const leaf_kind kind = kind_of(key, rank);
    differ = differ || (first != leaf_kind{} && kind != leaf_kind{} && kind != first);
    first = kind != leaf_kind{} ? kind : first;
  }
  for (unsigned number = 1; differ && number <= std::numeric_limits<std::uint8_t>::max(); ++number) {
    const auto kind = static_cast<leaf_kind>(number);
    std::vector<int> ranks;
    for (int rank = 0; rank < ranks_; ++rank) {
      if (kind_of(key, rank) == kind) {
        ranks.push_back(rank);
      }
    }
    if (!ranks.empty()) {
      append(text, {kinds == 0 ? std::string_view(keys_[key]->name) : "", kinds == 0 ? " is " : ", ", to_string(kind),
                    " on ", engines::list_ranks(ranks)});
      ++kinds;
    }
  }
  return text;
}

HFCOMM_INLINE std::string describe_difference(std::span<const dictionary_entry> entries, int ranks) {
  return dictionary_difference(entries, ranks).describe();
}

}  // namespace hfcomm::detail
