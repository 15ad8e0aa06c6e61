// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <source_location>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <hfcomm/collectives/detail/dictionary.hpp>
#include <hfcomm/collectives/detail/dictionary_difference.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/std_template.hpp>
#include <hfcomm/device/all_reduce.hpp>
#include <hfcomm/device/nccl_group_scope.hpp>
#include <hfcomm/device/reduce.hpp>
#include <hfcomm/engine/call_text.hpp>
#include <hfcomm/serialization/std_types.hpp>

namespace hfcomm {

namespace detail {

template <class T>
inline constexpr bool is_device_leaf = writable_reducible_device_range<T&>;
template <template <class...> class C, class... Ts>
  requires(std_template_name<C> == "variant")
inline constexpr bool is_device_leaf<C<Ts...>> = (writable_reducible_device_range<Ts&> && ...);

}  // namespace detail

/// A map from sortable, unique keys to numbers on a device: device_span<float> of one element, or a std::variant of
/// such types.
template <class M>
concept device_dictionary = requires(const M& map, const typename M::key_type& key) {
  map.at(key);
  { map.size() } -> std::convertible_to<std::size_t>;
} && serializable<typename M::key_type> && detail::is_device_leaf<std::remove_cv_t<typename M::mapped_type>>;

namespace detail {

/// The key and the type (a leaf_kind) of a number on a device, which the ranks compare.
using device_entry = std::pair<std::string, std::uint8_t>;

template <class Leaf, class Use>
void visit_device_leaf(Leaf& leaf, Use&& use) {
  if constexpr (device_range<Leaf&>) {
    std::forward<Use>(use)(as_device_span(leaf));
  } else {
    visit([&](auto& one) { use(as_device_span(one)); }, leaf);  // std::visit
  }
}

template <class Key>
std::string quoted_key(const Key& key) {
  return std::convertible_to<const Key&, std::string_view> ? detail::concat({'"', key_text(key), '"'}) : key_text(key);
}

/// Throws mismatch_error on every rank where the ranks' keys or types differ, and usage_error where a type cannot be
/// reduced.
template <device_dictionary Map>
void check_device_dictionary(operation_name name, const Map& values, reduce_op op, int root, const process_group& group,
                             std::source_location where) {
  using list = std::vector<device_entry>;
  operation call = object_call<list>(name, movement::to_all, root, where);
  set_reduction(call, op);
  running_call running(group, call);
  running.require(root >= -1 && root < group.size(), [&] { return engines::no_such_rank("root", root, group.size()); });
  require_factor(running);
  list mine;
  for (const auto* entry : in_order_of_keys(values)) {
    visit_device_leaf(entry->second, [&](auto span) {
      const auto type = element_type_of<typename decltype(span)::value_type>;
      const std::string key = quoted_key(entry->first);
      running.require(span.size() == 1, [&] {
        return detail::concat({key, " has ", span.size(), " elements; a dictionary is of single numbers"});
      });
      running.require(valid(op.kind(), type),
                      [&] { return detail::concat({key, ": ", undefined_reduction(op.kind(), to_string(type))}); });
      device_entry own{key, static_cast<std::uint8_t>(type)};
      mine.push_back(std::move(own));
    });
  }
  const auto context = running.context();
  const auto bytes = encode_contribution(running, call, mine);
  const auto all = exchange_encoded<list>(running, call, bytes, group.size());
  const auto other = std::find_if(all.begin(), all.end(), [&](const list& theirs) { return theirs != all.front(); });
  if (other == all.end()) {
    return;
  }
  std::vector<dictionary_entry> entries;
  for (int rank = 0; rank < group.size(); ++rank) {
    for (const auto& entry : all[static_cast<std::size_t>(rank)]) {
      entries.push_back({rank, entry.first, entry.first, static_cast<leaf_kind>(entry.second)});
    }
  }
  detail::throw_error<mismatch_error>(context,
                                      {"the ranks reduce different keys: ", describe_difference(entries, group.size())},
                                      0, static_cast<int>(other - all.begin()));
}

/// Reduces to the root, or without one to every rank.
template <device_dictionary Map>
void reduce_device_dictionary(operation_name name, const Map& values, stream_ref stream, reduce_op op,
                              std::optional<int> root, const process_group& group, std::source_location where) {
  check_device_dictionary(name, values, op, root.value_or(-1), group, where);
  nccl_group_scope batch(group, where);
  for (const auto* entry : in_order_of_keys(values)) {
    visit_device_leaf(entry->second, [&](auto span) {
      if (root) {
        hfcomm::reduce(span, stream, *root, op, group, where);
      } else {
        hfcomm::all_reduce(span, stream, op, group, where);
      }
    });
  }
  batch.end();
}

}  // namespace detail

}  // namespace hfcomm
