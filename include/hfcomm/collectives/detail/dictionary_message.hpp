// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/collectives/detail/dictionary.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/engine/host_engine.hpp>
#include <hfcomm/engine/reduction/reduction.hpp>
#include <hfcomm/serialization/object.hpp>

/// How a dictionary travels: what it holds where, then the values, those of one kind together, so that each kind is
/// reduced by one run of its kernel.
///   u64 bytes of the structure | f64 factor of a premultiplied sum | structure | padding to 8 | values
/// The structure is, for each leaf in the order of the sorted keys: for each key on the way to it: u64 bytes, key | u8
/// kind. Where the structures of two ranks are equal, so is where their values are.
namespace hfcomm::detail {

inline constexpr std::size_t dictionary_header_bytes = sizeof(std::uint64_t) + sizeof(double);

/// The structure in a message; throws decode_error where the message is too short for it.
inline std::span<const std::byte> structure_of(std::span<const std::byte> message) {
  std::uint64_t size = 0;
  if (message.size() < dictionary_header_bytes) {
    throw decode_error(error_context{}, "it is cut off");
  }
  std::memcpy(&size, message.data(), sizeof(size));
  if (size > message.size() - dictionary_header_bytes) {
    throw decode_error(error_context{}, "its keys are cut off");
  }
  return message.subspan(dictionary_header_bytes, static_cast<std::size_t>(size));
}

/// The leaves of one dictionary, which it must outlive, in the order that all ranks have them in.
template <dictionary Map>
class dictionary_leaves {
 public:
  using leaf_type = dictionary_leaf<Map>;

  /// Throws what encoding a key throws, and std::bad_variant_access for a variant without a value.
  explicit dictionary_leaves(Map& map) {
    std::vector<std::byte> path;
    walk(map, path);
    std::size_t end = (dictionary_header_bytes + structure_.size() + 7) / 8 * 8;
    for (std::size_t kind = 0; kind < leaf_kinds; ++kind) {
      offsets_[kind] = end;
      end += (counts_[kind] * size_of(static_cast<leaf_kind>(kind)) + 7) / 8 * 8;
    }
    message_bytes_ = end;
  }

  [[nodiscard]] std::size_t message_bytes() const noexcept { return message_bytes_; }
  [[nodiscard]] bool has(leaf_kind kind) const noexcept { return counts_[static_cast<std::size_t>(kind)] != 0; }

  void encode_to(std::vector<std::byte>& message, double factor) const {
    message.assign(message_bytes_, {});
    const std::uint64_t size = structure_.size();
    std::memcpy(message.data(), &size, sizeof(size));
    std::memcpy(message.data() + sizeof(size), &factor, sizeof(factor));
    std::copy(structure_.begin(), structure_.end(), message.begin() + dictionary_header_bytes);
    for_each_value([&](auto& value, std::size_t offset) {
      std::memcpy(message.data() + offset, static_cast<const void*>(&value), sizeof(value));
    });
  }

  /// Replaces the values by what reducing those of all messages gives. Each message is as long as this rank's own and
  /// has the same structure; `op` is valid for every kind there is.
  void reduce(std::span<const std::vector<std::byte>> messages, reduce_kind op) {
    std::vector<const std::byte*> inputs(messages.size());
    std::vector<double> factors(messages.size());
    for (std::size_t rank = 0; rank < messages.size(); ++rank) {
      std::memcpy(&factors[rank], messages[rank].data() + sizeof(std::uint64_t), sizeof(double));
    }
    std::vector<std::byte> reduced(message_bytes_);
    for (std::size_t index = 0; index < leaf_kinds; ++index) {
      const auto kind = static_cast<leaf_kind>(index);
      if (has(kind)) {
        std::transform(messages.begin(), messages.end(), inputs.begin(),
                       [&](const auto& message) { return message.data() + offsets_[index]; });
        reduce_elements(operation_for(kind, op), element_of(kind), inputs, reduced.data() + offsets_[index],
                        counts_[index] * elements_in(kind), factors);
      }
    }
    for_each_value([&](auto& value, std::size_t offset) {
      std::memcpy(static_cast<void*>(&value), reduced.data() + offset, sizeof(value));
    });
  }

 private:
  template <class M>
  void walk(M& map, std::vector<std::byte>& path) {
    std::vector<typename M::value_type*> sorted;
    sorted.reserve(map.size());
    for (auto& entry : map) {
      sorted.push_back(&entry);
    }
    std::sort(sorted.begin(), sorted.end(),
              [](const auto* left, const auto* right) { return left->first < right->first; });
    for (auto* entry : sorted) {
      const std::size_t before = path.size();
      path.resize(before + sizeof(std::uint64_t));
      encode(entry->first, path);
      const std::uint64_t size = path.size() - before - sizeof(size);
      std::memcpy(path.data() + before, &size, sizeof(size));
      if constexpr (dictionary<typename M::mapped_type>) {
        walk(entry->second, path);
      } else {
        add(entry->second, path);
      }
      path.resize(before);
    }
  }

  void add(leaf_type& leaf, const std::vector<std::byte>& path) {
    structure_.insert(structure_.end(), path.begin(), path.end());
    visit_leaf(leaf, [&]<class T>(const T&) {
      structure_.push_back(static_cast<std::byte>(leaf_kind_of<T>));
      ++counts_[static_cast<std::size_t>(leaf_kind_of<T>)];
    });
    leaves_.push_back(&leaf);
  }

  /// `use(value, where it is in a message)`
  template <class Use>
  void for_each_value(Use use) const {
    auto offsets = offsets_;
    for (leaf_type* leaf : leaves_) {
      visit_leaf(*leaf, [&]<class T>(T& value) {
        std::size_t& offset = offsets[static_cast<std::size_t>(leaf_kind_of<T>)];
        use(value, offset);
        offset += sizeof(T);
      });
    }
  }

  std::vector<std::byte> structure_;
  std::vector<leaf_type*> leaves_;
  std::array<std::size_t, leaf_kinds> counts_{};
  std::array<std::size_t, leaf_kinds> offsets_{};  // of each kind's first value in a message
  std::size_t message_bytes_ = 0;
};

/// Keeps every rank's message as it is.
class dictionary_receiver final : public receiver {
 public:
  explicit dictionary_receiver(std::size_t ranks) : messages_(ranks) {}

  void receive(int source, std::span<const std::byte> chunk, std::uint64_t /*offset*/, std::uint64_t total) override {
    auto& message = messages_[static_cast<std::size_t>(source)];
    message.reserve(static_cast<std::size_t>(total));
    message.insert(message.end(), chunk.begin(), chunk.end());
  }

  [[nodiscard]] const std::vector<std::vector<std::byte>>& messages() const noexcept { return messages_; }

 private:
  std::vector<std::vector<std::byte>> messages_;
};

}  // namespace hfcomm::detail
