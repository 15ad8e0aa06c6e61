// SPDX-License-Identifier: MIT
#include "ranks.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <span>

namespace {

using namespace hfcomm;
using namespace multi_rank;

/// From HFCOMM_TEST_SEED, or another one each time.
std::uint64_t chosen_seed() {
  const char* text = std::getenv("HFCOMM_TEST_SEED");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : std::random_device()();
}

std::uint64_t scramble(std::uint64_t value) {
  value = (value ^ (value >> 31)) * 0x7fb5d329728ea185ULL;
  value = (value ^ (value >> 27)) * 0x81dadef4bc2dd44dULL;
  return value ^ (value >> 33);
}

/// What the ranks do, drawn from the same seed on all of them, so that each knows what the others contribute.
class rank_program {
 public:
  rank_program(const process_group& world, std::uint64_t seed) : world_(world), random_(seed), seed_(seed) {
    std::vector<int> everyone(as_index(world.size()));
    std::iota(everyone.begin(), everyone.end(), 0);
    layers_.push_back({world, everyone});
  }

  void run(int operations) {
    for (number_ = 0; number_ < operations; ++number_) {
      // Every rank draws the same numbers here, also where it is in no group of this layer.
      const std::uint64_t kind = draw(16);
      root_draw_ = draw(1'000'000);
      size_ = draw_size();
      op_ = static_cast<reduce_op>(draw(5));
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

 private:
  /// A partition of the world. A rank without a group in it sits its operations out.
  struct layer {
    std::optional<process_group> group;
    std::vector<int> members;  // of this rank's group, as ranks of the world
  };

  std::uint64_t draw(std::uint64_t limit) { return random_() % limit; }

  std::size_t draw_size() {
    const std::uint64_t range = draw(20);
    return draw(range < 8 ? 30 : range < 16 ? 3'000 : range < 19 ? 20'000 : 150'000);
  }

  // What world rank `rank` contributes to the current operation.
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
    std::vector<std::pair<std::uint64_t, int>> order;  // a random one, for every group of the layer
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

  bool perform(std::uint64_t kind) {
    switch (kind) {
      case 2: barrier(*group_); return true;
      case 3: return broadcast_object();
      case 4: return broadcast_buffer();
      case 5: return gather_objects(true);
      case 6: return gather_objects(false);
      case 7: return gather_buffers(true);
      case 8: return gather_buffers(false);
      case 9: return reduce_buffers<std::int32_t>();
      case 10: return reduce_buffers<float>();
      case 11: return reduce_buffers<bfloat16>();
      case 12: return reduce_buffers<std::uint8_t>();
      case 13: return reduce_dictionaries();
      case 14: return fold_objects();
      default: return run_scopes();
    }
  }

  bool broadcast_object() {
    std::string value = text(mine());
    broadcast(value, root(), *group_);
    return value == text(root_in_world());
  }

  bool broadcast_buffer() {
    auto values = elements<double>(mine(), size_);
    broadcast(std::span(values), root(), *group_);
    return values == elements<double>(root_in_world(), size_);
  }

  bool gather_objects(bool everywhere) {
    const auto texts = everywhere ? all_gather(text(mine()), *group_) : gather(text(mine()), root(), *group_);
    if (!everywhere && mine() != root_in_world()) {
      return texts.empty();
    }
    return std::equal(texts.begin(), texts.end(), members_->begin(), members_->end(),
                      [&](const std::string& got, int rank) { return got == text(rank); });
  }

  bool gather_buffers(bool everywhere) {
    const auto in = elements<std::int16_t>(mine(), size_);
    const bool receives = everywhere || mine() == root_in_world();
    std::vector<std::int16_t> out(receives ? size_ * members_->size() : 0);
    if (everywhere) {
      all_gather(in, out, *group_);
    } else {
      gather(in, out, root(), *group_);
    }
    std::vector<std::int16_t> expected;
    for (const int rank : *members_) {
      const auto part = elements<std::int16_t>(rank, receives ? size_ : 0);
      expected.insert(expected.end(), part.begin(), part.end());
    }
    return out == expected;
  }

  template <class T>
  T expected_element(reduce_op op, const std::vector<std::vector<T>>& inputs, std::size_t i) const {
    auto result = static_cast<double>(inputs[0][i]);
    for (std::size_t k = 1; k < inputs.size(); ++k) {
      const auto next = static_cast<double>(inputs[k][i]);
      result = op == reduce_op::product ? result * next
               : op == reduce_op::min   ? std::min(result, next)
               : op == reduce_op::max   ? std::max(result, next)
                                        : result + next;
    }
    if constexpr (std::integral<T>) {
      return static_cast<T>(static_cast<std::int64_t>(result));
    } else if (op == reduce_op::average) {
      // Divided as the library divides: in the element's own precision, or float's.
      return T(static_cast<float>(result) / static_cast<float>(inputs.size()));
    } else {
      return T(static_cast<float>(result));
    }
  }

  template <class T>
  bool reduce_buffers() {
    const reduce_op op = std::integral<T> && op_ == reduce_op::average ? reduce_op::sum : op_;
    std::vector<std::vector<T>> inputs;
    for (const int rank : *members_) {
      inputs.push_back(elements<T>(rank, size_));
    }
    std::vector<T> expected(size_);
    for (std::size_t i = 0; i < size_; ++i) {
      expected[i] = expected_element(op, inputs, i);
    }
    auto data = elements<T>(mine(), size_);
    const auto before = data;
    if (root_draw_ % 2 == 0) {
      all_reduce(data, op, *group_);
      return same(data, expected);
    }
    hfcomm::reduce(data, root(), op, *group_);
    return same(data, mine() == root_in_world() ? expected : before);
  }

  template <class T>
  static bool same(const std::vector<T>& left, const std::vector<T>& right) {
    return left.empty() || std::memcmp(left.data(), right.data(), left.size() * sizeof(T)) == 0;
  }

  bool reduce_dictionaries() {
    const std::size_t count = size_ % 300;
    const auto dictionary = [&](int rank) {
      std::map<std::string, double> values;
      for (std::size_t i = 0; i < count; ++i) {
        values["key " + std::to_string(i)] = static_cast<double>(element(rank, i) % 1000);
      }
      return values;
    };
    auto expected = dictionary((*members_)[0]);
    for (std::size_t k = 1; k < members_->size(); ++k) {
      for (const auto& [key, value] : dictionary((*members_)[k])) {
        expected[key] += value;
      }
    }
    if (root_draw_ % 2 == 0) {
      return all_reduce_dict(dictionary(mine()), reduce_op::sum, *group_) == expected;
    }
    const auto reduced = reduce_dict(dictionary(mine()), reduce_op::sum, root(), *group_);
    return reduced == (mine() == root_in_world() ? expected : dictionary(mine()));
  }

  bool fold_objects() {
    const auto append = [](std::string left, const std::string& right) { return left + right; };
    std::string expected;
    for (const int rank : *members_) {
      expected += text(rank);
    }
    if (root_draw_ % 2 == 0) {
      return all_reduce(text(mine()), append, *group_) == expected;
    }
    const auto folded = hfcomm::reduce(text(mine()), root(), append, *group_);
    return folded.has_value() == (mine() == root_in_world()) && (!folded || *folded == expected);
  }

  bool run_scopes() {
    const bool first = run_master_first([] { return true; }, *group_);
    const auto seed = root_draw_ % 2 == 0 ? shared_random_seed(*group_) : 0;
    const auto seeds = run_barrier_scope([&] { return all_gather(seed, *group_); }, *group_);
    return first && std::all_of(seeds.begin(), seeds.end(), [&](auto other) { return other == seed; });
  }

  const process_group& world_;
  std::mt19937_64 random_;
  std::uint64_t seed_;
  std::vector<layer> layers_;

  // The current operation.
  int number_ = 0;
  std::uint64_t root_draw_ = 0;
  std::size_t size_ = 0;
  reduce_op op_ = reduce_op::sum;
  const process_group* group_ = nullptr;
  const std::vector<int>* members_ = nullptr;
};

void run_random_program(int ranks) {
  const std::uint64_t seed = chosen_seed();
  const std::string note = "to repeat: HFCOMM_TEST_SEED=" + std::to_string(seed);
  INFO(note);  // for what is thrown
  run_noted(ranks, note, [&](const process_group& world) {
    rank_program(world, seed).run(300);
    check_usable(world);
  });
}

TEST_CASE("random operations: 2 ranks") { run_random_program(2); }
TEST_CASE("random operations: 3 ranks") { run_random_program(3); }
TEST_CASE("random operations: 4 ranks") { run_random_program(4); }
TEST_CASE("random operations: 5 ranks") { run_random_program(5); }
TEST_CASE("random operations: 6 ranks") { run_random_program(6); }
TEST_CASE("random operations: 7 ranks") { run_random_program(7); }
TEST_CASE("random operations: 8 ranks") { run_random_program(8); }

}  // namespace
