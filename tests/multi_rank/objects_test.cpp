// SPDX-License-Identifier: MIT
#include "ranks.hpp"

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>
#include <variant>

namespace {

using namespace hfcomm;
using namespace multi_rank;

struct empty {
  bool operator==(const empty&) const = default;
};

enum class color : std::uint8_t { red, green };

struct person {
  std::string name;
  std::vector<int> scores;
  std::map<std::string, std::vector<person>> friends;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(name, scores, friends);
  }
  bool operator==(const person&) const = default;
};

struct move_only {
  move_only() = default;
  explicit move_only(std::string content) : text(std::move(content)) {}
  move_only(move_only&&) = default;
  move_only& operator=(move_only&&) = default;
  move_only(const move_only&) = delete;
  move_only& operator=(const move_only&) = delete;
  ~move_only() = default;
  bool operator==(const move_only&) const = default;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(text);
  }

  std::string text;
};

struct raw_point {
  std::int32_t x;
  double y;
  bool operator==(const raw_point&) const = default;
};

}  // namespace

template <>
inline constexpr bool hfcomm::enable_raw_bytes<raw_point> = true;

namespace {

/// Sends `make(rank)` through every collective for objects.
template <class Make>
void check_exchange(Make make) {
  at_every_size([&](const process_group& world) {
    const auto mine = make(world.rank());
    const int root = world.size() / 2;
    const auto everyone = all_gather(mine);
    const auto at_root = gather(mine, root);
    REQUIRE(everyone.size() == as_index(world.size()));
    REQUIRE(at_root.size() == (world.rank() == root ? everyone.size() : 0));
    bool equal = true;
    for (std::size_t rank = 0; rank < everyone.size(); ++rank) {
      equal = equal && everyone[rank] == make(static_cast<int>(rank));
      equal = equal && (at_root.empty() || at_root[rank] == make(static_cast<int>(rank)));
    }
    CHECK(equal);
    auto value = make(world.rank());
    broadcast(value, root);
    CHECK((value == make(root)));
  });
}

TEST_CASE("objects: numbers, enumerations and bool are exchanged") {
  check_exchange([](int rank) { return rank; });
  check_exchange([](int rank) { return rank % 2 == 1; });
  check_exchange([](int rank) { return static_cast<char>('a' + rank); });
  check_exchange([](int rank) { return rank % 2 == 1 ? color::red : color::green; });
  check_exchange([](int rank) { return 1.0L / (rank + 1); });
  check_exchange([](int rank) { return bfloat16(static_cast<float>(rank)); });
}

TEST_CASE("objects: classes may nest to any depth") {
  check_exchange([](int rank) { return raw_point{rank, rank / 3.0}; });
  check_exchange([](int rank) {
    person one{"rank " + std::to_string(rank), std::vector<int>(as_index(rank), rank), {}};
    one.friends["best"].push_back(person{"of " + one.name, {}, {{"none", {}}}});
    one.friends["all"].assign(as_index(rank), one);
    return one;
  });
}

TEST_CASE("objects: classes may be empty") {
  check_exchange([](int) { return empty(); });
  check_exchange([](int rank) { return std::vector<empty>(as_index(rank)); });
}

TEST_CASE("objects: containers are exchanged") {
  check_exchange([](int rank) { return std::vector<bool>(as_index(rank) * 9, rank % 2 == 1); });
  check_exchange([](int rank) { return std::vector<std::string>(as_index(rank), text_of(rank, 20)); });
  check_exchange([](int rank) { return std::map<std::string, int>{{"rank", rank}, {std::to_string(rank), 1}}; });
  check_exchange([](int rank) { return std::unordered_map<int, std::vector<float>>{{rank, {1.0F, 2.0F}}, {-1, {}}}; });
  check_exchange([](int rank) { return std::set<std::pair<int, int>>{{rank, 1}, {0, 2}}; });
  check_exchange([](int rank) { return std::deque<std::optional<int>>{std::nullopt, rank}; });
  check_exchange([](int rank) { return std::tuple<int, std::string, std::array<short, 3>>{rank, "x", {1, 2, 3}}; });
  check_exchange([](int rank) {
    return rank % 2 == 0 ? std::variant<int, std::string>(rank) : std::variant<int, std::string>("odd");
  });
  check_exchange([](int) { return std::string(); });
}

TEST_CASE("objects: types may be move-only") {
  check_exchange([](int rank) { return move_only(text_of(rank, 100 * as_index(rank))); });
  at_every_size([](const process_group& world) {
    const auto pointers = all_gather(std::make_unique<int>(world.rank()));
    for (int rank = 0; rank < world.size(); ++rank) {
      CHECK(*pointers[as_index(rank)] == rank);
    }
    auto one = world.rank() == 0 ? std::make_unique<std::string>("from 0") : nullptr;
    broadcast(one);
    REQUIRE(one);
    CHECK(*one == "from 0");
    broadcast(one, world.size() - 1);
    std::vector<move_only> list;
    list.emplace_back(std::to_string(world.rank()));
    CHECK(gather(list, 0).size() == (world.rank() == 0 ? as_index(world.size()) : 0));
    const auto joined = all_reduce(move_only(std::to_string(world.rank())),
                                   [](move_only left, move_only right) { return move_only(left.text + right.text); });
    CHECK(joined.text == std::string("01234567").substr(0, as_index(world.size())));
  });
}

TEST_CASE("objects: plain ones of every size around a cell and a slot are exact") {
  const auto gather_bytes = []<std::size_t size>(std::integral_constant<std::size_t, size>) {
    at_every_size([](const process_group& world) {
      auto mine = std::make_unique<std::array<std::uint8_t, size>>();
      std::iota(mine->begin(), mine->end(), static_cast<std::uint8_t>(world.rank() * 17));
      const auto all = all_gather(*mine);
      for (int rank = 0; rank < world.size(); ++rank) {
        std::iota(mine->begin(), mine->end(), static_cast<std::uint8_t>(rank * 17));
        CHECK((all[as_index(rank)] == *mine));
      }
    });
  };
  gather_bytes(std::integral_constant<std::size_t, 1>());
  gather_bytes(std::integral_constant<std::size_t, 16>());
  gather_bytes(std::integral_constant<std::size_t, 17>());
  gather_bytes(std::integral_constant<std::size_t, 79>());
  gather_bytes(std::integral_constant<std::size_t, 80>());
  gather_bytes(std::integral_constant<std::size_t, 81>());
  gather_bytes(std::integral_constant<std::size_t, 262'143>());
  gather_bytes(std::integral_constant<std::size_t, 262'144>());
  gather_bytes(std::integral_constant<std::size_t, 262'145>());
}

/// Every length up to `spread` below and above `length`, so that one of them, with the
/// bytes that the archive adds, is `length`.
void check_sizes_around(std::size_t length, std::size_t spread, const std::vector<int>& sizes) {
  for (const int ranks : sizes) {
    run_noted(ranks, "around " + std::to_string(length), [&](const process_group& world) {
      std::vector<std::string> texts;
      for (int rank = 0; rank < world.size(); ++rank) {
        texts.push_back(text_of(rank, length + spread));
      }
      for (std::size_t size = length - spread; size <= length + spread; ++size) {
        const auto text = [&](int rank) { return texts[as_index(rank)].substr(0, size); };
        const int root = static_cast<int>(size) % world.size();
        const auto all = all_gather(text(world.rank()));
        bool equal = true;
        for (int rank = 0; rank < world.size(); ++rank) {
          equal = equal && all[as_index(rank)] == text(rank);
        }
        std::string one = text(world.rank());
        broadcast(one, root);
        equal = equal && one == text(root);
        // Ranks other than the root have almost nothing, or everything.
        const auto some = gather(world.rank() == root ? text(root) : std::string("x"), root);
        equal = equal && (world.rank() != root || some[as_index(root)] == text(root));
        const auto most = gather(world.rank() == root ? std::string() : text(world.rank()), root);
        equal =
            equal && (world.rank() != root || most.back() == (root == world.size() - 1 ? "" : text(world.size() - 1)));
        CHECK_MESSAGE(equal, "with ", size, " characters");
      }
    });
  }
}

TEST_CASE("objects: every size around a cell is exact") { check_sizes_around(80, 20, {1, 2, 3, 4, 8}); }
TEST_CASE("objects: every size around one slot is exact") { check_sizes_around(std::size_t{256} << 10, 10, {2, 3}); }
TEST_CASE("objects: every size around two slots is exact") { check_sizes_around(std::size_t{512} << 10, 10, {2}); }

TEST_CASE("objects: several megabytes of another size on every rank are exact") {
  at_every_size([](const process_group& world) {
    const auto size = [](int rank) { return rank % 3 == 1 ? as_index(rank) : as_index(rank % 4) * 1'100'000 + 5; };
    const auto all = all_gather(text_of(world.rank(), size(world.rank())));
    bool equal = true;
    for (int rank = 0; rank < world.size(); ++rank) {
      equal = equal && all[as_index(rank)] == text_of(rank, size(rank));
    }
    CHECK(equal);
    std::vector<double> values(world.rank() == 0 ? 500'001 : 3, 1.0 + world.rank());
    broadcast(values);
    CHECK((values == std::vector<double>(500'001, 1.0)));
  });
}

}  // namespace
