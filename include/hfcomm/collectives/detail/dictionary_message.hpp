// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include <hfcomm/collectives/detail/dictionary.hpp>
#include <hfcomm/collectives/detail/sized_part.hpp>
#include <hfcomm/core/plain_list.hpp>
#include <hfcomm/core/std_algorithm.hpp>
#include <hfcomm/core/std_template.hpp>
#include <hfcomm/engine/reduction/kernel.hpp>
#include <hfcomm/serialization/encoding.hpp>

/// The message of a dictionary: its structure, then its values. Values of one kind stand together, so that one run of a
/// kernel reduces each kind.
///   u64 bytes of the structure | f64 factor of a premultiplied sum | structure | padding to 8 | values
/// The structure has, for each leaf in the order of the sorted keys: for each key on the path to it: u64 bytes, key |
/// u8 kind. Two ranks with equal structures have their values at equal offsets.
namespace hfcomm::detail {

inline constexpr std::size_t dictionary_header_bytes = sizeof(std::uint64_t) + sizeof(double);

/// Returns the structure in a message. Throws decode_error where the message is too short for it.
std::span<const std::byte> structure_of(std::span<const std::byte> message);

/// The structure of one dictionary and the offsets of its values in a message.
class dictionary_layout {
 public:
  [[nodiscard]] std::size_t message_bytes() const noexcept { return message_bytes_; }
  [[nodiscard]] bool has(leaf_kind kind) const noexcept { return counts_[static_cast<std::size_t>(kind)] != 0; }

 protected:
  using kind_offsets = std::array<std::size_t, leaf_kinds>;  // of each kind's first value

  dictionary_layout() = default;
  ~dictionary_layout();

  /// Adds one leaf; `path` holds the keys on the path to it.
  void add_leaf(std::span<const std::byte> path, leaf_kind kind);
  /// Calculates the offsets, once all leaves are there.
  void set_offsets();
  /// Makes a message whose values are still zero.
  void write_structure(std::vector<std::byte>& message, double factor) const;
  /// Returns a message with the reduced values; the structure in it is not set. `kernel_of` gives the kernel of each
  /// kind that the dictionary has.
  [[nodiscard]] std::vector<std::byte> reduce_values(std::span<const std::vector<std::byte>> messages, reduce_kind op,
                                                     reduction_kernel (*kernel_of)(leaf_kind) noexcept) const;
  [[nodiscard]] const kind_offsets& offsets() const noexcept { return offsets_; }

 private:
  std::vector<std::byte> structure_;
  std::array<std::size_t, leaf_kinds> counts_{};
  kind_offsets offsets_{};
  std::size_t message_bytes_ = 0;
};

template <class T>
inline constexpr reduction_kernel kernel_of_single_leaf = &reduce_elements<element_of(leaf_kind_of<T>)>;

template <class Leaf>
struct leaf_kernels {
  static reduction_kernel of(leaf_kind /*kind*/) noexcept { return kernel_of_single_leaf<Leaf>; }
};
template <template <class...> class C, class... T>
  requires(std_template_name<C> == "variant")
struct leaf_kernels<C<T...>> {
  static reduction_kernel of(leaf_kind kind) noexcept {
    reduction_kernel found = nullptr;
    ((found = leaf_kind_of<T> == kind ? kernel_of_single_leaf<T> : found), ...);
    return found;
  }
};

/// Returns the kernel that reduces values of one kind. `Leaf` can hold a value of that kind.
template <class Leaf>
[[nodiscard]] reduction_kernel kernel_of_leaf(leaf_kind kind) noexcept {
  return leaf_kernels<Leaf>::of(kind);
}

/// True for a map whose entries are in the order of their keys.
template <class Map>
inline constexpr bool is_sorted_map = false;
template <class Key, class Value, class Allocator>
inline constexpr bool is_sorted_map<std::map<Key, Value, std::less<Key>, Allocator>> = true;
template <class Key, class Value, class Allocator>
inline constexpr bool is_sorted_map<std::map<Key, Value, std::less<>, Allocator>> = true;

/// The leaves of one dictionary, in an order that is the same on all ranks. The dictionary must outlive this.
template <dictionary Map>
class dictionary_leaves : public dictionary_layout {
 public:
  using leaf_type = dictionary_leaf<Map>;

  /// Throws what encoding a key throws, and std::bad_variant_access for a variant without a value.
  explicit dictionary_leaves(Map& map) {
    std::vector<std::byte> path;
    add_leaves(map, path);
    set_offsets();
  }

  void encode_to(std::vector<std::byte>& message, double factor) const {
    write_structure(message, factor);
    for_each_value([&](auto& value, std::size_t offset) {
      std::memcpy(message.data() + offset, static_cast<const void*>(&value), sizeof(value));
    });
  }

  /// Replaces the values by the reduction of all messages' values. Each message is as long as this rank's own and has
  /// the same structure; `op` is valid for every kind that the dictionary has.
  void reduce(std::span<const std::vector<std::byte>> messages, reduce_kind op) {
    const std::vector<std::byte> reduced = reduce_values(messages, op, &kernel_of_leaf<leaf_type>);
    for_each_value([&](auto& value, std::size_t offset) {
      std::memcpy(static_cast<void*>(&value), reduced.data() + offset, sizeof(value));
    });
  }

 private:
  template <class M>
  void add_leaves(M& map, std::vector<std::byte>& path) {
    if constexpr (is_sorted_map<M>) {
      for (auto& entry : map) {
        add_entry<M>(entry, path);
      }
    } else {
      for (auto* entry : in_order_of_keys(map)) {
        add_entry<M>(*entry, path);
      }
    }
  }

  template <class M>
  void add_entry(typename M::value_type& entry, std::vector<std::byte>& path) {
    const std::size_t start = begin_sized_part(path);
    encode(entry.first, path);
    end_sized_part(path, start);
    if constexpr (dictionary<typename M::mapped_type>) {
      add_leaves(entry.second, path);
    } else {
      leaf_type& leaf = entry.second;
      visit_leaf(leaf, [&]<class T>(const T&) { add_leaf(path, leaf_kind_of<T>); });
      leaves_.push_back(&leaf);
    }
    path.resize(start);
  }

  /// Calls `use(value, its offset in a message)`.
  template <class Use>
  void for_each_value(Use use) const {
    auto next = offsets();
    for (leaf_type* leaf : leaves_) {
      visit_leaf(*leaf, [&]<class T>(T& value) {
        std::size_t& offset = next[static_cast<std::size_t>(leaf_kind_of<T>)];
        use(value, offset);
        offset += sizeof(T);
      });
    }
  }

  plain_list<leaf_type*> leaves_;
};

}  // namespace hfcomm::detail
