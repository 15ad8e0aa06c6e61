// SPDX-License-Identifier: MIT
#pragma once

#include <concepts>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include <hfcomm/call/async.hpp>
#include <hfcomm/call/refused_calls.hpp>
#include <hfcomm/call/typed_calls.hpp>
#include <hfcomm/collectives/detail/dictionary.hpp>
#include <hfcomm/collectives/detail/dictionary_check.hpp>
#include <hfcomm/collectives/detail/dictionary_message.hpp>
#include <hfcomm/collectives/detail/exchange_messages.hpp>
#include <hfcomm/core/call_site.hpp>

namespace hfcomm {

namespace detail {

template <dictionary Map>
operation dictionary_call(operation_name name, reduce_op op, std::optional<int> root, call_site where) {
  // All ranks receive even where only the root needs the sum, because the keys are checked on every rank.
  operation call = object_call<Map>(name, movement::to_all, root.value_or(-1), where);
  call.element = element_type_of<dictionary_leaf<Map>>;
  set_reduction(call, op);
  return call;
}

template <dictionary Map>
void check_dictionary(checked_call& running, const Map& /*values*/, reduce_op /*op*/, std::optional<int> root) {
  if (root) {
    running.require_root();
  }
  require_factor(running);
  if constexpr (reducible_element<dictionary_leaf<Map>>) {
    require_valid(running);
  }
}

/// Returns the reduced dictionary on the root, and this rank's values elsewhere. Without a root every rank gets the
/// result.
template <dictionary Map>
Map reduce_dictionary(operation&& call, const Map& values, reduce_op op, std::optional<int> root,
                      const process_group& group) {
  running_call running(group, call);
  check_dictionary(running, values, op, root);
  auto& bytes = running.scratch();
  std::optional<Map> result;
  std::optional<dictionary_leaves<Map>> leaves;
  running.attempt("serializing its dictionary threw: ", [&] {
    result.emplace(values);
    leaves.emplace(*result);
    leaves->encode_to(bytes, op.factor());
  });
  call.bytes = bytes.size();
  const auto received = exchange_messages(running.engine(), call, bytes);
  check_messages(running, received, *leaves, &take_path<Map>);
  if (!root || group.rank() == *root) {
    leaves->reduce(received, call.op);
  }
  return std::move(*result);
}

/// Why M is no dictionary. The overloads for values on a device take a stream, too.
template <class M, class... Rest>
consteval auto refuse_dictionary() {
  using map = std::remove_cvref_t<M>;
  using refused = reason::no_dictionary<map>;
  if constexpr (dictionary<map> ||
                !((no_callable<std::remove_cvref_t<Rest>> || std::convertible_to<Rest, int>) && ...)) {
    return no_reason();
  } else if constexpr (map_of_sortable_keys<map>) {
    return refuse_as<typename refused::its_values_need_to_be_numbers_weighted_means_variants_of_these_or_dictionaries>;
  } else {
    return refuse_as<typename refused::use_a_map_with_unique_sortable_keys>;
  }
}

/// Starts the same.
template <dictionary Map>
work<Map> start_to_reduce_dictionary(const operation& call, Map values, reduce_op op, std::optional<int> root,
                                     const process_group& group) {
  return start_on(call, check_dictionary<Map>, reduce_dictionary<Map>, group, std::move(values), op, root);
}

}  // namespace detail

/// Reduces the values of equal keys into the root's result, in one exchange, whatever the number of keys and of types;
/// the other ranks get their own values back. (detectron2's `reduce_dict`, which leaves partial sums there.) The keys
/// of nested maps are combined: "val/loss". `weighted_mean`s add up, under `average` too.
///
/// Every rank gives the same keys with values of the same types. Otherwise every rank throws mismatch_error naming the
/// keys that each rank lacks, and the types. `average` (the default) requires floating-point values: a map of integers
/// does not compile. An integer in a std::variant is a usage_error that names its key, on every rank. So is another
/// reduction of a `weighted_mean` than `sum` and `average`. Inner maps without a key are ignored.
template <dictionary Map>
[[nodiscard]] Map reduce_dict(const Map& values, detail::dictionary_op_or_root<Map> op = reduce_op::average,
                              detail::optional_root root = 0, detail::or_group group = {},
                              call_site where = call_site::current()) {
  return detail::reduce_dictionary(detail::dictionary_call<Map>("reduce_dict", op, op.root_or(root), where), values, op,
                                   op.root_or(root), op.in(root, group, where));
}

/// Reduces the values of equal keys, in one exchange, and gives every rank the result. Otherwise as `reduce_dict`.
/// (MMEngine's `all_reduce_dict`.)
template <dictionary Map>
[[nodiscard]] Map all_reduce_dict(const Map& values, detail::dictionary_op<Map> op = reduce_op::average,
                                  detail::or_group group = {}, call_site where = call_site::current()) {
  return detail::reduce_dictionary(detail::dictionary_call<Map>("all_reduce_dict", op, std::nullopt, where), values, op,
                                   std::nullopt, op.in(group, where));
}

/// Starts to reduce a dictionary, which is copied; the work's value is what `reduce_dict` returns.
template <dictionary Map>
work<Map> reduce_dict_async(Map values, detail::dictionary_op_or_root<Map> op = reduce_op::average,
                            detail::optional_root root = 0, detail::or_group group = {},
                            call_site where = call_site::current()) {
  return detail::start_to_reduce_dictionary(detail::dictionary_call<Map>("reduce_dict", op, op.root_or(root), where),
                                            std::move(values), op, op.root_or(root), op.in(root, group, where));
}

/// Starts to reduce a dictionary, which is copied; the work's value is what `all_reduce_dict` returns.
template <dictionary Map>
work<Map> all_reduce_dict_async(Map values, detail::dictionary_op<Map> op = reduce_op::average,
                                detail::or_group group = {}, call_site where = call_site::current()) {
  return detail::start_to_reduce_dictionary(detail::dictionary_call<Map>("all_reduce_dict", op, std::nullopt, where),
                                            std::move(values), op, std::nullopt, op.in(group, where));
}

// Calls that are refused; see call/refused_calls.hpp.

template <class... A, class Why = detail::reason_of<detail::refuse_dictionary<A...>()>>
detail::refused_result reduce_dict(A&&...) = delete;  // Why says the reason and what to do
template <class... A, class Why = detail::reason_of<detail::refuse_dictionary<A...>()>>
detail::refused_result all_reduce_dict(A&&...) = delete;  // Why says the reason and what to do
template <class... A, class Why = detail::reason_of<detail::refuse_dictionary<A...>()>>
detail::refused_result reduce_dict_async(A&&...) = delete;  // Why says the reason and what to do
template <class... A, class Why = detail::reason_of<detail::refuse_dictionary<A...>()>>
detail::refused_result all_reduce_dict_async(A&&...) = delete;  // Why says the reason and what to do

}  // namespace hfcomm
