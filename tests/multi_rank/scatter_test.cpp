// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cstddef>
#include <limits>
#include <memory>
#include <span>
#include <stdexcept>

#include "parts.hpp"

#include <hfcomm/collectives/scatter.hpp>

namespace {

using namespace hfcomm;
using namespace multi_rank;

struct no_members {
  template <class Archive>
  void serialize(Archive& /*archive*/) {}
};

struct particle {
  std::array<double, 3> place;
  float charge;
  std::int32_t id;
  bool operator==(const particle&) const = default;
};

}  // namespace

template <>
inline constexpr bool hfcomm::enable_raw_bytes<particle> = true;

namespace {

TEST_CASE("scatter: objects may have very different sizes, from every root") {
  at_every_size([](const process_group& world) {
    for (int root = 0; root < world.size(); ++root) {
      std::vector<std::string> texts;
      std::vector<tree> trees;
      std::vector<int> numbers;
      if (world.rank() == root) {
        for (int to = 0; to < world.size(); ++to) {
          texts.push_back(text_of(to + root, to % 3 == 0 ? 0 : to % 3 == 1 ? 700'000 : 33));
          trees.push_back(tree_of(to + root));
          numbers.push_back(1000 * root + to);
        }
      }
      const int rank = world.rank();
      CHECK(scatter(texts, root) == text_of(rank + root, rank % 3 == 0 ? 0 : rank % 3 == 1 ? 700'000 : 33));
      CHECK((scatter(trees, root) == tree_of(rank + root)));
      CHECK(scatter(numbers, root) == 1000 * root + rank);
    }
  });
}

TEST_CASE("scatter: objects may be move-only, bool or without bytes") {
  at_every_size([](const process_group& world) {
    std::vector<std::unique_ptr<std::string>> owned;
    std::vector<bool> bits;
    std::vector<no_members> nothings;
    if (world.rank() == 0) {
      for (int to = 0; to < world.size(); ++to) {
        owned.push_back(to % 2 == 0 ? nullptr : std::make_unique<std::string>(text_of(to, 200)));
        bits.push_back(to % 3 == 1);
        nothings.emplace_back();
      }
    }
    const auto mine = scatter(owned);
    CHECK((mine == nullptr) == (world.rank() % 2 == 0));
    CHECK((mine == nullptr || *mine == text_of(world.rank(), 200)));
    CHECK(scatter(bits) == (world.rank() % 3 == 1));
    (void)scatter(nothings);
    check_usable(world);
  });
}

TEST_CASE("scatter: buffers may have every length, out of place and in place") {
  for (const int ranks : rank_counts) {
    for (const std::size_t count : part_lengths(ranks)) {
      run_noted(ranks, "count " + std::to_string(count), [&](const process_group& world) {
        const int root = static_cast<int>(count) % world.size();
        std::vector<std::uint32_t> in;
        for (int to = 0; world.rank() == root && to < world.size(); ++to) {
          append(in, part_of(root, to, count));
        }
        const auto untouched = in;
        const auto expected = part_of(root, world.rank(), count);
        std::vector<std::uint32_t> out(count, 77);
        scatter(in, out, root);
        CHECK((out == expected));
        CHECK((in == untouched));
        std::vector<std::uint32_t> elsewhere(count, 77);
        const std::span<std::uint32_t> place =
            world.rank() == root ? std::span(in).subspan(count * as_index(root), count) : std::span(elsewhere);
        scatter(in, place, root);
        CHECK(std::equal(place.begin(), place.end(), expected.begin(), expected.end()));
        CHECK((in == untouched));
      });
    }
  }
}

TEST_CASE("scatter: several megabytes of bytes and of structs are exact") {
  at_every_size([](const process_group& world) {
    const std::size_t each = 1'000'003;
    std::vector<std::byte> bytes(world.rank() == 0 ? each * as_index(world.size()) : 0);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<std::byte>(i % 251);
    }
    std::vector<std::byte> mine(each);
    scatter(bytes, mine);
    bool right = true;
    for (std::size_t i = 0; i < each; ++i) {
      right = right && mine[i] == static_cast<std::byte>((as_index(world.rank()) * each + i) % 251);
    }
    CHECK(right);

    std::vector<particle> particles;
    for (int i = 0; world.rank() == 0 && i < 50'000 * world.size(); ++i) {
      particles.push_back({{0.5 * i, 1, 2}, 0.25F, i});
    }
    std::vector<particle> some(50'000);
    scatter(particles, some);
    for (const std::size_t i : each_of(0, 1, 49'999)) {
      const int id = 50'000 * world.rank() + static_cast<int>(i);
      CHECK((some[i] == particle{{0.5 * id, 1, 2}, 0.25F, id}));
    }
  });
}

TEST_CASE("scatter: the input of ranks other than the root is ignored") {
  at_every_size([](const process_group& world) {
    std::vector<int> in(world.rank() == 0 ? as_index(world.size()) : 1, world.rank());
    std::vector<int> out(1, -1);
    scatter(in, out);
    CHECK(out[0] == 0);
    // A null pointer with a length, which on the root would be an error.
    const std::span<const int> bad(static_cast<const int*>(nullptr), 5);
    const std::vector<int> good(as_index(world.size()), 9);
    scatter(world.rank() == 0 ? std::span<const int>(good) : bad, out);
    CHECK(out[0] == 9);
  });
}

TEST_CASE("scatter: in a subgroup the parts are in that group's rank order") {
  run_noted(4, {}, [](const process_group& world) {
    const auto pair = world.split(world.rank() % 2, -world.rank());
    std::vector<std::string> texts;
    if (pair.rank() == 1) {
      texts = {"a", "b"};
    }
    CHECK(scatter(texts, 1, pair) == (pair.rank() == 0 ? "a" : "b"));
  });
}

TEST_CASE("scatter: bad arguments on one rank are errors on every rank, and the group stays usable") {
  at_every_size([](const process_group& world) {
    const auto ranks = as_index(world.size());
    const int last = world.size() - 1;
    for (const int bad : {-1, world.size()}) {
      const auto call = [&](const process_group& group) {
        (void)scatter(group.rank() == last ? std::vector<int>{} : std::vector<int>{}, group.rank() == last ? bad : last,
                      group);
      };
      if (world.rank() == last) {
        CHECK_CONTAINS(error_of<usage_error>([&] { call(world); }).what(),
                       "root " + std::to_string(bad) + " is not a rank");
      } else {
        CHECK(error_of<peer_error>([&] { call(world); }).peer() == last);
      }
      check_usable(world);
    }
    expect_fault<usage_error>(world, 0, "the root's list has " + std::to_string(ranks + 1) + " objects",
                              [&](line_note& note) {
                                std::vector<std::string> texts(world.rank() == 0 ? ranks + 1 : 0);
                                (void)scatter(texts, 0, note(world));
                              });
    expect_fault<usage_error>(world, 0, "the root's list has 0 objects",
                              [&](line_note& note) { (void)scatter(std::vector<std::string>{}, 0, note(world)); });
    expect_fault<usage_error>(world, 0, "the root's input has " + std::to_string(2 * ranks + 1) + " elements",
                              [&](line_note& note) {
                                std::vector<int> in(world.rank() == 0 ? 2 * ranks + 1 : 0);
                                std::vector<int> out(2);
                                scatter(in, out, 0, note(world));
                              });
    expect_fault<usage_error>(world, 0, "a buffer of " + std::to_string(2 * ranks) + " elements is at address 0",
                              [&](line_note& note) {
                                const std::span<const int> in(static_cast<const int*>(nullptr), 2 * ranks);
                                std::vector<int> out(2);
                                scatter(in, out, 0, note(world));
                              });
    expect_fault<usage_error>(world, last, "a buffer of 2 elements is at address 0", [&](line_note& note) {
      std::vector<int> in(world.rank() == 0 ? 2 * ranks : 0);
      std::vector<int> out(2);
      scatter(in, world.rank() == last ? std::span<int>(static_cast<int*>(nullptr), 2) : std::span(out), 0,
              note(world));
    });
    expect_fault<usage_error>(world, 0, "no memory has room", [&](line_note& note) {
      std::vector<int> in(world.rank() == 0 ? 2 * ranks : 0);
      std::vector<int> out(2);
      const std::span<int> endless(out.data(), std::numeric_limits<std::size_t>::max() / 4);
      scatter(in, world.rank() == 0 ? endless : std::span(out), 0, note(world));
    });
    if (world.size() > 1) {
      expect_fault<usage_error>(world, last, "a list of 1 objects on a rank that is not the root",
                                [&](line_note& note) {
                                  std::vector<int> list(world.rank() == 0 ? ranks : world.rank() == last ? 1 : 0);
                                  (void)scatter(list, 0, note(world));
                                });
      // The result may not overlap the whole input, another rank's part, or half of the rank's own part.
      for (const std::size_t place : each_of(2, 1)) {
        expect_fault<usage_error>(world, 0, "the output overlaps the input", [&](line_note& note) {
          std::vector<int> in(2 * ranks + 2);
          std::vector<int> out(2);
          const std::span<int> inside = std::span(in).subspan(place, 2);
          scatter(std::span<const int>(in).first(2 * ranks), world.rank() == 0 ? inside : std::span(out), 0,
                  note(world));
        });
      }
    }
  });
}

TEST_CASE("scatter: different numbers, types or roots are an error on every rank") {
  at_every_size(
      [](const process_group& world) {
        const auto ranks = as_index(world.size());
        const int last = world.size() - 1;
        expect_mismatch(world, 0, last, "scatter(3 x int32, root 0)", [&] {
          std::vector<int> in(world.rank() == 0 ? 2 * ranks : 0);
          std::vector<int> out(world.rank() == last ? 3 : 2);
          scatter(in, out);
        });
        expect_mismatch(world, 0, last, "scatter(2 x float32, root 0)", [&] {
          if (world.rank() == last) {
            std::vector<float> out(2);
            scatter(std::vector<float>{}, out);
          } else {
            std::vector<int> in(world.rank() == 0 ? 2 * ranks : 0);
            std::vector<int> out(2);
            scatter(in, out);
          }
        });
        expect_mismatch(world, 0, last, "root 1", [&] {
          // Both take another rank for the root.
          std::vector<int> out(2);
          scatter(std::vector<int>(2 * ranks), out, world.rank() == last ? 1 % world.size() : 0);
        });
      },
      2);
}

TEST_CASE("scatter: an object that cannot be serialized or decoded is an error") {
  at_every_size([](const process_group& world) {
    const int last = world.size() - 1;
    expect_fault<std::domain_error>(world, 0, "cannot save this", [&](line_note& note) {
      std::vector<failing_object> list(world.rank() == 0 ? as_index(world.size()) : 0);
      if (world.rank() == 0) {
        list.back().fails_to_save = true;
      }
      (void)scatter(list, 0, note(world));
    });
    for (const std::size_t size : each_of(3, 600'000)) {
      std::vector<failing_object> list;
      for (int to = 0; world.rank() == 0 && to < world.size(); ++to) {
        list.push_back({.fails_to_load = to == last, .text = text_of(to, size)});
      }
      if (world.rank() == last) {
        CHECK_CONTAINS(error_of<decode_error>([&] { (void)scatter(list); }).what(), "the object from rank 0");
      } else {
        CHECK(scatter(list).text == text_of(world.rank(), size));
      }
      check_usable(world);
    }
  });
}

}  // namespace
