// SPDX-License-Identifier: MIT
#include <algorithm>
#include <map>
#include <span>
#include <variant>

#include "random_ranks.hpp"

namespace {

using namespace hfcomm;
using namespace multi_rank;

class rank_program final : public random_ranks {
 public:
  using random_ranks::random_ranks;

 private:
  bool perform(std::uint64_t kind) override {
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
      case 15: return run_scopes();
      case 16: return reduce_lists();
      case 17: return reduce_mixed();
      default: return collect();
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
    const auto kind = static_cast<reduce_kind>(static_cast<int>(kind_of_reduction_) % 5);
    const reduce_op op = std::integral<T> && kind == reduce_kind::average ? reduce_op::sum : reduce_op(kind);
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

  /// Many spans in one call, cut from three vectors.
  bool reduce_lists() {
    std::vector<std::vector<float>> data;
    std::vector<std::span<float>> spans;
    for (std::size_t i = 0; i < 3; ++i) {
      data.push_back(elements<float>(mine(), size_ / (i + 1)));
      spans.push_back(std::span(data.back()).first(data.back().size() / 3));
      spans.push_back(std::span(data.back()).subspan(data.back().size() / 3));
    }
    const coalesce_options options{.chunk_bytes = 1 + root_draw_ % (4 * size_ + 1)};
    const bool reduces = root_draw_ % 2 == 0;
    if (reduces) {
      all_reduce(spans, reduce_op::sum, options, *group_);
    } else {
      broadcast(spans, root(), options, *group_);
    }
    bool right = true;
    for (std::size_t i = 0; i < 3; ++i) {
      auto expected = elements<float>(root_in_world(), size_ / (i + 1));
      for (std::size_t k = 0; reduces && k < expected.size(); ++k) {
        expected[k] = 0;
        for (const int rank : *members_) {
          expected[k] += elements_at(rank, k);
        }
      }
      right = right && same(data[i], expected);
    }
    return right;
  }
  [[nodiscard]] float elements_at(int rank, std::size_t i) const { return static_cast<float>(element(rank, i) % 7); }

  /// Numbers of several types and means, in a dictionary of dictionaries.
  bool reduce_mixed() {
    using leaf = std::variant<double, std::int32_t, weighted_mean>;
    using inner = std::map<std::string, leaf>;
    const std::size_t count = size_ % 50;
    const auto dictionary = [&](int rank) {
      std::map<int, inner> all;
      for (std::size_t i = 0; i < count; ++i) {
        const auto number = static_cast<std::int32_t>(element(rank, i) % 100);
        weighted_mean mean;
        mean.add(number, 1 + number % 3);
        inner& place = all[static_cast<int>(i % 5)];
        const std::string key = std::to_string(i);
        place[key] = i % 3 == 0 ? leaf(static_cast<double>(number)) : i % 3 == 1 ? leaf(number) : leaf(mean);
      }
      return all;
    };
    auto expected = dictionary((*members_)[0]);
    for (std::size_t k = 1; k < members_->size(); ++k) {
      for (const auto& [group, values] : dictionary((*members_)[k])) {
        for (const auto& [key, value] : values) {
          std::visit(
              [&](auto& sum) {
                using T = std::remove_reference_t<decltype(sum)>;
                sum = static_cast<T>(sum + std::get<T>(value));
              },
              expected[group][key]);
        }
      }
    }
    return all_reduce_dict(dictionary(mine()), reduce_op::sum, *group_) == expected;
  }

  /// Collects the results of a data set that a sampler has distributed.
  bool collect() {
    const std::size_t total = size_ % 2000;
    const distributed_sampler sampler(total, {.shuffle = root_draw_ % 2 == 0, .seed = seed_}, *group_);
    const auto indices = sampler.indices();
    std::vector<std::string> results;
    for (const std::size_t index : indices) {
      results.push_back("result " + std::to_string(element(0, index)));
    }
    const auto all = collect_results(std::span<const std::size_t>(indices), std::move(results), total, root(), *group_);
    bool right = all.size() == (mine() == root_in_world() ? total : 0);
    for (std::size_t index = 0; index < all.size(); ++index) {
      right = right && all[index] == "result " + std::to_string(element(0, index));
    }
    return right;
  }

  bool run_scopes() {
    const bool first = run_master_first([] { return true; }, *group_);
    const auto seed = root_draw_ % 2 == 0 ? shared_random_seed(*group_) : 0;
    const auto seeds = run_barrier_scope([&] { return all_gather(seed, *group_); }, *group_);
    return first && std::all_of(seeds.begin(), seeds.end(), [&](auto other) { return other == seed; });
  }
};

constexpr std::uint64_t kinds = 19;

}  // namespace

TEST_CASE("random operations: 2 ranks get exact results") { run_random_program<rank_program>(2, 300, kinds); }
TEST_CASE("random operations: 3 ranks get exact results") { run_random_program<rank_program>(3, 300, kinds); }
TEST_CASE("random operations: 4 ranks get exact results") { run_random_program<rank_program>(4, 300, kinds); }
TEST_CASE("random operations: 5 ranks get exact results") { run_random_program<rank_program>(5, 300, kinds); }
TEST_CASE("random operations: 6 ranks get exact results") { run_random_program<rank_program>(6, 300, kinds); }
TEST_CASE("random operations: 7 ranks get exact results") { run_random_program<rank_program>(7, 300, kinds); }
TEST_CASE("random operations: 8 ranks get exact results") { run_random_program<rank_program>(8, 300, kinds); }
