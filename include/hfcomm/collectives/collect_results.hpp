// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/call/async.hpp>

namespace hfcomm {

namespace detail {

/// How many of `size` results are rank `rank`'s, dealt out one by one.
constexpr std::size_t dealt_to(int rank, int ranks, std::size_t size) {
  const auto first = static_cast<std::size_t>(rank);
  const auto step = static_cast<std::size_t>(ranks);
  return size <= first ? 0 : (size - first - 1) / step + 1;
}

/// "3, 5 and 9, and more": the numbers of an error message, of which it needs no more than a few.
class short_list {
 public:
  template <class Text>
  void add(Text&& text) {
    if (count_++ < most) {
      text_ += (text_.empty() ? "" : ", ") + std::string(std::forward<Text>(text));
    }
  }
  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
  [[nodiscard]] bool full() const noexcept { return count_ > most; }
  [[nodiscard]] std::string text() const { return text_ + (full() ? " and more" : ""); }

 private:
  static constexpr std::size_t most = 8;
  std::string text_;
  std::size_t count_ = 0;
};

/// The common part of all forms: tells every rank how many results each has, and makes sure that all expect as many
/// altogether. Every rank sees the same numbers, so what they lead to needs no further agreement.
inline std::vector<std::uint64_t> counts_of_results(running_call& running, operation& call, std::size_t mine,
                                                    std::size_t size, const process_group& group) {
  using numbers = std::array<std::uint64_t, 2>;
  const numbers own{mine, size};
  const auto context = running.context();
  std::vector<numbers> all(static_cast<std::size_t>(group.size()));
  const auto store = [&](int source, numbers&& received) { all[static_cast<std::size_t>(source)] = received; };
  object_receiver<numbers, decltype(store)> received(running, store);
  call.pattern = movement::to_all;
  call.bytes = sizeof(own);
  running.engine().exchange(call, std::as_bytes(std::span(&own, 1)), received);

  std::vector<std::uint64_t> counts;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank][1] != all[0][1]) {
      const auto expects = [&](std::size_t who) {
        return "rank " + std::to_string(who) + " expects " + std::to_string(all[who][1]) + " in " +
               running.engine().matching_call(static_cast<int>(who));
      };
      throw mismatch_error(
          context, "the ranks expect different numbers of results altogether: " + expects(0) + ", " + expects(rank), 0,
          static_cast<int>(rank));
    }
    counts.push_back(all[rank][0]);
  }
  return counts;
}

/// Throws usage_error, on every rank alike, where the ranks' results, one from each in turn, are not enough.
inline void require_enough(const error_context& context, const std::vector<std::uint64_t>& counts, std::size_t size) {
  short_list lacking;
  const int ranks = static_cast<int>(counts.size());
  for (int rank = 0; rank < ranks; ++rank) {
    const std::size_t wanted = dealt_to(rank, ranks, size);
    const std::uint64_t has = counts[static_cast<std::size_t>(rank)];
    if (has < wanted) {
      lacking.add("rank " + std::to_string(rank) + " has " + std::to_string(has) + " of its " + std::to_string(wanted));
    }
  }
  if (!lacking.empty()) {
    throw usage_error(context, std::to_string(size) +
                                   " results, one from each rank in turn, cannot be had: " + lacking.text() +
                                   "; where the ranks' shares are of another kind, give the results' indices too");
  }
}

/// Every rank's results on the root, rank by rank; empty elsewhere.
template <class T>
std::vector<std::vector<T>> gather_parts(running_call& running, operation& call, const std::vector<T>& mine,
                                         const process_group& group) {
  const auto bytes = encode_contribution(running, call, mine);
  call.pattern = movement::to_root;
  std::vector<std::vector<T>> parts(static_cast<std::size_t>(group.rank() == call.root ? group.size() : 0));
  const auto store = [&](int source, std::vector<T>&& part) {
    parts[static_cast<std::size_t>(source)] = std::move(part);
  };
  object_receiver<std::vector<T>, decltype(store)> received(running, store);
  running.engine().exchange(call, bytes, received);
  return parts;
}

/// Puts parts together: each place takes the next result of the rank that has it.
template <class T, class OwnerOf>
std::vector<T> deal_back(std::vector<std::vector<T>> parts, std::size_t size, OwnerOf owner_of,
                         const error_context& context) {
  std::vector<T> results;
  results.reserve(size);
  std::vector<std::size_t> taken(parts.size());
  for (std::size_t place = 0; place < size; ++place) {
    const std::size_t owner = owner_of(place);
    const std::size_t next = taken[owner]++;
    if (next >= parts[owner].size()) {
      throw decode_error(context, "rank " + std::to_string(owner) + " sent fewer results than it had announced");
    }
    results.push_back(std::move(parts[owner][next]));
  }
  return results;
}

/// Which rank's result counts for each index: the lowest that has it.
class index_owners {
 public:
  /// Where the ranks have `counts` results, no more than that many indices can be taken: a table a bit longer is enough
  /// to name the first that are not, however large a wrong `size` may be.
  index_owners(const std::vector<std::uint64_t>& counts, std::size_t size)
      : size_(size),
        owners_(static_cast<std::size_t>(
                    std::min<std::uint64_t>(size, std::accumulate(counts.begin(), counts.end(), std::uint64_t{16}))),
                nobody) {}

  void add(int rank, std::uint64_t index) {
    if (index < owners_.size()) {
      owners_[static_cast<std::size_t>(index)] = std::min(owners_[static_cast<std::size_t>(index)], rank);
    }
  }
  [[nodiscard]] std::size_t owner_of(std::size_t index) const { return static_cast<std::size_t>(owners_[index]); }

  void require_all(const error_context& context) const {
    short_list missing;
    for (std::size_t index = 0; index < owners_.size() && !missing.full(); ++index) {
      if (owners_[index] == nobody) {
        missing.add(std::to_string(index));
      }
    }
    if (!missing.empty()) {
      throw usage_error(context, "no rank has a result for each of " + std::to_string(size_) +
                                     " indices; missing: " + missing.text());
    }
  }

  /// The results of rank `rank` that count, in the order of their indices; where it has several for one, the first.
  template <class T>
  [[nodiscard]] std::vector<T> chosen(int rank, std::span<const std::size_t> indices, std::vector<T> values) const {
    std::vector<std::size_t> order;
    for (std::size_t place = 0; place < indices.size(); ++place) {
      if (owners_[indices[place]] == rank) {
        order.push_back(place);
      }
    }
    std::sort(order.begin(), order.end(), [&](std::size_t left, std::size_t right) {
      return std::pair(indices[left], left) < std::pair(indices[right], right);
    });
    std::vector<T> result;
    result.reserve(order.size());
    for (std::size_t place = 0; place < order.size(); ++place) {
      if (place == 0 || indices[order[place]] != indices[order[place - 1]]) {
        result.push_back(std::move(values[order[place]]));
      }
    }
    return result;
  }

 private:
  static constexpr int nobody = std::numeric_limits<int>::max();
  std::size_t size_;
  std::vector<int> owners_;
};

/// Notes the indices of all ranks as they come; engines cut their chunks at multiples of far more than an index.
class index_receiver final : public receiver {
 public:
  explicit index_receiver(index_owners& owners) : owners_(owners) {}

  void receive(int source, std::span<const std::byte> chunk, std::uint64_t /*offset*/,
               std::uint64_t /*total*/) override {
    for (std::size_t place = 0; place + sizeof(std::uint64_t) <= chunk.size(); place += sizeof(std::uint64_t)) {
      std::uint64_t index = 0;
      std::memcpy(&index, chunk.data() + place, sizeof(index));
      owners_.add(source, index);
    }
  }

 private:
  index_owners& owners_;
};

}  // namespace detail

/// Puts the ranks' shares of a data set's results together on the root, in the data set's order; an empty vector
/// elsewhere. Item i was rank (i mod n)'s, as `distributed_sampler` without shuffling deals them out: the result is
/// part[0] of every rank, then part[1] of every rank, and so on, `size` altogether. What a sampler's padding added at
/// the end is left out; a result that is empty or zero counts like any other.
///
/// Collective. Only the root receives results. Throws, on every rank alike and before any result is sent, usage_error
/// where the parts are too short for that, naming the ranks, and mismatch_error where they expect different sizes.
/// Without other ranks it is `part`, cut to `size`. (MMEngine's `collect_results`, which drops None, and puts parts of
/// the wrong lengths together in the wrong order.)
template <class T>
  requires serializable<std::vector<T>>
[[nodiscard]] std::vector<T> collect_results(std::vector<T> part, std::size_t size, int root = 0,
                                             const process_group& group = world(),
                                             std::source_location where = std::source_location::current()) {
  operation call = detail::object_call<std::vector<T>>("collect_results", movement::to_all, root, where);
  detail::running_call running(group, call);
  running.require_root();
  const auto context = running.context();
  const auto counts = detail::counts_of_results(running, call, part.size(), size, group);
  detail::require_enough(context, counts, size);
  const std::size_t wanted = detail::dealt_to(group.rank(), group.size(), size);
  part.erase(part.begin() + static_cast<std::ptrdiff_t>(wanted), part.end());
  auto parts = detail::gather_parts(running, call, part, group);
  if (group.rank() != root) {
    return {};
  }
  const auto ranks = static_cast<std::size_t>(group.size());
  return detail::deal_back(std::move(parts), size, [&](std::size_t place) { return place % ranks; }, context);
}

/// Puts results together that say themselves where they belong: `values[i]` is the result of item `indices[i]`, however
/// the items were dealt out. The root gets `size` results in the order of their indices, the others an empty vector.
/// Where several ranks have one item (a sampler's padding), the lowest rank's result counts, and its first.
///
/// Collective. Only the root receives results; the indices go to all ranks. Throws usage_error on a rank whose two
/// lists differ in length, or that names an index of `size` or more, and peer_error with its text on the others;
/// usage_error on every rank, naming the first of them, where indices are missing; mismatch_error where the ranks
/// expect different sizes. No result is sent then.
template <class T>
  requires serializable<std::vector<T>>
[[nodiscard]] std::vector<T> collect_results(std::span<const std::size_t> indices, std::vector<T> values,
                                             std::size_t size, int root = 0, const process_group& group = world(),
                                             std::source_location where = std::source_location::current()) {
  static_assert(sizeof(std::size_t) == sizeof(std::uint64_t));
  operation call = detail::object_call<std::pair<std::vector<std::size_t>, std::vector<T>>>(
      "collect_results", movement::to_all, root, where);
  detail::running_call running(group, call);
  running.require_root();
  running.require(indices.size() == values.size(), [&] {
    return std::to_string(indices.size()) + " indices are given for " + std::to_string(values.size()) + " results";
  });
  const auto wrong = std::find_if(indices.begin(), indices.end(), [&](std::size_t index) { return index >= size; });
  running.require(wrong == indices.end(), [&] {
    return "index " + std::to_string(*wrong) + " is none of " + std::to_string(size) + " results";
  });
  const auto context = running.context();
  const auto counts = detail::counts_of_results(running, call, values.size(), size, group);

  auto owners = running.attempt("", [&] { return detail::index_owners(counts, size); });
  detail::index_receiver received(owners);
  call.bytes = indices.size_bytes();
  running.engine().exchange(call, std::as_bytes(indices), received);
  owners.require_all(context);

  values = running.attempt("", [&] { return owners.chosen(group.rank(), indices, std::move(values)); });
  auto parts = detail::gather_parts(running, call, values, group);
  if (group.rank() != root) {
    return {};
  }
  return detail::deal_back(std::move(parts), size, [&](std::size_t place) { return owners.owner_of(place); }, context);
}

/// Starts to collect results, one from each rank in turn; the work's value is what `collect_results` returns.
template <class T>
  requires serializable<std::vector<T>>
work<std::vector<T>> collect_results_async(std::vector<T> part, std::size_t size, int root = 0,
                                           const process_group& group = world(),
                                           std::source_location where = std::source_location::current()) {
  return detail::start("collect_results", group, where, [part = std::move(part), size, root, group, where]() mutable {
    return collect_results(std::move(part), size, root, group, where);
  });
}

/// Starts to collect results in the order of their indices.
template <class T>
  requires serializable<std::vector<T>>
work<std::vector<T>> collect_results_async(std::vector<std::size_t> indices, std::vector<T> values, std::size_t size,
                                           int root = 0, const process_group& group = world(),
                                           std::source_location where = std::source_location::current()) {
  return detail::start("collect_results", group, where,
                       [indices = std::move(indices), values = std::move(values), size, root, group, where]() mutable {
                         return collect_results(std::span<const std::size_t>(indices), std::move(values), size, root,
                                                group, where);
                       });
}

}  // namespace hfcomm
