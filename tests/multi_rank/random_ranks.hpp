// SPDX-License-Identifier: MIT
#pragma once

#include "ranks.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <optional>
#include <random>

namespace multi_rank {

/// The seed from HFCOMM_TEST_SEED, or a new one each time.
inline std::uint64_t chosen_seed() {
  const char* text = std::getenv("HFCOMM_TEST_SEED");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : std::random_device()();
}

inline std::uint64_t scramble(std::uint64_t value) {
  value = (value ^ (value >> 31)) * 0x7fb5d329728ea185ULL;
  value = (value ^ (value >> 27)) * 0x81dadef4bc2dd44dULL;
  return value ^ (value >> 33);
}

/// Draws random operations from one seed on all ranks, so that each rank knows what the others contribute. Classes with
/// the operations derive from it.
class random_ranks {
 public:
  random_ranks(const random_ranks&) = delete;
  random_ranks& operator=(const random_ranks&) = delete;
  virtual ~random_ranks() = default;

  random_ranks(const hfcomm::process_group& world, std::uint64_t seed) : world_(world), random_(seed), seed_(seed) {
    std::vector<int> everyone(as_index(world.size()));
    std::iota(everyone.begin(), everyone.end(), 0);
    layers_.push_back({world, everyone});
  }

  void run(int operations, std::uint64_t kinds) {
    for (number_ = 0; number_ < operations; ++number_) {
      // Every rank draws the same numbers here, also where it is in no group of this layer.
      const std::uint64_t kind = draw(kinds);
      root_draw_ = draw(1'000'000);
      size_ = draw_size();
      kind_of_reduction_ = static_cast<hfcomm::reduce_kind>(draw(11));
      const std::size_t chosen = draw(layers_.size());
      if (kind < 2) {
        make_layer(chosen, kind == 0);
        continue;
      }
      if (layers_[chosen].group) {
        group_ = &*layers_[chosen].group;
        members_ = &layers_[chosen].members;
        CHECK_MESSAGE(perform(kind), "operation ", number_, " of kind ", kind, " with size ", size_, " in a group of ",
                      group_->size());
      }
    }
  }

 protected:
  /// A partition of the world into groups. A rank without a group skips the layer's operations.
  struct layer {
    std::optional<hfcomm::process_group> group;
    std::vector<int> members;  // of this rank's group, as ranks of the world
  };

  std::uint64_t draw(std::uint64_t limit) { return random_() % limit; }

  std::size_t draw_size() {
    const std::uint64_t range = draw(20);
    return draw(range < 8 ? 30 : range < 16 ? 3'000 : range < 19 ? 20'000 : 150'000);
  }

  // The contribution of world rank `rank` to the current operation.
  [[nodiscard]] std::uint64_t element(int rank, std::size_t i) const {
    return scramble(seed_ + static_cast<std::uint64_t>(number_) * 1'000'003 + as_index(rank) * 77'777'777 + i * 11);
  }
  template <class T>
  [[nodiscard]] std::vector<T> elements(int rank, std::size_t count) const {
    std::vector<T> values(count);
    for (std::size_t i = 0; i < count; ++i) {
      // Small integers: every sum and product of eight of them is exact in a float.
      values[i] = static_cast<T>(static_cast<float>(element(rank, i) % 7));
    }
    return values;
  }
  [[nodiscard]] std::string text(int rank) const {
    return text_of(rank + number_, element(rank, 5) % 2 == 0 ? size_ : element(rank, 6) % (size_ + 1));
  }
  [[nodiscard]] int mine() const { return world_.rank(); }
  [[nodiscard]] int root() const { return static_cast<int>(root_draw_ % members_->size()); }
  [[nodiscard]] int root_in_world() const { return (*members_)[as_index(root())]; }

  void make_layer(std::size_t from, bool splits) {
    // Copied: the layers move.
    const layer parent = layers_[from];
    layer made;
    const std::uint64_t salt = draw(1'000'000'007);
    const auto count = static_cast<int>(parent.members.size());
    std::vector<std::pair<std::uint64_t, int>> order;  // random, for every group of the layer
    for (int rank = 0; rank < count; ++rank) {
      order.emplace_back(scramble(salt + as_index(parent.members[as_index(rank)])), rank);
    }
    if (!parent.group) {
      layers_.push_back({});
    } else if (splits) {
      const auto color_of = [&](int rank) { return static_cast<int>(order[as_index(rank)].first % 2); };
      const auto key_of = [&](int rank) { return static_cast<int>(order[as_index(rank)].first / 2 % 1000); };
      const int me = parent.group->rank();
      made.group = parent.group->split(color_of(me), key_of(me));
      std::vector<std::pair<int, int>> chosen;
      for (int rank = 0; rank < count; ++rank) {
        if (color_of(rank) == color_of(me)) {
          chosen.emplace_back(key_of(rank), rank);
        }
      }
      std::sort(chosen.begin(), chosen.end());
      for (const auto& [key, rank] : chosen) {
        made.members.push_back(parent.members[as_index(rank)]);
      }
      layers_.push_back(std::move(made));
    } else {
      std::sort(order.begin(), order.end());
      order.resize(1 + salt % order.size());
      std::vector<int> ranks;
      for (const auto& [key, rank] : order) {
        ranks.push_back(rank);
        made.members.push_back(parent.members[as_index(rank)]);
      }
      made.group = parent.group->subgroup(ranks);
      layers_.push_back(std::move(made));
    }
    if (layers_.size() > 6) {
      layers_.erase(layers_.begin() + 1 + static_cast<std::ptrdiff_t>(salt % 5));
    }
  }

  /// Runs one operation of a kind from 2 on in `group_`. Returns whether its result was right.
  virtual bool perform(std::uint64_t kind) = 0;

  template <class T>
  static bool same(const std::vector<T>& left, const std::vector<T>& right) {
    return left.size() == right.size() &&
           (left.empty() || std::memcmp(left.data(), right.data(), left.size() * sizeof(T)) == 0);
  }

  const hfcomm::process_group& world_;
  std::mt19937_64 random_;
  std::uint64_t seed_;
  std::vector<layer> layers_;

  // The current operation.
  int number_ = 0;
  std::uint64_t root_draw_ = 0;
  std::size_t size_ = 0;
  hfcomm::reduce_kind kind_of_reduction_ = hfcomm::reduce_kind::sum;
  const hfcomm::process_group* group_ = nullptr;
  const std::vector<int>* members_ = nullptr;
};

/// Runs a program of type Program, which has `kinds` of operations, on so many ranks.
template <class Program>
void run_random_program(int ranks, int operations, std::uint64_t kinds) {
  const std::uint64_t seed = chosen_seed();
  const std::string note = "to repeat: HFCOMM_TEST_SEED=" + std::to_string(seed);
  INFO(note);  // shown with an exception
  run_noted(ranks, note, [&](const hfcomm::process_group& world) {
    Program(world, seed).run(operations, kinds);
    check_usable(world);
  });
}

}  // namespace multi_rank
