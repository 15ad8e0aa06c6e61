// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <hfcomm/call/async.hpp>
#include <hfcomm/call/refused_calls.hpp>
#include <hfcomm/call/typed_calls.hpp>
#include <hfcomm/core/call_site.hpp>
#include <hfcomm/group/detail/running_call.hpp>

namespace hfcomm {

namespace detail {

/// Returns how many of `size` results, one from each rank in turn, are rank `rank`'s.
constexpr std::size_t share_of(int rank, int ranks, std::size_t size) {
  const auto first = static_cast<std::size_t>(rank);
  const auto step = static_cast<std::size_t>(ranks);
  return size <= first ? 0 : (size - first - 1) / step + 1;
}

/// Returns how many results each rank has. Throws mismatch_error unless all ranks expect the same total. Every rank
/// gets the same numbers, so the ranks need not agree on decisions that follow from them.
std::vector<std::uint64_t> counts_of_results(running_call& running, operation& call, std::size_t mine, std::size_t size,
                                             const process_group& group);

/// Throws usage_error, on every rank alike, where a rank has too few results for its share of `size`.
void require_enough(const error_context& context, const std::vector<std::uint64_t>& counts, std::size_t size);

/// Throws usage_error, and tells the others, unless each result has an index, below `size`.
void require_indices(checked_call& running, std::span<const std::size_t> indices, std::size_t results,
                     std::size_t size);

inline constexpr auto check_indices = [](checked_call& running, std::span<const std::size_t> indices,
                                         const auto& values, std::size_t size) {
  running.require_root();
  require_indices(running, indices, values.size(), size);
};

/// Returns, for each index, the rank whose result counts: the lowest that has one. Throws usage_error, on every rank
/// alike, where no rank has one.
std::vector<int> owners_of_indices(running_call& running, operation& call, std::span<const std::size_t> indices,
                                   const std::vector<std::uint64_t>& counts, std::size_t size);

/// Returns the positions of rank `rank`'s results that count, in the order of their indices. Of several results for one
/// index the first counts.
std::vector<std::size_t> places_that_count(int rank, std::span<const std::size_t> indices,
                                           const std::vector<int>& owners);

/// Throws decode_error: a rank's results are fewer than it announced.
[[noreturn]] void fail_for_too_few(const error_context& context, std::size_t rank);

/// Returns the merged parts: each position gets the next result of the rank that owns it. Without `owners`, the ranks
/// own positions in turn.
template <class T>
std::vector<T> merge_parts(std::vector<std::vector<T>> parts, std::size_t size, std::span<const int> owners,
                           const error_context& context) {
  std::vector<T> results;
  results.reserve(size);
  std::vector<std::size_t> taken(parts.size());
  for (std::size_t place = 0; place < size; ++place) {
    const std::size_t owner = owners.empty() ? place % parts.size() : static_cast<std::size_t>(owners[place]);
    const std::size_t next = taken[owner]++;
    if (next >= parts[owner].size()) {
      fail_for_too_few(context, owner);
    }
    results.push_back(std::move(parts[owner][next]));
  }
  return results;
}

/// Returns every rank's results on the root, merged; nothing elsewhere.
template <class T>
std::vector<T> gather_merged(running_call& running, operation& call, const std::vector<T>& mine, std::size_t size,
                             std::span<const int> owners, const error_context& context) {
  const auto bytes = encode_contribution(running, call, mine);
  call.pattern = movement::to_root;
  const bool is_root = running.rank() == call.root;
  auto parts = exchange_encoded<std::vector<T>>(running, call, bytes, is_root ? running.size() : 0);
  return is_root ? merge_parts(std::move(parts), size, owners, context) : std::vector<T>();
}

/// Requires that every rank has enough results, and cuts this rank's to its share of `size`.
template <class T>
void cut_to_share(running_call& running, operation& call, std::vector<T>& part, std::size_t size,
                  const process_group& group) {
  running.require_root();
  const auto context = running.context();
  require_enough(context, counts_of_results(running, call, part.size(), size, group), size);
  const std::size_t wanted = share_of(group.rank(), group.size(), size);
  part.erase(part.begin() + static_cast<std::ptrdiff_t>(wanted), part.end());
}

template <class T>
std::vector<T> collect_in_turn(operation&& call, std::vector<T>& part, std::size_t size, const process_group& group) {
  running_call running(group, call);
  const auto context = running.context();
  cut_to_share(running, call, part, size, group);
  return gather_merged(running, call, part, size, {}, context);
}

template <class T>
operation indexed_call(int root, call_site where) {
  return object_call<std::pair<std::vector<std::size_t>, std::vector<T>>>("collect_results", movement::to_all, root,
                                                                          where);
}

template <class T>
std::vector<T> collect_by_index(operation&& call, std::span<const std::size_t> indices, std::vector<T>& values,
                                std::size_t size, const process_group& group) {
  static_assert(sizeof(std::size_t) == sizeof(std::uint64_t));
  running_call running(group, call);
  check_indices(running, indices, values, size);
  const auto context = running.context();
  const auto counts = counts_of_results(running, call, values.size(), size, group);
  const auto owners = owners_of_indices(running, call, indices, counts, size);
  values = running.attempt("", [&] {
    const auto places = places_that_count(group.rank(), indices, owners);
    std::vector<T> chosen;
    chosen.reserve(places.size());
    for (const std::size_t place : places) {
      chosen.push_back(std::move(values[place]));
    }
    return chosen;
  });
  return gather_merged(running, call, values, size, owners, context);
}

}  // namespace detail

/// Returns the results of a data set on the root, in the data set's order; an empty vector elsewhere. Item i was rank
/// (i mod n)'s, as with a `distributed_sampler` without shuffling: the result is part[0] of every rank, then part[1] of
/// every rank, and so on, `size` altogether. The results that a sampler's padding added at the end are dropped; a
/// result that is empty or zero counts like any other.
///
/// Collective. Only the root receives results. Throws on every rank alike, before any result is sent: usage_error
/// naming the ranks whose parts are too short, and mismatch_error where the ranks expect different sizes. In a group of
/// one it returns `part`, cut to `size`. (MMEngine's `collect_results`, which drops None, and puts parts of the wrong
/// lengths together in the wrong order.)
template <class T>
  requires serializable<std::vector<T>>
[[nodiscard]] std::vector<T> collect_results(std::vector<T> part, std::size_t size, detail::optional_root root = 0,
                                             detail::or_group group = {}, call_site where = call_site::current()) {
  return detail::collect_in_turn(
      detail::object_call<std::vector<T>>("collect_results", engines::movement::to_all, root, where), part, size,
      root.in(group, where));
}

/// Returns results by their indices: `values[i]` is the result of item `indices[i]`, whichever rank had which items.
/// The root gets `size` results in the order of their indices, the others an empty vector. Where several ranks have one
/// item (a sampler's padding), the lowest rank's result counts, and its first.
///
/// Collective. Only the root receives results; the indices go to all ranks. Throws usage_error on a rank whose two
/// lists differ in length or that gives an index of `size` or more. The other ranks throw peer_error with its text.
/// Throws usage_error on every rank where indices are missing, naming the first of them. Throws mismatch_error where
/// the ranks expect different sizes. In these cases no result is sent.
template <class T>
  requires serializable<std::vector<T>>
[[nodiscard]] std::vector<T> collect_results(std::span<const std::size_t> indices, std::vector<T> values,
                                             std::size_t size, detail::optional_root root = 0,
                                             detail::or_group group = {}, call_site where = call_site::current()) {
  return detail::collect_by_index(detail::indexed_call<T>(root, where), indices, values, size, root.in(group, where));
}

// Calls that are refused; see call/refused_calls.hpp.

template <class... A, class Why = detail::reason_of<detail::refuse_results<A...>()>>
detail::refused_result collect_results(A&&...) = delete;  // Why says the reason and what to do

/// Starts to collect results, one from each rank in turn; the work's value is what `collect_results` returns.
template <class T>
  requires serializable<std::vector<T>>
work<std::vector<T>> collect_results_async(std::vector<T> part, std::size_t size, detail::optional_root root = 0,
                                           detail::or_group group = {}, call_site where = call_site::current()) {
  return detail::start_on(
      detail::object_call<std::vector<T>>("collect_results", engines::movement::to_all, root, where),
      detail::check_root, detail::collect_in_turn<T>, root.in(group, where), std::move(part), size);
}

/// Starts to collect results in the order of their indices.
template <class T>
  requires serializable<std::vector<T>>
work<std::vector<T>> collect_results_async(std::vector<std::size_t> indices, std::vector<T> values, std::size_t size,
                                           detail::optional_root root = 0, detail::or_group group = {},
                                           call_site where = call_site::current()) {
  return detail::start_on(detail::indexed_call<T>(root, where), detail::check_indices, detail::collect_by_index<T>,
                          root.in(group, where), std::move(indices), std::move(values), size);
}

// Calls that are refused; see call/refused_calls.hpp.

template <class... A, class Why = detail::reason_of<detail::refuse_results<A...>()>>
detail::refused_result collect_results_async(A&&...) = delete;  // Why says the reason and what to do

}  // namespace hfcomm
