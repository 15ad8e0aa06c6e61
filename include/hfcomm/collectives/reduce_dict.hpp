// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/call/async.hpp>
#include <hfcomm/call/typed_calls.hpp>
#include <hfcomm/collectives/detail/dictionary.hpp>
#include <hfcomm/collectives/detail/dictionary_difference.hpp>
#include <hfcomm/collectives/detail/dictionary_message.hpp>
#include <hfcomm/core/call_site.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/std_algorithm.hpp>

namespace hfcomm {

namespace detail {

/// Checks of the ranks' messages. All ranks have all messages, so all throw the same error, or none does.
template <dictionary Map>
class dictionary_check {
 public:
  dictionary_check(const std::vector<std::vector<std::byte>>& messages, error_context context)
      : messages_(messages), context_(std::move(context)) {}

  /// Throws mismatch_error where two ranks' keys or the types of their values differ. Throws decode_error for a
  /// malformed message.
  void require_equal_structures(host_engine& engine) const {
    std::size_t other = 0;
    const auto first = structure(0);
    for (std::size_t rank = messages_.size(); rank-- > 1;) {
      const auto theirs = structure(rank);
      other = std::equal(theirs.begin(), theirs.end(), first.begin(), first.end()) ? other : rank;
    }
    if (other != 0) {
      throw_difference(engine, other);
    }
  }

  void require_equal_sizes(std::size_t size) const {
    for (std::size_t rank = 0; rank < messages_.size(); ++rank) {
      if (messages_[rank].size() != size) {
        detail::throw_error<decode_error>(context_, {"the dictionary from rank ", rank, ": its values are cut off"});
      }
    }
  }

  /// Throws usage_error naming the keys whose values do not have this reduction.
  void require_defined(const dictionary_leaves<Map>& leaves, reduce_kind op) const {
    for (std::size_t index = 1; index < leaf_kinds; ++index) {
      const auto kind = static_cast<leaf_kind>(index);
      if (leaves.has(kind) && !valid(op, kind)) {
        detail::throw_error<usage_error>(
            context_,
            {names_of(kind), ": ",
             kind == leaf_kind::weighted_mean ? "weighted means are added up; there is no other reduction of them"
                                              : undefined_reduction(op, to_string(kind))});
      }
    }
  }

 private:
  template <class Work>
  [[nodiscard]] auto decoded(std::size_t rank, Work work) const {
    try {
      return work();
    } catch (const decode_error& problem) {
      detail::throw_error<decode_error>(context_, {"the dictionary from rank ", rank, ": ", problem.detail()});
    }
  }

  [[nodiscard]] std::span<const std::byte> structure(std::size_t rank) const {
    return decoded(rank, [&] { return structure_of(messages_[rank]); });
  }

  /// Throws mismatch_error. `other` is a rank whose structure is not that of rank 0.
  [[noreturn, gnu::cold]] void throw_difference(host_engine& engine, std::size_t other) const {
    std::vector<dictionary_entry> entries;
    for (std::size_t rank = 0; rank < messages_.size(); ++rank) {
      decoded(rank, [&] { read_entries<Map>(structure(rank), static_cast<int>(rank), entries); });
    }
    detail::throw_error<mismatch_error>(
        context_,
        {"the ranks reduce different keys: ", describe_difference(entries, static_cast<int>(messages_.size())),
         "; rank 0 called ", engine.matching_call(0), ", rank ", other, " called ",
         engine.matching_call(static_cast<int>(other))},
        0, static_cast<int>(other));
  }

  [[nodiscard, gnu::cold]] std::string names_of(leaf_kind kind) const {
    std::string names;
    std::vector<dictionary_entry> entries;
    read_entries<Map>(structure(0), 0, entries);
    for (const auto& entry : entries) {
      if (entry.kind == kind) {
        detail::append(names, {names.empty() ? "" : ", ", entry.name});
      }
    }
    return names;
  }

  const std::vector<std::vector<std::byte>>& messages_;
  error_context context_;
};

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
  require_factor(running, running.call());
  if constexpr (reducible_element<dictionary_leaf<Map>>) {
    require_valid(running, running.call());
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
  const auto context = running.context();
  const auto received = exchange_messages(running.engine(), call, bytes);
  const dictionary_check<Map> check(received, context);
  check.require_equal_structures(running.engine());
  check.require_equal_sizes(leaves->message_bytes());
  check.require_defined(*leaves, call.op);
  if (!root || group.rank() == *root) {
    leaves->reduce(received, call.op);
  }
  return std::move(*result);
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

}  // namespace hfcomm
