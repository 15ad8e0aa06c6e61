// SPDX-License-Identifier: MIT
#include "ranks.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>

#include <hfcomm/collectives/broadcast_object_list.hpp>

namespace {

using namespace hfcomm;
using namespace multi_rank;

/// Throws when saved or loaded, depending on its state.
struct failing_list_entry {
  enum class state : std::uint8_t { sound, fails_to_save, fails_to_load };
  state mood = state::sound;

  template <class Archive>
  void save(Archive& archive) const {
    if (mood == state::fails_to_save) {
      throw std::domain_error("broke while packing");
    }
    archive(mood);
  }
  template <class Archive>
  void load(Archive& archive) {
    archive(mood);
    if (mood == state::fails_to_load) {
      throw std::domain_error("broke while unpacking");
    }
  }
};

TEST_CASE("broadcast_object_list: every rank gets the root's list, whatever the old length") {
  at_every_size([](const process_group& world) {
    for (int root = 0; root < world.size(); ++root) {
      for (const std::size_t length : each_of(0, 1, 2, 100)) {
        std::vector<std::string> list(world.rank() == root ? length : as_index(world.rank()) * 3,
                                      text_of(world.rank(), 9));
        broadcast_object_list(list, root);
        CHECK((list == std::vector<std::string>(length, text_of(root, 9))));
      }
    }
    std::vector<bool> flags(as_index(world.rank()), true);
    broadcast_object_list(flags, world.size() - 1);
    CHECK((flags == std::vector<bool>(as_index(world.size() - 1), true)));
    std::vector<float> numbers(world.rank() == 0 ? 300'000U : 1U, static_cast<float>(world.rank()));
    broadcast_object_list(numbers);
    CHECK((numbers == std::vector<float>(300'000U, 0.0F)));
  });
}

TEST_CASE("broadcast_object_list: objects of different types take one exchange") {
  at_every_size([](const process_group& world) {
    for (int root = 0; root < world.size(); ++root) {
      const bool gives = world.rank() == root;
      std::string name = gives ? text_of(root, 500'000) : "old";
      std::map<int, std::vector<double>> table;
      if (gives) {
        table = {{-1, {0.5}}, {root, {}}};
      }
      std::uint16_t number = gives ? 77 : 0;
      std::unique_ptr<int> pointer = gives ? std::make_unique<int>(root) : nullptr;
      std::vector<bool> bits{!gives};
      broadcast_object_list(std::tie(name, table, number, pointer, bits), root);
      CHECK((name == text_of(root, 500'000)));
      CHECK((table == std::map<int, std::vector<double>>{{-1, {0.5}}, {root, {}}}));
      CHECK(number == 77);
      REQUIRE(pointer != nullptr);
      CHECK(*pointer == root);
      CHECK((bits == std::vector<bool>{false}));
    }
    broadcast_object_list(std::tie());
    check_usable(world);
  });
}

TEST_CASE("broadcast_object_list: the root is a rank of the group, also in reverse rank order") {
  at_every_size([](const process_group& world) {
    const auto turned = world.split(0, -world.rank());
    std::vector<int> list{world.rank()};
    int number = world.rank();
    broadcast_object_list(list, 0, turned);
    broadcast_object_list(std::tie(number), 0, turned);
    CHECK((list == std::vector{world.size() - 1}));
    CHECK(number == world.size() - 1);
  });
}

TEST_CASE("broadcast_object_list: a root outside the group is a usage_error on every rank") {
  at_every_size([](const process_group& world) {
    std::vector<int> list{1, 2};
    int number = 3;
    for (const int root : {-1, world.size()}) {
      CHECK_CONTAINS(error_of<usage_error>([&] { broadcast_object_list(list, root); }).what(), "is not a rank");
      CHECK_CONTAINS(error_of<usage_error>([&] { broadcast_object_list(std::tie(number), root); }).what(),
                     "is not a rank");
    }
    CHECK((list == std::vector{1, 2}));
    CHECK(number == 3);
    check_usable(world);
  });
}

TEST_CASE("broadcast_object_list: an object that cannot be serialized is an error on every rank") {
  at_every_size([](const process_group& world) {
    const int root = world.size() / 2;
    const bool gives = world.rank() == root;
    std::vector<failing_list_entry> list(
        2, failing_list_entry{gives ? failing_list_entry::state::fails_to_save : failing_list_entry::state::sound});
    int number = world.rank();
    const auto expect = [&](auto call) {
      if (gives) {
        CHECK_CONTAINS(error_of<std::domain_error>(call).what(), "broke while packing");
      } else {
        const auto problem = error_of<peer_error>(call);
        CHECK(problem.peer() == root);
        CHECK_CONTAINS(problem.what(), "broke while packing");
      }
      CHECK(number == world.rank());
      check_usable(world);
    };
    expect([&] { broadcast_object_list(list, root); });
    expect([&] { broadcast_object_list(std::tie(number, list[0]), root); });
  });
}

TEST_CASE("broadcast_object_list: when one object cannot be decoded, none is changed") {
  at_every_size([](const process_group& world) {
    const int root = world.size() - 1;
    const bool gives = world.rank() == root;
    failing_list_entry object{gives ? failing_list_entry::state::fails_to_load : failing_list_entry::state::sound};
    std::string name = gives ? "new" : "old";
    const auto call = [&] { broadcast_object_list(std::tie(name, object), root); };
    if (gives) {
      call();
    } else {
      line_note note;
      const auto problem =
          error_of<decode_error>([&] { broadcast_object_list(std::tie(name, object), root, note(world)); });
      CHECK_CONTAINS(problem.what(), "from rank " + std::to_string(root) + ": object 1: broke while unpacking");
      CHECK_CONTAINS(problem.what(), note.text());
      CHECK(name == "old");
      CHECK(object.mood == failing_list_entry::state::sound);
    }
    check_usable(world);
  });
}

TEST_CASE("broadcast_object_list: ranks that pass different object types get a mismatch_error") {
  at_every_size(
      [](const process_group& world) {
        int number = 1;
        double real = 2;
        const auto call = [&] {
          if (world.rank() == world.size() - 1) {
            broadcast_object_list(std::tie(real, number));
          } else {
            broadcast_object_list(std::tie(number, real));
          }
        };
        CHECK(error_of<mismatch_error>(call).second_rank() == world.size() - 1);
        check_usable(world);
      },
      2);
}

TEST_CASE("broadcast_object_list: a truncated or overlong message is a decode_error") {
  std::vector<std::byte> message;
  int number = 5;
  std::string name = "five";
  using row = hfcomm::detail::object_sequence<int, std::string>;
  row::encode_to(message, std::tie(number, name));
  const auto into = std::tie(number, name);
  number = 0;
  name.clear();
  for (std::size_t size = 0; size < message.size(); ++size) {
    (void)error_of<decode_error>([&] { row::decode_from(std::span(message).first(size), into); });
  }
  CHECK((number == 0 && name.empty()));
  row::decode_from(message, into);
  CHECK((into == std::tuple(5, "five")));
  message.push_back(std::byte{0});
  CHECK_CONTAINS(error_of<decode_error>([&] { row::decode_from(message, into); }).what(), "1 bytes are left over");
}

}  // namespace
