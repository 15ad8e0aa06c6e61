// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include <hfcomm/engine/shared_memory/memory.hpp>

#include "ranks.hpp"

/// Parts for the tests of scatter, all_to_all and the like: lengths that find bugs, and elements.
namespace multi_rank {

/// Element `i` of the part that `from` sends to `to`; different for all three.
constexpr std::uint32_t part_element(int from, int to, std::size_t i) {
  return static_cast<std::uint32_t>(i) * 2654435761U + static_cast<std::uint32_t>(from) * 131U +
         static_cast<std::uint32_t>(to) * 7U + 1U;
}

/// The part that `from` sends to `to`, of `count` elements.
inline std::vector<std::uint32_t> part_of(int from, int to, std::size_t count) {
  std::vector<std::uint32_t> part(count);
  std::uint32_t* const place = part.data();
  for (std::size_t i = 0; i < count; ++i) {
    place[i] = part_element(from, to, i);
  }
  return part;
}

template <class T>
std::vector<T>& append(std::vector<T>& all, const std::vector<T>& part) {
  all.insert(all.end(), part.begin(), part.end());
  return all;
}

/// Lengths, in four-byte elements, of each of `ranks` parts: around the sizes of a cell, a slot, a slot's parts and a
/// chunk.
inline std::vector<std::size_t> part_lengths(int ranks) {
  const auto sizes = hfcomm::engines::layout::dimensions::for_ranks(ranks);
  const std::size_t slot = sizes.slot_bytes / 4;
  const std::size_t inline_elements = hfcomm::engines::layout::inline_bytes / 4;
  const std::size_t others = std::max<std::size_t>(as_index(ranks) - 1, 1);
  std::vector<std::size_t> lengths{0, 1, 2, 3, 19, 20, 21, 333};
  const std::size_t piece = hfcomm::engines::layout::piece_bytes / 4;
  for (const std::size_t edge : {inline_elements / others, slot / others, slot / as_index(ranks), piece, 2 * piece}) {
    append(lengths, {edge > 0 ? edge - 1 : 0, edge, edge + 1});
  }
  append(lengths, {2 * slot / others + 7, slot + 1});
  std::sort(lengths.begin(), lengths.end());
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  return lengths;
}

/// Lists of `ranks` counts: all equal, all zero, all at one rank, every other one zero, and steeply growing.
inline std::vector<std::vector<std::size_t>> uneven_counts(int ranks) {
  const auto count = as_index(ranks);
  std::vector<std::vector<std::size_t>> lists{std::vector<std::size_t>(count, 5), std::vector<std::size_t>(count, 0)};
  for (const std::size_t total : each_of(1, 19, 65'537, 300'001)) {
    for (const std::size_t rich : {std::size_t{0}, count / 2, count - 1}) {
      std::vector<std::size_t> list(count, 0);
      list[rich] = total;
      lists.push_back(list);
    }
  }
  std::vector<std::size_t> alternating(count, 0);
  std::vector<std::size_t> steep(count, 1);
  std::vector<std::size_t> mixed(count, 3);
  for (std::size_t rank = 0; rank < count; ++rank) {
    alternating[rank] = rank % 2 == 0 ? 0 : 7'001;
    steep[rank] = std::size_t{1} << (2 * rank + 2);
    mixed[rank] = rank == 0 ? 120'000 : rank % 3;
  }
  append(lists, {alternating, steep, mixed});
  return lists;
}

inline std::string text_of_counts(const std::vector<std::size_t>& counts) {
  std::string text = "counts";
  for (const std::size_t count : counts) {
    text += ' ' + std::to_string(count);
  }
  return text;
}

inline std::size_t sum_of(const std::vector<std::size_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

/// A tree whose size depends on the seed.
struct tree {
  std::string name = {};
  std::vector<tree> children = {};

  template <class Archive>
  void serialize(Archive& archive) {
    archive(name, children);
  }
  bool operator==(const tree&) const = default;
};

inline tree tree_of(int seed) {
  tree result{text_of(seed, as_index(seed % 5) * 40), {}};
  for (int child = 0; child < seed % 4; ++child) {
    result.children.push_back({text_of(seed + child, 30), {{"leaf", {}}, {"", {}}}});
  }
  return result;
}

/// `odd` must get an `Error` with `text`, everyone else a peer_error that names it and has the text; then the group
/// goes on.
template <class Error, class Call>
void expect_fault(const process_group& world, int odd, const std::string& text, Call call) {
  line_note note;
  if (world.rank() == odd) {
    CHECK_CONTAINS(error_of<Error>([&] { call(note); }).what(), text);
  } else {
    const auto problem = error_of<hfcomm::peer_error>([&] { call(note); });
    CHECK(problem.peer() == odd);
    CHECK_FALSE(problem.fatal());
    CHECK_CONTAINS(problem.what(), text);
  }
  check_usable(world);
}

/// Every rank must get a mismatch_error that names these two ranks and has the text; then the group goes on.
template <class Call>
void expect_mismatch(const process_group& world, int first, int second, const std::string& text, Call call) {
  const auto problem = error_of<hfcomm::mismatch_error>(call);
  CHECK(problem.first_rank() == first);
  CHECK(problem.second_rank() == second);
  CHECK_CONTAINS(problem.what(), text);
  check_same_everywhere(problem.detail(), world);
  check_usable(world);
}

}  // namespace multi_rank
