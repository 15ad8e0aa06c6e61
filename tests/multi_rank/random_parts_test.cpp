// SPDX-License-Identifier: MIT
#include <algorithm>
#include <limits>
#include <map>
#include <span>

#include "random_ranks.hpp"

namespace {

using namespace hfcomm;
using namespace multi_rank;

/// Parts of all sizes, messages, and asynchronous operations that are dropped, mixed with plain ones.
class parts_program final : public random_ranks {
 public:
  using random_ranks::random_ranks;
  static constexpr std::uint64_t kinds = 23;

 private:
  bool perform(std::uint64_t kind) override {
    switch (kind) {
      case 2: return scatter_objects();
      case 3: return scatter_buffers();
      case 4: return scatter_uneven();
      case 5: return exchange_objects();
      case 6: return exchange_buffers();
      case 7: return exchange_uneven();
      case 8: return reduce_parts<std::uint16_t>();
      case 9: return reduce_parts<float>();
      case 10: return reduce_uneven();
      case 11: return gather_uneven(true);
      case 12: return gather_uneven(false);
      case 13: return reduce_all<std::int64_t>();
      case 14: return reduce_all<bfloat16>();
      case 15: return start_several();
      case 16: return send_around_ring();
      case 17: return receive_from_any_source();
      case 18: return exchange_unknown();
      case 19: return gather_unknown(true);
      case 20: return gather_unknown(false);
      case 21: return scan_elements();
      default: return send_to_each_other();
    }
  }

  [[nodiscard]] int count() const { return static_cast<int>(members_->size()); }
  [[nodiscard]] int world_rank(int member) const { return (*members_)[as_index(member)]; }
  [[nodiscard]] int me() const { return group_->rank(); }
  [[nodiscard]] bool is_root() const { return me() == root(); }

  /// The part that member `from` sends to member `to`: its length, often 0, and its values.
  [[nodiscard]] std::size_t length(int from, int to) const {
    const std::uint64_t random = scramble(element(world_rank(from), 3) + as_index(world_rank(to)) * 31);
    return random % 4 == 0 ? 0 : (random / 4) % (size_ / (random % 5 == 0 ? 1 : as_index(count())) + 1);
  }
  [[nodiscard]] std::int32_t value(int from, int to, std::size_t i) const {
    return static_cast<std::int32_t>(element(world_rank(from), i) + as_index(to) * 17);
  }
  [[nodiscard]] std::vector<std::int32_t> part(int from, int to, std::size_t length) const {
    std::vector<std::int32_t> values(length);
    for (std::size_t i = 0; i < length; ++i) {
      values[i] = value(from, to, i);
    }
    return values;
  }
  /// The parts from one member to all, or from all to one, concatenated, and their lengths.
  struct parts {
    std::vector<std::int32_t> values;
    std::vector<std::size_t> counts;

    void add(const std::vector<std::int32_t>& part) {
      values.insert(values.end(), part.begin(), part.end());
      counts.push_back(part.size());
    }
  };
  template <class Length>
  [[nodiscard]] parts from(int member, Length&& length_to) const {
    parts all;
    for (int to = 0; to < count(); ++to) {
      all.add(part(member, to, length_to(to)));
    }
    return all;
  }
  template <class Length>
  [[nodiscard]] parts to(int member, Length&& length_from) const {
    parts all;
    for (int sender = 0; sender < count(); ++sender) {
      all.add(part(sender, member, length_from(sender)));
    }
    return all;
  }
  [[nodiscard]] std::map<std::string, std::vector<std::int32_t>> object(int from, int to) const {
    return {{"from " + std::to_string(from), part(from, to, length(from, to))},
            {"to " + std::to_string(to), part(from, to, length(from, to) % 7)}};
  }

  bool scatter_objects() {
    std::vector<std::map<std::string, std::vector<std::int32_t>>> values;
    for (int to = 0; is_root() && to < count(); ++to) {
      values.push_back(object(root(), to));
    }
    return scatter(values, root(), *group_) == object(root(), me());
  }

  bool scatter_buffers() {
    const auto all = from(root(), [&](int) { return size_; });
    std::vector<std::int32_t> out(size_);
    scatter(is_root() ? all.values : std::vector<std::int32_t>(), out, root(), *group_);
    return out == part(root(), me(), size_);
  }

  bool scatter_uneven() {
    const auto all = from(root(), [&](int to) { return length(root(), to); });
    std::vector<std::int32_t> out(length(root(), me()));
    if (is_root()) {
      scatter(all.values, out, all.counts, root(), *group_);
    } else {
      scatter(std::vector<std::int32_t>(), out, std::span<const std::size_t>(), root(), *group_);
    }
    return out == part(root(), me(), length(root(), me()));
  }

  bool exchange_objects() {
    std::vector<std::map<std::string, std::vector<std::int32_t>>> mine;
    std::vector<std::map<std::string, std::vector<std::int32_t>>> expected;
    for (int other = 0; other < count(); ++other) {
      mine.push_back(object(me(), other));
      expected.push_back(object(other, me()));
    }
    return all_to_all(mine, *group_) == expected;
  }

  bool exchange_buffers() {
    const auto mine = from(me(), [&](int) { return size_; });
    std::vector<std::int32_t> out(mine.values.size());
    all_to_all(mine.values, out, *group_);
    return out == to(me(), [&](int) { return size_; }).values;
  }

  bool exchange_uneven() {
    const auto mine = from(me(), [&](int other) { return length(me(), other); });
    const auto expected = to(me(), [&](int other) { return length(other, me()); });
    std::vector<std::int32_t> out(expected.values.size());
    all_to_all(mine.values, mine.counts, out, expected.counts, *group_);
    return out == expected.values;
  }

  bool gather_uneven(bool everywhere) {
    const auto mine = part(me(), 0, length(me(), 0));
    auto expected = to(0, [&](int other) { return length(other, 0); });
    std::vector<std::int32_t> out(everywhere || is_root() ? expected.values.size() : 0);
    if (everywhere) {
      all_gather(mine, out, expected.counts, *group_);
      return out == expected.values;
    }
    gather(mine, out, is_root() ? expected.counts : std::vector<std::size_t>(), root(), *group_);
    return !is_root() || out == expected.values;
  }

  /// A reduction that is valid for T, with a factor for each rank.
  template <class T>
  [[nodiscard]] reduce_op op_for(int member) const {
    const auto kind =
        hfcomm::detail::valid(kind_of_reduction_, element_type_of<T>) ? kind_of_reduction_ : reduce_kind::sum;
    return kind == reduce_kind::premultiplied_sum
               ? reduce_op(reduce_op::premultiplied_sum(static_cast<double>(element(world_rank(member), 2) % 5)))
               : reduce_op(kind);
  }

  /// Small whole numbers, of which all sums and products are exact.
  template <class T>
  [[nodiscard]] T expected(std::size_t i) const {
    const auto at = [&](int member) { return element(world_rank(member), i) % 7; };
    auto whole = at(0);
    double factored = static_cast<double>(at(0)) * op_for<T>(0).factor();
    for (int member = 1; member < count(); ++member) {
      const auto next = at(member);
      factored += static_cast<double>(next) * op_for<T>(member).factor();
      switch (op_for<T>(0).kind()) {
        case reduce_kind::sum:
        case reduce_kind::average: whole += next; break;
        case reduce_kind::product: whole *= next; break;
        case reduce_kind::min: whole = std::min(whole, next); break;
        case reduce_kind::max: whole = std::max(whole, next); break;
        case reduce_kind::bit_and: whole &= next; break;
        case reduce_kind::bit_or: whole |= next; break;
        case reduce_kind::bit_xor: whole ^= next; break;
        case reduce_kind::premultiplied_sum: break;
        case reduce_kind::logical_and: whole = whole != 0 && next != 0 ? 1 : 0; break;
        case reduce_kind::logical_or: whole = whole != 0 || next != 0 ? 1 : 0; break;
      }
    }
    if (hfcomm::detail::is_logical(op_for<T>(0).kind()) && whole != 0) {
      whole = 1;  // where there is one member
    }
    if constexpr (std::integral<T>) {
      return static_cast<T>(whole);
    } else if (op_for<T>(0).kind() == reduce_kind::premultiplied_sum) {
      return T(static_cast<float>(factored));
    } else if (op_for<T>(0).kind() == reduce_kind::average) {
      return T(static_cast<float>(whole) / static_cast<float>(count()));
    } else {
      return T(static_cast<float>(whole));
    }
  }
  template <class T>
  [[nodiscard]] std::vector<T> expected(std::size_t begin, std::size_t length) const {
    std::vector<T> values(length);
    for (std::size_t i = 0; i < length; ++i) {
      values[i] = expected<T>(begin + i);
    }
    return values;
  }

  template <class T>
  bool reduce_all() {
    auto data = elements<T>(mine(), size_);
    all_reduce(data, op_for<T>(me()), *group_);
    return same(data, expected<T>(0, size_));
  }

  template <class T>
  bool reduce_parts() {
    const auto in = elements<T>(mine(), size_ * as_index(count()));
    std::vector<T> out(size_);
    reduce_scatter(in, out, op_for<T>(me()), *group_);
    return same(out, expected<T>(size_ * as_index(me()), size_));
  }

  bool reduce_uneven() {
    const auto counts = from(0, [&](int other) { return length(0, other); }).counts;
    const std::size_t begin = std::accumulate(counts.begin(), counts.begin() + me(), std::size_t{0});
    const auto in = elements<double>(mine(), std::accumulate(counts.begin(), counts.end(), std::size_t{0}));
    std::vector<double> out(counts[as_index(me())]);
    reduce_scatter(in, out, counts, reduce_op::sum, *group_);
    bool right = true;
    for (std::size_t i = 0; i < out.size(); ++i) {
      double sum = 0;
      for (const int rank : *members_) {
        sum += static_cast<double>(element(rank, begin + i) % 7);
      }
      right = right && out[i] == sum;
    }
    return right;
  }

  /// Parts whose lengths only their senders know.
  bool exchange_unknown() {
    const auto mine = from(me(), [&](int other) { return length(me(), other); });
    const auto expected = to(me(), [&](int other) { return length(other, me()); });
    const auto came = all_to_all_v(mine.values, mine.counts, *group_);
    return came.elements == expected.values && came.counts == expected.counts;
  }
  bool gather_unknown(bool everywhere) {
    const auto mine = part(me(), 0, length(me(), 0));
    const auto expected = everywhere || is_root() ? to(0, [&](int other) { return length(other, 0); }) : parts();
    const auto came = everywhere ? all_gather_v(mine, *group_) : gather_v(mine, root(), *group_);
    return came.elements == expected.values && came.counts == expected.counts;
  }

  bool scan_elements() {
    const bool inclusive = root_draw_ % 2 == 0;
    const auto link = [](std::int32_t left, std::int32_t right) {
      return static_cast<std::int32_t>(static_cast<std::uint32_t>(left) * 31U + static_cast<std::uint32_t>(right));
    };
    std::vector<std::int32_t> linked(size_, 5);
    std::vector<std::int32_t> least(size_, std::numeric_limits<std::int32_t>::max());
    for (int member = 0; member < me() + (inclusive ? 1 : 0); ++member) {
      for (std::size_t i = 0; i < size_; ++i) {
        const std::int32_t next = value(member, 0, i);
        linked[i] = inclusive && member == 0 ? next : link(linked[i], next);
        least[i] = std::min(least[i], next);
      }
    }
    auto folded = part(me(), 0, size_);
    auto reduced = folded;
    if (inclusive) {
      scan(std::span(folded), link, *group_);
      scan(reduced, reduce_op::min, *group_);
    } else {
      hfcomm::exclusive_scan(std::span(folded), 5, link, *group_);
      hfcomm::exclusive_scan(reduced, reduce_op::min, *group_);
    }
    return folded == linked && reduced == least;
  }

  bool start_several() {
    auto sums = elements<std::int64_t>(mine(), size_);
    kind_of_reduction_ = reduce_kind::sum;
    auto first = all_reduce_async(sums, reduce_op::sum, *group_);
    auto second = all_gather_async(text(mine()), *group_);
    std::string shared = text(mine());
    auto third = broadcast_async(shared, root(), *group_);
    if (root_draw_ % 3 == 0) {
      const auto last = barrier_async(*group_);  // dropped, so waited for
    } else if (root_draw_ % 3 == 1) {
      barrier(*group_);
    }
    third.wait();
    const auto texts = second.wait();
    first.wait();
    bool right = shared == text(root_in_world()) && same(sums, expected<std::int64_t>(0, size_));
    for (int member = 0; member < count(); ++member) {
      right = right && texts[as_index(member)] == text(world_rank(member));
    }
    return right;
  }

  bool send_around_ring() {
    const int step = 1 + static_cast<int>(root_draw_ % as_index(count()));
    const int next = (me() + step) % count();
    const int previous = (me() - step + 2 * count()) % count();
    const auto came = send_receive(object(me(), next), next, previous, *group_);
    const auto mine = part(me(), next, size_);
    std::vector<std::int32_t> into(size_);
    send_receive(std::span(mine), next, std::span(into), previous, *group_, 1);
    return came == object(previous, me()) && into == part(previous, me(), size_);
  }

  bool receive_from_any_source() {
    const int tag = 100 + number_;  // this operation's own: other ranks may already be in the next one
    if (!is_root()) {
      send(object(me(), root()), root(), *group_, tag);
      return true;
    }
    std::vector<bool> heard(as_index(count()));
    bool right = true;
    for (int i = 1; i < count(); ++i) {
      const auto [value, source] = recv<std::map<std::string, std::vector<std::int32_t>>>(any_source, *group_, tag);
      right = right && source != root() && !heard[as_index(source)] && value == object(source, root());
      heard[as_index(source)] = true;
    }
    return right;
  }

  /// Sends from every rank to every rank at once, with a collective in between.
  bool send_to_each_other() {
    std::vector<std::vector<std::int32_t>> outgoing;
    std::vector<std::vector<std::int32_t>> incoming;
    std::vector<work<void>> works;
    for (int other = 0; other < count(); ++other) {
      outgoing.push_back(part(me(), other, length(me(), other)));
      incoming.emplace_back(length(other, me()));
    }
    const bool receives_first = element(mine(), 9) % 2 == 0;
    for (int turn = 0; turn < 2; ++turn) {
      for (int other = 0; other < count(); ++other) {
        if ((turn == 0) == receives_first) {
          works.push_back(irecv(std::span(incoming[as_index(other)]), other, *group_, 2));
        } else {
          works.push_back(isend(std::span(outgoing[as_index(other)]), other, *group_, 2));
        }
      }
    }
    const bool met = all_reduce(1, reduce_op::sum, *group_) == count();
    for (auto& one : works) {
      one.wait();
    }
    bool right = met;
    for (int other = 0; other < count(); ++other) {
      right = right && incoming[as_index(other)] == part(other, me(), length(other, me()));
    }
    return right;
  }
};

void run(int ranks) { run_random_program<parts_program>(ranks, 300, parts_program::kinds); }

}  // namespace

TEST_CASE("random parts and messages: 2 ranks get exact results") { run(2); }
TEST_CASE("random parts and messages: 3 ranks get exact results") { run(3); }
TEST_CASE("random parts and messages: 4 ranks get exact results") { run(4); }
TEST_CASE("random parts and messages: 5 ranks get exact results") { run(5); }
TEST_CASE("random parts and messages: 6 ranks get exact results") { run(6); }
TEST_CASE("random parts and messages: 7 ranks get exact results") { run(7); }
TEST_CASE("random parts and messages: 8 ranks get exact results") { run(8); }
