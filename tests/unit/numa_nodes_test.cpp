// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <hfcomm/comm.hpp>
#include <hfcomm/machine/numa_nodes.hpp>

#include "../numa.hpp"

using namespace hfcomm;
using rendezvous::numa_nodes;
using rendezvous::parse_number_list;

namespace {

/// A folder like /sys/devices/system/node.
class node_folder {
 public:
  node_folder() {
    char name[] = "/tmp/hfcomm-nodes-XXXXXX";
    path_ = ::mkdtemp(name);
  }
  node_folder(const node_folder&) = delete;
  node_folder& operator=(const node_folder&) = delete;
  ~node_folder() { std::filesystem::remove_all(path_); }

  void add(const std::string& name, const std::string& cores) const {
    std::filesystem::create_directory(path_ + '/' + name);
    std::ofstream(path_ + '/' + name + "/cpulist") << cores << '\n';
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

int node_of(const numa_nodes& nodes, const std::vector<int>& cores) { return nodes.node_of(cores); }

}  // namespace

TEST_CASE("numa_nodes: lists of numbers") {
  CHECK(parse_number_list("0-2,7") == std::vector{0, 1, 2, 7});
  CHECK(parse_number_list("5\n") == std::vector{5});
  CHECK(parse_number_list("").empty());
  CHECK(parse_number_list("\n").empty());
  CHECK(parse_number_list("3,x") == std::vector{3});
  CHECK(parse_number_list("3-").empty());
  CHECK(parse_number_list("-3").empty());
  CHECK(parse_number_list("4-2,9") == std::vector{9});
  CHECK(parse_number_list("0-999999999").empty());
}

TEST_CASE("numa_nodes: nodes without cores do not count, and cores of several nodes have none") {
  const node_folder folder;
  folder.add("node0", "0-1,8-9");
  folder.add("node1", "");
  folder.add("node2", "2-3");
  folder.add("node10", "4");
  folder.add("nodes", "5");
  folder.add("power", "6");
  const numa_nodes nodes(folder.path());
  CHECK(nodes.count() == 3);
  CHECK(node_of(nodes, {0, 1, 9}) == 0);
  CHECK(node_of(nodes, {2}) == 2);
  CHECK(node_of(nodes, {4}) == 10);
  CHECK(node_of(nodes, {1, 2}) == numa_nodes::unknown);
  CHECK(node_of(nodes, {0, 5}) == numa_nodes::unknown);
  CHECK(node_of(nodes, {100}) == numa_nodes::unknown);
  CHECK(node_of(nodes, {}) == numa_nodes::unknown);
}

TEST_CASE("numa_nodes: a machine without the folder has no nodes") {
  const numa_nodes nodes("/nonexistent");
  CHECK(nodes.count() == 0);
  CHECK(node_of(nodes, {0}) == numa_nodes::unknown);
}

TEST_CASE("numa_nodes: the cores are those of the thread's affinity") {
  cpu_set_t before;
  CPU_ZERO(&before);
  REQUIRE(::sched_getaffinity(0, sizeof(before), &before) == 0);
  const std::vector<int> all = rendezvous::allowed_core_numbers();
  REQUIRE(static_cast<int>(all.size()) == CPU_COUNT(&before));
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<std::size_t>(all.back()), &one);
  REQUIRE(::sched_setaffinity(0, sizeof(one), &one) == 0);
  CHECK(rendezvous::allowed_core_numbers() == std::vector{all.back()});
  CHECK(::sched_setaffinity(0, sizeof(before), &before) == 0);
}

TEST_CASE("numa_nodes: HFCOMM_NUMA_NODES says where a rank is, and not where its memory goes") {
  const numa_nodes& machine = numa_nodes::of_this_machine();
  const int here = machine.node_of(rendezvous::allowed_core_numbers());
  {
    const numa::pretended_nodes nodes("7,7,-1,2");
    CHECK(rendezvous::machine_has_several_nodes());
    CHECK(rendezvous::place_of_rank(0).node == 7);
    CHECK(rendezvous::place_of_rank(2).node == numa_nodes::unknown);
    CHECK(rendezvous::place_of_rank(3).node == 2);
    CHECK(rendezvous::place_of_rank(3).memory_node == here);
    CHECK_THROWS_AS(static_cast<void>(rendezvous::place_of_rank(4)), engine_error);
  }
  {
    const numa::pretended_nodes nodes("3,3");
    CHECK_FALSE(rendezvous::machine_has_several_nodes());
    CHECK(rendezvous::place_of_rank(1).node == 3);
    CHECK(rendezvous::place_of_rank(1).memory_node == numa_nodes::unknown);
  }
  CHECK(rendezvous::machine_has_several_nodes() == (machine.count() > 1));
  CHECK(rendezvous::place_of_rank(0).memory_node == (machine.count() > 1 ? here : numa_nodes::unknown));
}

TEST_CASE("numa_nodes: only whole pages are kept on a node, and what the system refuses changes nothing") {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* const mapping = ::mmap(nullptr, 5 * page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(mapping != MAP_FAILED);
  const std::span<std::byte> memory(static_cast<std::byte*>(mapping), 5 * page);
  std::fill(memory.begin(), memory.end(), std::byte{7});
  const auto preferred = [&](std::size_t index) { return numa::preferred_node_of(memory.data() + index * page); };
  CHECK_FALSE(rendezvous::prefer_node(memory, -1));
  CHECK_FALSE(rendezvous::prefer_node(memory, 1023));  // no machine has that many
  CHECK_FALSE(rendezvous::prefer_node(memory, 1 << 20));
  CHECK(rendezvous::prefer_node(memory.subspan(1, page), 0));  // there is no whole page
  if (!numa::may_place_memory()) {
    std::puts("[hfcomm] skipped: numa_nodes: only whole pages are kept on a node: the system refuses mbind here");
  } else {
    CHECK(preferred(1) == -1);
    CHECK(rendezvous::prefer_node(memory.subspan(page - 1, 3 * page), 0));
    const std::vector<int> nodes{preferred(0), preferred(1), preferred(2), preferred(3), preferred(4)};
    CHECK(nodes == std::vector{-1, 0, 0, -1, -1});
  }
  CHECK(std::all_of(memory.begin(), memory.end(), [](std::byte byte) { return byte == std::byte{7}; }));
  ::munmap(mapping, 5 * page);
}
