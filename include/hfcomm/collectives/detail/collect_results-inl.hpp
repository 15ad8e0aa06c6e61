// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>

#include <hfcomm/collectives/collect_results.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/std_algorithm.hpp>

namespace hfcomm::detail {

/// The items of an error text, cut after the first few: "3, 5, 9 and more".
class short_list {
 public:
  void add(const std::string& text) {
    if (count_++ < max_items) {
      append(text_, {text_.empty() ? "" : ", ", text});
    }
  }
  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
  [[nodiscard]] bool full() const noexcept { return count_ > max_items; }
  [[nodiscard]] std::string text() const { return concat({text_, full() ? " and more" : ""}); }

 private:
  static constexpr std::size_t max_items = 8;
  std::string text_;
  std::size_t count_ = 0;
};

HFCOMM_INLINE std::vector<std::uint64_t> counts_of_results(running_call& running, operation& call, std::size_t mine,
                                                           std::size_t size, const process_group& group) {
  using numbers = std::array<std::uint64_t, 2>;
  const numbers own{mine, size};
  const auto context = running.context();
  call.pattern = movement::to_all;
  call.bytes = sizeof(own);
  const auto all = exchange_encoded<numbers>(running, call, std::as_bytes(std::span(&own, 1)), group.size());

  std::vector<std::uint64_t> counts;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank][1] != all[0][1]) {
      const auto expects = [&](std::size_t other) {
        return concat({"rank ", other, " expects ", all[other][1], " in ",
                       running.engine().matching_call(static_cast<int>(other))});
      };
      throw_error<mismatch_error>(
          context, {"the ranks expect different numbers of results altogether: ", expects(0), ", ", expects(rank)}, 0,
          static_cast<int>(rank));
    }
    counts.push_back(all[rank][0]);
  }
  return counts;
}

HFCOMM_INLINE void require_enough(const error_context& context, const std::vector<std::uint64_t>& counts,
                                  std::size_t size) {
  short_list lacking;
  const int ranks = static_cast<int>(counts.size());
  for (int rank = 0; rank < ranks; ++rank) {
    const std::size_t wanted = share_of(rank, ranks, size);
    const std::uint64_t has = counts[static_cast<std::size_t>(rank)];
    if (has < wanted) {
      lacking.add(concat({"rank ", rank, " has ", has, " of its ", wanted}));
    }
  }
  if (!lacking.empty()) {
    throw_error<usage_error>(context, {size, " results, one from each rank in turn, are wanted, but ", lacking.text(),
                                       "; where the ranks have other shares, give the indices of their results too"});
  }
}

HFCOMM_INLINE void require_indices(checked_call& running, std::span<const std::size_t> indices, std::size_t results,
                                   std::size_t size) {
  running.require(indices.size() == results,
                  [&] { return concat({indices.size(), " indices are given for ", results, " results"}); });
  const auto wrong = std::find_if(indices.begin(), indices.end(), [&](std::size_t index) { return index >= size; });
  running.require(wrong == indices.end(), [&] { return concat({"index ", *wrong, " is none of ", size, " results"}); });
}

/// A receiver that records the lowest rank of each index. Engines' chunks are multiples of an index's size, so none is
/// split.
class index_receiver final : public receiver {
 public:
  static constexpr int nobody = std::numeric_limits<int>::max();

  explicit index_receiver(std::vector<int>& owners) : owners_(owners) {}

  void receive(int source, std::span<const std::byte> chunk, std::uint64_t /*offset*/,
               std::uint64_t /*total*/) override {
    for (std::size_t place = 0; place + sizeof(std::uint64_t) <= chunk.size(); place += sizeof(std::uint64_t)) {
      std::uint64_t index = 0;
      std::memcpy(&index, chunk.data() + place, sizeof(index));
      if (index < owners_.size()) {
        owners_[static_cast<std::size_t>(index)] = std::min(owners_[static_cast<std::size_t>(index)], source);
      }
    }
  }

 private:
  std::vector<int>& owners_;
};

HFCOMM_INLINE std::vector<int> owners_of_indices(running_call& running, operation& call,
                                                 std::span<const std::size_t> indices,
                                                 const std::vector<std::uint64_t>& counts, std::size_t size) {
  static_assert(sizeof(std::size_t) == sizeof(std::uint64_t));
  const auto context = running.context();
  // At most as many indices have an owner as there are results. A slightly longer table suffices to name the first
  // indices without an owner, however large a wrong `size` is.
  auto owners = running.attempt("", [&] {
    const auto most = std::accumulate(counts.begin(), counts.end(), std::uint64_t{16});
    return std::vector<int>(static_cast<std::size_t>(std::min<std::uint64_t>(size, most)), index_receiver::nobody);
  });
  index_receiver received(owners);
  call.bytes = indices.size_bytes();
  running.engine().exchange(call, std::as_bytes(indices), received);

  short_list missing;
  for (std::size_t index = 0; index < owners.size() && !missing.full(); ++index) {
    if (owners[index] == index_receiver::nobody) {
      missing.add(std::to_string(index));
    }
  }
  if (!missing.empty()) {
    throw_error<usage_error>(context,
                             {"no rank has a result for each of ", size, " indices; missing: ", missing.text()});
  }
  return owners;
}

HFCOMM_INLINE std::vector<std::size_t> places_that_count(int rank, std::span<const std::size_t> indices,
                                                         const std::vector<int>& owners) {
  std::vector<std::size_t> order;
  for (std::size_t place = 0; place < indices.size(); ++place) {
    if (owners[indices[place]] == rank) {
      order.push_back(place);
    }
  }
  std::sort(order.begin(), order.end(), [&](std::size_t left, std::size_t right) {
    return indices[left] != indices[right] ? indices[left] < indices[right] : left < right;
  });
  const auto same_index = [&](std::size_t left, std::size_t right) { return indices[left] == indices[right]; };
  order.erase(std::unique(order.begin(), order.end(), same_index), order.end());
  return order;
}

HFCOMM_INLINE void fail_for_too_few(const error_context& context, std::size_t rank) {
  throw_error<decode_error>(context, {"rank ", rank, " sent fewer results than it had announced"});
}

}  // namespace hfcomm::detail
