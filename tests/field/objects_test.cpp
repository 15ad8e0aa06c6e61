// SPDX-License-Identifier: MIT
#include "../multi_rank/ranks.hpp"

#include <array>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <memory_resource>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <hfcomm/collectives/all_gather.hpp>
#include <hfcomm/collectives/broadcast.hpp>
#include <hfcomm/collectives/broadcast_object_list.hpp>
#include <hfcomm/collectives/gather.hpp>
#include <hfcomm/collectives/message_batch.hpp>
#include <hfcomm/collectives/recv.hpp>
#include <hfcomm/collectives/scatter.hpp>
#include <hfcomm/collectives/send.hpp>
#include <hfcomm/collectives/send_receive.hpp>

namespace {

using namespace hfcomm;
using namespace multi_rank;

struct record {
  int id = 0;
  std::vector<std::string> notes;
  std::vector<record> children;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(cereal::defer(children), id);
    archive(cereal::defer(notes));
  }
  bool operator==(const record&) const = default;
};

record tree(int rank, int depth) {
  record one{rank + depth, {"a", text_of(rank, 50)}, {}};
  for (int child = 0; child < depth; ++child) {
    one.children.push_back(tree(rank, depth - 1));
  }
  return one;
}

TEST_CASE("objects: a deferred member arrives, at every level") {
  at_every_size([](const process_group& world) {
    const auto all = all_gather(std::vector<record>{tree(world.rank(), 4), tree(world.rank(), 3)}, world);
    for (int rank = 0; rank < world.size(); ++rank) {
      CHECK((all[as_index(rank)] == std::vector<record>{tree(rank, 4), tree(rank, 3)}));
    }
  });
}

TEST_CASE("objects: paths are sent, in containers, too") {
  at_every_size([](const process_group& world) {
    const std::filesystem::path mine = "/data/part " + std::to_string(world.rank()) + ".bin";
    CHECK((all_gather(mine, world).back() == "/data/part " + std::to_string(world.size() - 1) + ".bin"));
    std::map<std::filesystem::path, std::vector<std::filesystem::path>> files;
    if (world.rank() == 0) {
      files = {{"a/b", {"c", ""}}, {"", {}}};
    }
    broadcast(files, 0, world);
    CHECK(files.size() == 2);
    CHECK((files.at("a/b").front() == "c"));
  });
}

struct by_distance {
  int from = 0;
  bool operator()(int one, int other) const { return std::abs(one - from) < std::abs(other - from); }
};

TEST_CASE("objects: a decoded container has the default comparator of its type") {
  run_noted(2, {}, [](const process_group& world) {
    std::set<int, by_distance> mine(by_distance{world.rank() == 0 ? 10 : 0});
    if (world.rank() == 0) {
      mine.insert({9, 2, 30});
    }
    broadcast(mine, 0, world);
    CHECK((std::vector<int>(mine.begin(), mine.end()) ==
           (world.rank() == 0 ? std::vector{9, 2, 30} : std::vector{2, 9, 30})));
  });
}

static_assert(!serializable<std::set<int, bool (*)(int, int)>>);
static_assert(!serializable<std::vector<std::map<int, int, std::function<bool(int, int)>>>>);
static_assert(serializable<std::map<int, std::unique_ptr<int>, by_distance>>);
static_assert(serializable<std::filesystem::path>);
static_assert(serializable<std::set<int, decltype([](int one, int other) { return one < other; })>>);
static_assert(serializable<std::pmr::map<int, std::pmr::set<int>>>);

/// An object larger than a thread's stack.
struct large_state {
  std::array<double, 2'000'000> grid{};
  std::string name;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(name, grid);
  }
};

TEST_CASE("objects: one that is larger than the stack is decoded on the heap") {
  run_noted(2, {}, [](const process_group& group) {
    const auto mine = std::make_unique<large_state>();
    const auto plain = std::make_unique<std::array<double, 2'000'000>>();
    mine->grid[5] = group.rank() + 1;
    mine->name = "rank " + std::to_string(group.rank());
    (*plain)[7] = group.rank() + 1;
    const auto all = all_gather(*mine, group);
    CHECK(all[1].grid[5] == 2);
    CHECK(all[1].name == "rank 1");
    CHECK(all_gather(*plain, group)[1][7] == 2);
    CHECK(gather(*mine, 0, group).size() == (group.rank() == 0 ? 2 : 0));
    message_batch batch(group);
    if (group.rank() == 1) {
      batch.send(*mine, 0);
    } else {
      batch.recv(*mine, 1);
    }
    batch.run();
    CHECK(mine->grid[5] == 2);
    broadcast(*plain, 1, group);
    CHECK((*plain)[7] == 2);
    mine->grid[6] = group.rank();
    broadcast(*mine, 1, group);
    CHECK(mine->grid[6] == 1);
    mine->grid[8] = (*plain)[9] = group.rank() + 3;
    int step = group.rank();
    broadcast_object_list(std::tie(*mine, step, *plain), 1, group);
    CHECK((mine->grid[8] == 4 && step == 1 && (*plain)[9] == 4));
  });
}

TEST_CASE("objects: one that is larger than the stack is returned where the caller has room for it") {
  run_noted(2, {}, [](const process_group& group) {
    const auto made = [](const auto& call) { return std::unique_ptr<large_state>(new large_state(call())); };
    std::vector<large_state> all(group.rank() == 0 ? 2 : 0);
    if (group.rank() == 0) {
      all[0].name = "first";
      all[1].name = "second";
    }
    CHECK(made([&] { return scatter(all, 0, group); })->name == (group.rank() == 0 ? "first" : "second"));
    const auto mine = std::make_unique<large_state>();
    mine->name = text_of(group.rank(), 5);
    const int other = 1 - group.rank();
    CHECK(made([&] { return send_receive(*mine, other, other, group); })->name == text_of(other, 5));
    work<void> sent = isend(*mine, other, group);
    CHECK(made([&] { return recv<large_state>(other, group); })->name == text_of(other, 5));
    sent.wait();
  });
}

}  // namespace
