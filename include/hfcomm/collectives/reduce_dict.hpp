// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <concepts>
#include <cstring>
#include <exception>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <hfcomm/collectives/call.hpp>

namespace hfcomm {

/// A map from sortable, serializable keys to numbers: std::map<std::string, float>, std::unordered_map<int, double>,
/// ...
template <class M>
concept dictionary =
    requires(const M& map) {
      typename M::key_type;
      typename M::mapped_type;
      { map.size() } -> std::convertible_to<std::size_t>;
    } && serializable<typename M::key_type> && std::totally_ordered<typename M::key_type> &&
    reducible_element<typename M::mapped_type>;

namespace detail {

/// A dictionary on its way: the keys, then the values as one array, so that all values are reduced at once.
///   u64 bytes of the keys | for each key, sorted: u64 bytes, key | padding to 8 | values in the keys' order
template <dictionary Map>
class dictionary_reduction {
 public:
  using key_type = typename Map::key_type;
  using value_type = typename Map::mapped_type;

  dictionary_reduction(const Map& map, std::size_t ranks) : arrived_(ranks) {
    for (const auto& entry : map) {
      sorted_.push_back(&entry);
    }
    std::sort(sorted_.begin(), sorted_.end(),
              [](const auto* left, const auto* right) { return left->first < right->first; });
  }

  void encode_to(std::vector<std::byte>& bytes) const {
    bytes.assign(sizeof(std::uint64_t), {});
    for (const auto* entry : sorted_) {
      const std::size_t place = bytes.size();
      bytes.resize(place + sizeof(std::uint64_t));
      encode(entry->first, bytes);
      put(bytes, place, bytes.size() - place - sizeof(std::uint64_t));
    }
    put(bytes, 0, bytes.size() - sizeof(std::uint64_t));
    bytes.resize((bytes.size() + 7) / 8 * 8);
    for (const auto* entry : sorted_) {
      const auto* value = reinterpret_cast<const std::byte*>(&entry->second);
      bytes.insert(bytes.end(), value, value + sizeof(value_type));
    }
  }

  void arrive(int source, std::vector<std::byte> message) {
    arrived_[static_cast<std::size_t>(source)] = std::move(message);
  }

  /// Throws mismatch_error where two ranks' keys differ: every rank has all keys, so every rank names the same two.
  void check_keys(const error_context& context, host_engine& engine) const {
    for (std::size_t rank = 0; rank < arrived_.size(); ++rank) {
      if (key_bytes(rank) > arrived_[rank].size() || values_offset(rank) > arrived_[rank].size()) {
        throw decode_error(context, "the dictionary from rank " + std::to_string(rank) + " is cut off");
      }
    }
    for (std::size_t rank = 1; rank < arrived_.size(); ++rank) {
      if (key_bytes(0) != key_bytes(rank) ||
          std::memcmp(arrived_[0].data(), arrived_[rank].data(), values_offset(0)) != 0) {
        throw mismatch_error(context,
                             "ranks 0 and " + std::to_string(rank) + " reduce different keys: " + difference(rank) +
                                 "; rank 0 called " + engine.matching_call(0) + ", rank " + std::to_string(rank) +
                                 " called " + engine.matching_call(static_cast<int>(rank)),
                             0, static_cast<int>(rank));
      }
    }
  }

  void reduce_into(Map& result, reduce_op op) const {
    std::vector<const std::byte*> inputs;
    inputs.reserve(arrived_.size());
    for (std::size_t rank = 0; rank < arrived_.size(); ++rank) {
      if (arrived_[rank].size() - values_offset(rank) != sorted_.size() * sizeof(value_type)) {
        throw decode_error(error_context{},
                           "the dictionary from rank " + std::to_string(rank) + " has too few or too many values");
      }
      inputs.push_back(arrived_[rank].data() + values_offset(rank));
    }
    std::vector<value_type> reduced(sorted_.size());
    reduce_elements(op, element_type_of<value_type>, inputs, reinterpret_cast<std::byte*>(reduced.data()),
                    reduced.size());
    for (std::size_t index = 0; index < sorted_.size(); ++index) {
      result.find(sorted_[index]->first)->second = reduced[index];
    }
  }

 private:
  static void put(std::vector<std::byte>& bytes, std::size_t place, std::uint64_t number) {
    std::memcpy(bytes.data() + place, &number, sizeof(number));
  }
  [[nodiscard]] std::uint64_t number_at(std::size_t rank, std::size_t place) const {
    std::uint64_t number = 0;
    if (place + sizeof(number) <= arrived_[rank].size()) {
      std::memcpy(&number, arrived_[rank].data() + place, sizeof(number));
    }
    return number;
  }
  [[nodiscard]] std::uint64_t key_bytes(std::size_t rank) const { return number_at(rank, 0); }
  [[nodiscard]] std::size_t values_offset(std::size_t rank) const {
    return (sizeof(std::uint64_t) + static_cast<std::size_t>(key_bytes(rank)) + 7) / 8 * 8;
  }

  [[nodiscard]] std::vector<key_type> keys_of(std::size_t rank) const {
    std::vector<key_type> keys;
    std::size_t place = sizeof(std::uint64_t);
    const std::size_t end = std::min(place + static_cast<std::size_t>(key_bytes(rank)), arrived_[rank].size());
    while (place < end) {
      const auto size = static_cast<std::size_t>(number_at(rank, place));
      place += sizeof(std::uint64_t);
      if (size > end - place) {
        throw decode_error(error_context{}, "a dictionary's keys are cut off");
      }
      key_type key{};
      decode_into(key, std::span<const std::byte>(arrived_[rank]).subspan(place, size));
      keys.push_back(std::move(key));
      place += size;
    }
    return keys;
  }

  static std::string text_of(const key_type& key) {
    if constexpr (std::convertible_to<const key_type&, std::string_view>) {
      return '"' + std::string(std::string_view(key)) + '"';
    } else if constexpr (std::is_arithmetic_v<key_type>) {
      return std::to_string(key);
    } else {
      return "(a key)";
    }
  }

  [[nodiscard]] std::string difference(std::size_t rank) const {
    const auto first = keys_of(0);
    const auto second = keys_of(rank);
    const auto only = [](const std::vector<key_type>& mine, const std::vector<key_type>& theirs) {
      std::string list;
      for (const auto& key : mine) {
        if (!std::binary_search(theirs.begin(), theirs.end(), key)) {
          list += (list.empty() ? "" : ", ") + text_of(key);
        }
      }
      return list;
    };
    const std::string here = only(first, second);
    const std::string there = only(second, first);
    std::string text = here.empty() ? "" : "only rank 0 has " + here;
    text += (here.empty() || there.empty()) ? "" : "; ";
    return text + (there.empty() ? "" : "only rank " + std::to_string(rank) + " has " + there);
  }

  std::vector<const typename Map::value_type*> sorted_;
  std::vector<std::vector<std::byte>> arrived_;
};

/// Keeps the messages as they are.
template <dictionary Map>
class dictionary_receiver final : public receiver {
 public:
  explicit dictionary_receiver(dictionary_reduction<Map>& reduction, std::size_t ranks)
      : reduction_(reduction), partial_(ranks) {}

  void receive(int source, std::span<const std::byte> chunk, std::uint64_t /*offset*/, std::uint64_t total) override {
    auto& message = partial_[static_cast<std::size_t>(source)];
    message.insert(message.end(), chunk.begin(), chunk.end());
    if (message.size() == total) {
      reduction_.arrive(source, std::move(message));
    }
  }

 private:
  dictionary_reduction<Map>& reduction_;
  std::vector<std::vector<std::byte>> partial_;
};

/// Without a root everyone gets the result.
template <dictionary Map>
Map reduce_dictionary(operation_name name, const Map& values, reduce_op op, std::optional<int> root,
                      const process_group& group, std::source_location where) {
  // Everyone receives even where only the root needs the sum: the keys are checked on every rank.
  operation call = object_call<Map>(name, movement::to_all, root.value_or(-1), where);
  call.element = element_type_of<typename Map::mapped_type>;
  call.reduces = true;
  call.op = op;
  running_call running(group, call);
  if (root) {
    running.require_root();
  }
  require_valid(running, call);
  const auto ranks = static_cast<std::size_t>(group.size());
  dictionary_reduction<Map> reduction(values, ranks);
  auto& bytes = running.scratch();
  try {
    reduction.encode_to(bytes);
  } catch (...) {
    running.reject("serializing its keys threw: " + current_exception_text());
    throw;
  }
  call.bytes = bytes.size();
  const auto context = running.context();
  dictionary_receiver<Map> received(reduction, ranks);
  running.engine().exchange(call, bytes, received);
  reduction.check_keys(context, running.engine());
  Map result = values;
  if (!root || group.rank() == *root) {
    reduction.reduce_into(result, op);
  }
  return result;
}

}  // namespace detail

/// Reduces the values of equal keys into the root's result, in one exchange, whatever the number of keys; the other
/// ranks get their own values back. (detectron2's `reduce_dict`, which leaves partial sums there.)
///
/// Every rank brings the same keys; otherwise every rank throws mismatch_error naming the keys that only one of two
/// ranks has. `average` (the default) wants floating-point values (usage_error otherwise).
template <dictionary Map>
[[nodiscard]] Map reduce_dict(const Map& values, reduce_op op = reduce_op::average, int root = 0,
                              const process_group& group = world(),
                              std::source_location where = std::source_location::current()) {
  return detail::reduce_dictionary("reduce_dict", values, op, root, group, where);
}

/// Reduces the values of equal keys, in one exchange, and gives every rank the result. Otherwise as `reduce_dict`.
/// (MMEngine's `all_reduce_dict`.)
template <dictionary Map>
[[nodiscard]] Map all_reduce_dict(const Map& values, reduce_op op = reduce_op::average,
                                  const process_group& group = world(),
                                  std::source_location where = std::source_location::current()) {
  return detail::reduce_dictionary("all_reduce_dict", values, op, std::nullopt, group, where);
}

}  // namespace hfcomm
