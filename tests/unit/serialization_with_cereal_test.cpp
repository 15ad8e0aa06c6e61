// SPDX-License-Identifier: MIT
// A program that uses cereal for other things too: its headers come first, and do not change what hfcomm does.
#include <cereal/archives/binary.hpp>
#include <cereal/types/deque.hpp>
#include <cereal/types/map.hpp>
#include <cereal/types/memory.hpp>
#include <cereal/types/polymorphic.hpp>
#include <cereal/types/vector.hpp>
#if !defined(__clang__)
#include <cereal/types/tuple.hpp>  // clang++ does not compile it from version 19 on
#endif

#include <doctest/doctest.h>

#include <cstdint>
#include <deque>
#include <map>
#include <sstream>

#include <hfcomm/serialization/encoding.hpp>

namespace {

struct item {
  std::vector<int> numbers;
  std::unique_ptr<std::string> text;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(numbers, text);
  }
};

item example() {
  item result;
  result.numbers = {1, 2};
  result.text = std::make_unique<std::string>("text");
  return result;
}

TEST_CASE("cereal: its own archives still work") {
  std::stringstream stream;
  {
    cereal::BinaryOutputArchive archive(stream);
    archive(example());
  }
  item result;
  cereal::BinaryInputArchive archive(stream);
  archive(result);
  CHECK(result.numbers == std::vector{1, 2});
  CHECK(*result.text == "text");
}

TEST_CASE("cereal: hfcomm's archives keep their own functions") {
  std::vector<std::byte> bytes;
  hfcomm::encode(example(), bytes);
  CHECK(*hfcomm::decode<item>(bytes).text == "text");

  using everything = std::tuple<std::map<int, std::vector<bool>>, std::tuple<>, std::tuple<int, std::string>>;
  const everything value{{{1, {true}}}, {}, {2, "x"}};
  bytes.clear();
  hfcomm::encode(value, bytes);
  CHECK(hfcomm::decode<everything>(bytes) == value);

  const std::vector<std::byte> not_zero_nor_one{std::byte{2}, std::byte{0}};
  CHECK_THROWS_AS(static_cast<void>(hfcomm::decode<std::unique_ptr<char>>(not_zero_nor_one)), hfcomm::decode_error);
}

struct queued {
  std::deque<int> numbers;
  template <class Archive>
  void serialize(Archive& archive) {
    archive & numbers;
  }
};

TEST_CASE("cereal: its functions for a container do not get what hfcomm decodes") {
  std::vector<std::byte> bytes;
  hfcomm::encode(queued{{1, 2, 3}}, bytes);
  CHECK(hfcomm::decode<queued>(bytes).numbers == std::deque{1, 2, 3});
  bytes.resize(sizeof(std::uint64_t));  // three elements are declared, and none follows
  CHECK_THROWS_AS(static_cast<void>(hfcomm::decode<queued>(bytes)), hfcomm::decode_error);
}

static_assert(!hfcomm::serializable<std::shared_ptr<int>> && !hfcomm::serializable<std::map<int, std::weak_ptr<int>>>);

}  // namespace
