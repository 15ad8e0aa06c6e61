// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <source_location>
#include <span>
#include <utility>
#include <vector>

#include <hfcomm/call/async.hpp>
#include <hfcomm/call/refused_calls.hpp>
#include <hfcomm/call/typed_calls.hpp>
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

/// Returns every rank's results on the root, rank by rank; empty elsewhere.
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
[[nodiscard]] std::vector<T> collect_results(std::vector<T> part, std::size_t size, int root = 0,
                                             const process_group& group = world(),
                                             std::source_location where = std::source_location::current()) {
  engines::operation call =
      detail::object_call<std::vector<T>>("collect_results", engines::movement::to_all, root, where);
  detail::running_call running(group, call);
  running.require_root();
  const auto context = running.context();
  const auto counts = detail::counts_of_results(running, call, part.size(), size, group);
  detail::require_enough(context, counts, size);
  const std::size_t wanted = detail::share_of(group.rank(), group.size(), size);
  part.erase(part.begin() + static_cast<std::ptrdiff_t>(wanted), part.end());
  auto parts = detail::gather_parts(running, call, part, group);
  if (group.rank() != root) {
    return {};
  }
  return detail::merge_parts(std::move(parts), size, {}, context);
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
                                             std::size_t size, int root = 0, const process_group& group = world(),
                                             std::source_location where = std::source_location::current()) {
  static_assert(sizeof(std::size_t) == sizeof(std::uint64_t));
  engines::operation call = detail::object_call<std::pair<std::vector<std::size_t>, std::vector<T>>>(
      "collect_results", engines::movement::to_all, root, where);
  detail::running_call running(group, call);
  running.require_root();
  detail::require_indices(running, indices, values.size(), size);
  const auto context = running.context();
  const auto counts = detail::counts_of_results(running, call, values.size(), size, group);

  const auto owners = detail::owners_of_indices(running, call, indices, counts, size);
  values = running.attempt("", [&] {
    const auto places = detail::places_that_count(group.rank(), indices, owners);
    std::vector<T> chosen;
    chosen.reserve(places.size());
    for (const std::size_t place : places) {
      chosen.push_back(std::move(values[place]));
    }
    return chosen;
  });
  auto parts = detail::gather_parts(running, call, values, group);
  if (group.rank() != root) {
    return {};
  }
  return detail::merge_parts(std::move(parts), size, owners, context);
}

// Calls that are refused; see call/refused_calls.hpp.

template <class T, class... Rest, class Why = detail::why_no_object<std::vector<T>>>
  requires detail::refused<Why>
std::vector<T> collect_results(const std::vector<T>&, Rest&&...) = delete;  // not serializable: Why says what to do
template <class T, class... Rest, class Why = detail::why_no_object<std::vector<T>>>
  requires detail::refused<Why>
std::vector<T> collect_results(std::span<const std::size_t>, const std::vector<T>&,
                               Rest&&...) = delete;  // not serializable: Why says what to do

namespace detail {

/// The overloads of `collect_results`, as one function object.
inline constexpr auto call_collect_results = [](auto&&... arguments) {
  return hfcomm::collect_results(std::forward<decltype(arguments)>(arguments)...);
};

}  // namespace detail

/// Starts to collect results, one from each rank in turn; the work's value is what `collect_results` returns.
template <class T>
  requires serializable<std::vector<T>>
work<std::vector<T>> collect_results_async(std::vector<T> part, std::size_t size, int root = 0,
                                           const process_group& group = world(),
                                           std::source_location where = std::source_location::current()) {
  return detail::start_checked(
      detail::object_call<std::vector<T>>("collect_results", engines::movement::to_all, root, where),
      detail::check_root, detail::call_collect_results, group, std::move(part), size, root);
}

/// Starts to collect results in the order of their indices.
template <class T>
  requires serializable<std::vector<T>>
work<std::vector<T>> collect_results_async(std::vector<std::size_t> indices, std::vector<T> values, std::size_t size,
                                           int root = 0, const process_group& group = world(),
                                           std::source_location where = std::source_location::current()) {
  const auto check = [&](detail::checked_call& running) {
    running.require_root();
    detail::require_indices(running, indices, values.size(), size);
  };
  return detail::start_checked(
      detail::object_call<std::vector<T>>("collect_results", engines::movement::to_all, root, where), check,
      detail::call_collect_results, group, std::move(indices), std::move(values), size, root);
}

// Calls that are refused; see call/refused_calls.hpp.

template <class T, class... Rest, class Why = detail::why_no_object<std::vector<T>>>
  requires detail::refused<Why>
work<std::vector<T>> collect_results_async(const std::vector<T>&,
                                           Rest&&...) = delete;  // not serializable: Why says what to do
template <class T, class... Rest, class Why = detail::why_no_object<std::vector<T>>>
  requires detail::refused<Why>
work<std::vector<T>> collect_results_async(std::span<const std::size_t>, const std::vector<T>&,
                                           Rest&&...) = delete;  // not serializable: Why says what to do

}  // namespace hfcomm
