// SPDX-License-Identifier: MIT
#include "ranks.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>

#include <sys/stat.h>
#include <unistd.h>

#include <hfcomm/collectives/collect_results.hpp>
#include <hfcomm/collectives/collect_results_in_files.hpp>
#include <hfcomm/collectives/detail/results_directory.hpp>

namespace {

using namespace hfcomm;
using namespace multi_rank;

/// A temporary directory, removed by the destructor.
class scratch_directory {
 public:
  scratch_directory()
      : path_(std::filesystem::temp_directory_path() /
              ("hfcomm-collect-" + std::to_string(::getpid()) + '-' + std::to_string(std::random_device()()))) {
    std::filesystem::create_directory(path_);
  }
  scratch_directory(const scratch_directory&) = delete;
  scratch_directory& operator=(const scratch_directory&) = delete;
  ~scratch_directory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  [[nodiscard]] bool empty() const { return std::filesystem::is_empty(path_); }

 private:
  std::filesystem::path path_;
};

/// Runs `body(world, collect)` at every size, in memory and through files. A file left behind fails the test.
template <class Body>
void both_ways(Body body, int least = 1) {
  at_every_size(
      [&](const process_group& world) {
        body(world, [](auto part, std::size_t size, int root, const process_group& group = hfcomm::world()) {
          return collect_results(std::move(part), size, root, group);
        });
      },
      least);
  const scratch_directory directory;
  at_every_size(
      [&](const process_group& world) {
        body(world, [&](auto part, std::size_t size, int root, const process_group& group = hfcomm::world()) {
          return collect_results_in_files(std::move(part), size, directory.path(), root, group);
        });
        barrier();
        CHECK(directory.empty());
      },
      least);
}

/// This rank's share of the items 0, 1, ...: every group.size()-th. If `padded`, the first items are repeated at the
/// end, so that all shares are equally long.
std::vector<std::size_t> share_of(const process_group& group, std::size_t size, bool padded) {
  std::vector<std::size_t> items;
  const auto ranks = as_index(group.size());
  const std::size_t total = padded ? (size + ranks - 1) / ranks * ranks : size;
  for (std::size_t item = as_index(group.rank()); item < total; item += ranks) {
    items.push_back(size == 0 ? 0 : item % size);
  }
  return items;
}

/// Throws when it is saved or loaded, as its member says.
struct failing_result {
  int mood = 0;
  template <class Archive>
  void save(Archive& archive) const {
    if (mood == 1) {
      throw std::domain_error("broke while packing");
    }
    archive(mood);
  }
  template <class Archive>
  void load(Archive& archive) {
    archive(mood);
    if (mood == 2) {
      throw std::domain_error("broke while unpacking");
    }
  }
};

TEST_CASE("collect_results: interleaved results are restored in order and cut to the size") {
  both_ways([](const process_group& world, auto collect) {
    for (const std::size_t size : each_of(0, 1, 2, 7, 8, 9, 1000)) {
      for (const bool padded : {false, true}) {
        for (const int root : {0, world.size() - 1}) {
          std::vector<std::string> part;
          std::vector<std::string> expected;
          for (const std::size_t item : share_of(world, size, padded)) {
            part.push_back("item " + std::to_string(item));
          }
          for (std::size_t item = 0; item < size && world.rank() == root; ++item) {
            expected.push_back("item " + std::to_string(item));
          }
          CHECK((collect(part, size, root) == expected));
        }
      }
    }
    check_usable(world);
  });
}

TEST_CASE("collect_results: it collects many numbers") {
  both_ways([](const process_group& world, auto collect) {
    const std::size_t size = 300'007;
    const auto results = collect(share_of(world, size, true), size, 0);
    REQUIRE(results.size() == (world.rank() == 0 ? size : 0));
    bool in_order = true;
    for (std::size_t item = 0; item < results.size(); ++item) {
      in_order = in_order && results[item] == item;
    }
    CHECK(in_order);
  });
}

TEST_CASE("collect_results: empty, zero and false results are kept") {
  both_ways([](const process_group& world, auto collect) {
    const auto mine = as_index(world.rank());
    const std::size_t size = 2 * as_index(world.size());
    const auto optionals = collect(std::vector<std::optional<int>>(2), size, 0);
    const auto texts = collect(std::vector<std::string>{"", mine % 2 == 0 ? "even" : ""}, size, 0);
    const auto flags = collect(std::vector<bool>{false, mine % 2 == 0}, size, 0);
    if (world.rank() == 0) {
      CHECK((optionals == std::vector<std::optional<int>>(size)));
      REQUIRE(texts.size() == size);
      REQUIRE(flags.size() == size);
      for (std::size_t rank = 0; rank < as_index(world.size()); ++rank) {
        CHECK(texts[rank].empty());
        CHECK_FALSE(flags[rank]);
        CHECK(texts[as_index(world.size()) + rank] == (rank % 2 == 0 ? "even" : ""));
        CHECK(flags[as_index(world.size()) + rank] == (rank % 2 == 0));
      }
    } else {
      CHECK((optionals.empty() && texts.empty() && flags.empty()));
    }
  });
}

TEST_CASE("collect_results: the order is that of the group's ranks, also in reverse") {
  both_ways([](const process_group& world, auto collect) {
    const auto turned = world.split(0, -world.rank());
    const auto results = collect(std::vector<int>{world.rank()}, as_index(world.size()), 0, turned);
    if (turned.rank() == 0) {
      REQUIRE(results.size() == as_index(world.size()));
      CHECK(results.front() == world.size() - 1);
      CHECK(results.back() == 0);
    } else {
      CHECK(results.empty());
    }
  });
}

TEST_CASE("collect_results: too short parts are an error on every rank that names their ranks") {
  both_ways([](const process_group& world, auto collect) {
    const int last = world.size() - 1;
    const std::size_t size = 3 * as_index(world.size());
    std::vector<int> part(3, world.rank());
    if (world.rank() == last) {
      part.pop_back();
    }
    const auto problem = error_of<usage_error>([&] { (void)collect(part, size, 0); });
    CHECK_CONTAINS(problem.what(), "rank " + std::to_string(last) + " has 2 of its 3");
    CHECK(problem.rank() == world.rank());
    check_usable(world);
    // Enough results, but from the wrong ranks.
    const auto unequal =
        error_of<usage_error>([&] { (void)collect(std::vector<int>(world.rank() == 0 ? size - 1 : 0), size, 0); });
    CHECK_CONTAINS(unequal.what(), world.size() == 1 ? "rank 0 has 2 of its 3" : "rank 1 has 0 of its 3");
    // Empty parts for a size of 0.
    CHECK(collect(std::vector<int>(), 0, 0).empty());
    (void)error_of<usage_error>([&] { (void)collect(std::vector<int>(), std::size_t{1} << 60, 0); });
    check_usable(world);
  });
}

TEST_CASE("collect_results: ranks that expect different sizes get a mismatch_error") {
  both_ways(
      [](const process_group& world, auto collect) {
        const int odd = world.size() - 1;
        const auto problem = error_of<mismatch_error>(
            [&] { (void)collect(std::vector<int>(5), as_index(world.rank() == odd ? 2 : 3), 0); });
        CHECK(problem.first_rank() == 0);
        CHECK(problem.second_rank() == odd);
        CHECK_CONTAINS(problem.what(), "rank 0 expects 3 in collect_results");
        CHECK_CONTAINS(problem.what(), "rank " + std::to_string(odd) + " expects 2 in collect_results");
        CHECK_CONTAINS(problem.what(), "collect_results_test.cpp:");
        check_usable(world);
      },
      2);
}

TEST_CASE("collect_results: a root outside the group or different roots are an error") {
  both_ways([](const process_group& world, auto collect) {
    for (const int root : {-1, world.size()}) {
      CHECK_CONTAINS(error_of<usage_error>([&] { (void)collect(std::vector{1}, 1, root); }).what(), "is not a rank");
    }
    if (world.size() > 1) {
      (void)error_of<mismatch_error>([&] { (void)collect(std::vector{1}, 1, world.rank()); });
    }
    check_usable(world);
  });
}

TEST_CASE("collect_results: a result that cannot be serialized is an error on every rank") {
  both_ways([](const process_group& world, auto collect) {
    for (const int culprit : {0, world.size() - 1}) {
      const auto call = [&] {
        (void)collect(std::vector<failing_result>{{world.rank() == culprit ? 1 : 0}}, as_index(world.size()), 0);
      };
      if (world.rank() == culprit) {
        CHECK_CONTAINS(error_of<std::domain_error>(call).what(), "broke while packing");
      } else {
        const auto problem = error_of<peer_error>(call);
        CHECK(problem.peer() == culprit);
        CHECK_FALSE(problem.fatal());
        CHECK_CONTAINS(problem.what(), "broke while packing");
      }
      check_usable(world);
    }
  });
}

TEST_CASE("collect_results: a result that cannot be decoded is an error that names its rank") {
  both_ways([](const process_group& world, auto collect) {
    const int culprit = world.size() - 1;
    try {
      (void)collect(std::vector<failing_result>{{world.rank() == culprit ? 2 : 0}}, as_index(world.size()), 0);
      CHECK(world.rank() != 0);
    } catch (const decode_error& problem) {
      CHECK(world.rank() == 0);
      CHECK_CONTAINS(problem.what(), "rank " + std::to_string(culprit));
      CHECK_CONTAINS(problem.what(), "broke while unpacking");
    } catch (const peer_error& problem) {
      CHECK(world.rank() != 0);
      CHECK(problem.peer() == 0);
      CHECK_CONTAINS(problem.what(), "broke while unpacking");
    }
    check_usable(world);
  });
}

TEST_CASE("collect_results: without init the result is the part, cut to the size") {
  CHECK((collect_results(std::vector{1, 2, 3}, 2) == std::vector{1, 2}));
  CHECK((collect_results(std::vector<std::size_t>{1, 0}, std::vector{5, 6}, 2) == std::vector{6, 5}));
  const scratch_directory directory;
  CHECK((collect_results_in_files(std::vector{1, 2, 3}, 2, directory.path()) == std::vector{1, 2}));
  CHECK(directory.empty());
}

TEST_CASE("collect_results with indices: the order is exact, however the items were distributed") {
  at_every_size([](const process_group& world) {
    std::mt19937 random(3);
    for (const std::size_t size : each_of(0, 1, 5, 64, 50'000)) {
      // Every item at one rank at least, some at several, in no order; one rank may have none.
      std::vector<std::size_t> indices;
      std::vector<int> lowest(size, world.size());
      for (std::size_t item = 0; item < size; ++item) {
        const int copies = 1 + static_cast<int>(random() % 3);
        for (int copy = 0; copy < copies; ++copy) {
          const int rank = static_cast<int>(random() % static_cast<unsigned>(world.size()));
          lowest[item] = std::min(lowest[item], rank);
          if (rank == world.rank()) {
            indices.push_back(item);
          }
        }
      }
      std::shuffle(indices.begin(), indices.end(), random);
      std::vector<std::string> values;
      std::vector<std::string> first_values(size);
      for (std::size_t place = 0; place < indices.size(); ++place) {
        values.push_back(std::to_string(indices[place]) + " by " + std::to_string(world.rank()) + " at " +
                         std::to_string(place));
        auto& first = first_values[indices[place]];
        first = first.empty() ? values.back() : first;
      }
      for (const int root : {0, world.size() / 2}) {
        const auto results = collect_results(indices, values, size, root);
        REQUIRE(results.size() == (world.rank() == root ? size : 0));
        bool right = true;
        for (std::size_t item = 0; item < results.size(); ++item) {
          const std::string by = std::to_string(item) + " by " + std::to_string(lowest[item]) + " at ";
          right = right && results[item].rfind(by, 0) == 0;
          right = right && (lowest[item] != root || results[item] == first_values[item]);
        }
        CHECK(right);
      }
      // The random numbers must be the same ones everywhere again.
      random.seed(static_cast<unsigned>(size));
    }
    check_usable(world);
  });
}

TEST_CASE("collect_results with indices: missing items are named on every rank") {
  at_every_size([](const process_group& world) {
    std::vector<std::size_t> indices = share_of(world, 20, false);
    indices.erase(std::remove_if(indices.begin(), indices.end(), [](std::size_t i) { return i == 4 || i == 17; }),
                  indices.end());
    const auto problem =
        error_of<usage_error>([&] { (void)collect_results(indices, std::vector<std::string>(indices.size()), 20, 0); });
    CHECK_CONTAINS(problem.what(), "missing: 4, 17");
    CHECK_FALSE(contains(problem.what(), "more"));
    check_usable(world);
    // A size that is far too large takes no memory, and shows the first ones.
    const auto far = error_of<usage_error>(
        [&] { (void)collect_results(indices, std::vector<bool>(indices.size()), std::size_t{1} << 60); });
    CHECK_CONTAINS(far.what(), "missing: 4, 17, 20, 21, 22, 23, 24, 25 and more");
    // Nobody has anything.
    const auto all = error_of<usage_error>([] { (void)collect_results({}, std::vector<int>(), 3); });
    CHECK_CONTAINS(all.what(), "missing: 0, 1, 2");
    check_usable(world);
  });
}

TEST_CASE("collect_results with indices: invalid indices are an error on every rank") {
  at_every_size([](const process_group& world) {
    const int culprit = world.size() - 1;
    const bool mine = world.rank() == culprit;
    const auto expect = [&](auto call, const std::string& text) {
      if (mine) {
        CHECK_CONTAINS(error_of<usage_error>(call).what(), text);
      } else {
        const auto problem = error_of<peer_error>(call);
        CHECK(problem.peer() == culprit);
        CHECK_CONTAINS(problem.what(), text);
      }
      check_usable(world);
    };
    const std::vector<std::size_t> indices{0, 1, mine ? 3U : 2U};
    expect([&] { (void)collect_results(indices, std::vector<int>(3), 3); }, "index 3 is none of 3 results");
    expect([&] { (void)collect_results(indices, std::vector<int>(mine ? 2 : 3), 4); }, "3 indices are given for 2");
    if (world.size() > 1) {
      const auto call = [&] { (void)collect_results(indices, std::vector<int>(3), mine ? 5 : 4); };
      CHECK_CONTAINS(error_of<mismatch_error>(call).what(), "rank 0 expects 4");
      const auto other_form = [&] {
        if (mine) {
          (void)collect_results(std::vector<int>(3), 3);
        } else {
          (void)collect_results(indices, std::vector<int>(3), 3);
        }
      };
      (void)error_of<mismatch_error>(other_form);
      check_usable(world);
    }
  });
}

TEST_CASE("collect_results with indices: a result that cannot be serialized is an error on every rank") {
  at_every_size([](const process_group& world) {
    const int culprit = world.size() - 1;
    const std::vector<std::size_t> indices{as_index(world.rank())};
    const auto call = [&] {
      (void)collect_results(indices, std::vector<failing_result>{{world.rank() == culprit ? 1 : 0}},
                            as_index(world.size()));
    };
    if (world.rank() == culprit) {
      (void)error_of<std::domain_error>(call);
    } else {
      CHECK_CONTAINS(error_of<peer_error>(call).what(), "broke while packing");
    }
    check_usable(world);
  });
}

TEST_CASE("collect_results_in_files: a rank that cannot write is an error on every rank, and no file is left") {
  const scratch_directory directory;
  at_every_size([&](const process_group& world) {
    for (const int culprit : {0, world.size() - 1}) {
      // If possible the root is not the failing rank. The directory is missing, or differs from the others'.
      for (const int root : {0, world.size() - 1}) {
        const auto path = world.rank() == culprit ? directory.path() / "not here" : directory.path();
        const auto call = [&] {
          (void)collect_results_in_files(std::vector{world.rank()}, as_index(world.size()), path, root);
        };
        if (world.rank() == culprit) {
          const auto problem = error_of<usage_error>(call);
          CHECK_CONTAINS(problem.what(), "No such file or directory");
          CHECK_CONTAINS(problem.what(), "not here");
        } else {
          const auto problem = error_of<peer_error>(call);
          CHECK(problem.peer() == culprit);
          CHECK_FALSE(problem.fatal());
          CHECK_CONTAINS(problem.what(), "not here");
          CHECK_CONTAINS(problem.what(), "rank " + std::to_string(culprit) + " failed in collect_results_in_files");
        }
        check_usable(world);
        CHECK(directory.empty());
        barrier();
      }
    }
  });
}

TEST_CASE("collect_results_in_files: the directory is private to its user") {
  const scratch_directory parent;
  auto made = hfcomm::detail::results_directory::make(parent.path(), 2);
  struct ::stat state{};
  REQUIRE(::stat((parent.path() / made.name()).c_str(), &state) == 0);
  CHECK((state.st_mode & 0777U) == 0700);
  const std::vector<std::byte> bytes(10, std::byte{7});
  made.write(1, bytes);
  REQUIRE(::stat((parent.path() / made.name() / "rank-1").c_str(), &state) == 0);
  CHECK((state.st_mode & 0777U) == 0600);
  CHECK((made.read(1) == bytes));
  CHECK_THROWS_AS(made.write(1, bytes), std::runtime_error);  // it exists already
  CHECK_THROWS_AS((void)made.read(0), std::runtime_error);
  made.remove();
  CHECK(parent.empty());
  made.remove();  // does nothing
}

TEST_CASE("collect_results_in_files: links and other users' directories are refused") {
  using hfcomm::detail::results_directory;
  const scratch_directory parent;
  const scratch_directory elsewhere;
  {
    std::ofstream(elsewhere.path() / "precious") << "keep me";
  }
  const std::vector<std::byte> bytes(10, std::byte{7});
  {
    const auto made = results_directory::make(parent.path(), 3);
    const auto inside = parent.path() / made.name();
    std::filesystem::create_symlink(elsewhere.path() / "precious", inside / "rank-0");
    std::filesystem::create_symlink(elsewhere.path() / "new", inside / "rank-1");
    std::filesystem::create_directory(inside / "rank-2");
    CHECK_THROWS_AS(made.write(0, bytes), std::runtime_error);
    CHECK_THROWS_AS(made.write(1, bytes), std::runtime_error);
    CHECK_THROWS_AS((void)made.read(0), std::runtime_error);
    CHECK_THROWS_AS((void)made.read(2), std::runtime_error);
    std::filesystem::remove(inside / "rank-2");
  }
  CHECK(parent.empty());
  std::string content;
  std::getline(std::ifstream(elsewhere.path() / "precious"), content);
  CHECK(content == "keep me");
  CHECK_FALSE(std::filesystem::exists(elsewhere.path() / "new"));

  std::filesystem::create_symlink(elsewhere.path(), parent.path() / "hfcomm-results-link");
  CHECK_THROWS_AS((void)results_directory::open(parent.path(), "hfcomm-results-link", 1), std::runtime_error);
  CHECK_THROWS_AS((void)results_directory::open(parent.path(), "..", 1), std::runtime_error);
  CHECK_THROWS_AS((void)results_directory::open(parent.path(), "hfcomm-results-/../..", 1), std::runtime_error);
  std::filesystem::create_directory(parent.path() / "hfcomm-results-open");
  std::filesystem::permissions(parent.path() / "hfcomm-results-open", std::filesystem::perms::all);
  CHECK_THROWS_AS((void)results_directory::open(parent.path(), "hfcomm-results-open", 1), std::runtime_error);
  CHECK_THROWS_AS((void)results_directory::make(parent.path() / "nowhere", 1), std::runtime_error);
}

}  // namespace
