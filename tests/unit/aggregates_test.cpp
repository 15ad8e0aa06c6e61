// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <any>
#include <array>
#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include <hfcomm/comm.hpp>

#include <hfcomm/aggregates.hpp>  // behind the header that it changes; tests/compile_fail has the other order
#include <hfcomm/testing.hpp>

#include "encodings.hpp"

namespace {

using hfcomm::plain;
using hfcomm::process_group;
using hfcomm::serializable;

enum class color : std::uint8_t { red, green };

struct box {
  float left, top, right, bottom;
  bool operator==(const box&) const = default;
};

struct detection {
  int id = 0;
  std::string label = {};
  box where = {};
  std::optional<double> score = {};
  std::map<std::string, int> extra = {};
  bool operator==(const detection&) const = default;
};

struct particle {
  double position[3];
  float weights[2][2];
  std::array<std::int16_t, 2> cell;
  color kind;
  char name[7];
  std::int32_t id;
  bool operator==(const particle&) const = default;
};

struct cell_of_boxes {
  box pair[2];
  double mass;
};

struct padded {
  char tag;
  int number;
};

struct padded_inside {
  padded first;
  double second;
};

struct padded_at_the_end {
  double number;
  float half;
};

struct with_bool {
  bool flag;
  bool operator==(const with_bool&) const = default;
};

struct nothing {};

struct with_nothing {
  [[no_unique_address]] nothing empty;
  int number;
};

struct texts {
  std::string names[2][2] = {};
  std::vector<bool> flags = {};
  bool operator==(const texts&) const = default;
};

struct node {
  int value = 0;
  std::vector<node> children = {};
  std::unique_ptr<node> next = nullptr;
};

struct first_of_two;
struct second_of_two {
  std::vector<first_of_two> others;
  int number = 0;
};
struct first_of_two {
  std::vector<second_of_two> others = {};
  std::string text = {};
};

/// Contains itself and what no rank could use.
struct node_with_pointer {
  std::vector<node_with_pointer> children = {};
  int* number = nullptr;
};

struct with_member_function {
  int kept = 0;
  int lost = 0;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(kept);
  }
};

struct with_free_functions {
  int kept = 0;
  int lost = 0;
};
template <class Archive>
void serialize(Archive& archive, with_free_functions& value) {
  archive(value.kept);
}

struct with_save_alone {
  int number = 0;
  template <class Archive>
  void save(Archive& archive) const {
    archive(number);
  }
};

struct with_raw_bytes {
  char tag;
  int number;
};

/// Goes through cereal and has aggregates within.
struct with_function_around {
  box where = {};
  detection found = {};
  template <class Archive>
  void serialize(Archive& archive) {
    archive(where, CEREAL_NVP(found));
  }
};

/// A detection with a function for it.
struct listed_detection : detection {
  template <class Archive>
  void serialize(Archive& archive) {
    archive(id, label, where, score, extra);
  }
};

struct around_functions {
  int id = 0;
  std::vector<with_member_function> values = {};
};

struct anything {
  anything() = default;
  template <class T>
  explicit(false) anything(const T& /*value*/) {}
  template <class Archive>
  void serialize(Archive& archive) {
    archive(number);
  }
  int number = 0;
};
struct starts_with_anything {
  anything first;
  int second = 0;
};

struct of_24 {
  int m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18, m19, m20, m21, m22, m23;
  std::string m24;
};
struct of_25 {
  int m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18, m19, m20, m21, m22, m23, m24;
  int m25;
};

struct derived : box {
  int number;
};
struct derived_from_nothing : nothing {
  int number;
};
struct with_bit_field {
  unsigned low : 4;
  unsigned high : 28;
};
int a_number = 0;
struct with_reference {
  int& number = a_number;
};
struct with_open_reference {
  int id;
  const int& number;
};
struct with_constant {
  const int number = 0;
};
union integer_or_float {
  int integer;
  float number;
};
struct with_union {
  int id;
  integer_or_float value;
};
struct with_anonymous_union {
  int id;
  union {
    int integer;
    float number;
  };
};
struct with_union_of_classes {
  union {
    box first;
    float numbers[4];
  };
};
/// Starts with a union that it serializes itself.
struct tagged {
  integer_or_float value;
  bool is_integer;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(is_integer, value.integer);
  }
};
struct with_tagged {
  tagged value;
  tagged values[2];
};
struct no_default {
  explicit no_default(int start) : number(start) {}
  int number;
};
struct with_member_without_default {
  int id = 0;
  no_default value = no_default(3);
};
struct with_mutex {
  std::mutex mutex;
};

static_assert(plain<box> && plain<particle> && plain<cell_of_boxes> && plain<std::array<box, 2>>);
static_assert(!plain<const box> && hfcomm::buffer<std::span<const box>> && hfcomm::writable_buffer<std::vector<box>&>);
static_assert(!plain<detection> && serializable<detection>);
static_assert(!plain<padded> && serializable<padded>);
static_assert(!plain<padded_inside> && serializable<padded_inside>);
static_assert(!plain<padded_at_the_end> && serializable<padded_at_the_end>);
static_assert(!plain<with_bool> && serializable<with_bool>);
static_assert(!plain<with_nothing> && serializable<with_nothing>);
static_assert(!plain<nothing> && serializable<nothing>);
static_assert(!plain<with_member_function> && serializable<with_member_function>);
static_assert(!plain<with_free_functions> && serializable<with_free_functions>);
static_assert(serializable<texts> && serializable<node> && serializable<std::vector<node>>);
static_assert(serializable<first_of_two> && serializable<second_of_two>);
static_assert(serializable<std::map<std::string, std::variant<int, std::pair<box, detection>>>>);
static_assert(serializable<around_functions> && serializable<starts_with_anything> && serializable<of_24>);
static_assert(!hfcomm::detail::goes_by_cereal<node> && !hfcomm::detail::goes_by_cereal<std::vector<detection>>);
static_assert(hfcomm::detail::goes_by_cereal<std::vector<around_functions>>);

// A type is serializable as a member, at each place, where it is so alone, and only there.
template <class M>
struct only {
  M member;
};
template <class M>
struct second {
  int first;
  M member;
};
template <class M>
constexpr bool taken = serializable<only<M>> && serializable<second<M>> && serializable<std::vector<only<second<M>>>>;
template <class M>
constexpr bool refused =
    !serializable<only<M>> && !serializable<second<M>> && !serializable<std::vector<only<second<M>>>>;
static_assert(taken<std::byte> && taken<long double> && taken<bool[3][2]> && taken<std::vector<bool>>);
static_assert(taken<std::filesystem::path> && taken<std::variant<std::monostate, int, std::string>>);
static_assert(taken<std::unique_ptr<only<int>>> && taken<std::array<int, 0>> && taken<std::pmr::vector<int>>);
static_assert(taken<std::optional<only<std::optional<int>>>> && taken<std::tuple<int, only<float>>>);
static_assert(taken<hfcomm::float16> && taken<hfcomm::weighted_mean>);
static_assert(refused<std::any> && refused<std::function<void()>> && refused<std::mutex> && refused<std::atomic<int>>);
static_assert(refused<std::shared_ptr<int>> && refused<std::string_view> && refused<std::span<int>>);
static_assert(refused<const char*> && refused<int* [2]> && refused<void (*)()> && refused<int only<int>::*>);
static_assert(refused<const int> && refused<std::optional<std::any>> && refused<std::variant<int, std::any>>);
static_assert(plain<only<hfcomm::float16>> && plain<second<only<float>>> && plain<only<hfcomm::weighted_mean>>);
static_assert(!plain<second<double>> && !plain<only<int*>> && !plain<only<bool>> && !plain<only<long double>>);
static_assert(!plain<second<std::array<int, 0>>> && !plain<only<std::monostate>>);

struct alignas(16) three_floats {
  float x, y, z;
};
struct alignas(16) four_floats {
  float x, y, z, w;
};
struct with_unnamed_bits {
  int number;
  int : 16;
  short last;
};
struct large {
  char text[100'000];
  double matrix[300][300];
};
static_assert(!plain<three_floats> && serializable<three_floats> && plain<four_floats>);
static_assert(!plain<with_unnamed_bits> && serializable<with_unnamed_bits> && plain<large>);

template <class T>
using why = hfcomm::detail::why_no_object<T>;
template <class T>
using refusal = hfcomm::reason::not_serializable<T>;
template <class T>
using no_ordinary_value =
    typename refusal<T>::a_member_is_constant_or_a_reference_or_has_no_default_constructor_so_use_an_ordinary_value;
static_assert(std::same_as<why<derived>,
                           refusal<derived>::it_has_a_base_class_so_make_that_a_member_or_give_it_a_serialize_member>);
static_assert(std::same_as<
              why<derived_from_nothing>,
              refusal<derived_from_nothing>::it_has_a_base_class_so_make_that_a_member_or_give_it_a_serialize_member>);
static_assert(
    std::same_as<why<std::vector<with_bit_field>>,
                 refusal<with_bit_field>::it_has_a_bit_field_so_use_an_integer_or_give_it_a_serialize_member>);
static_assert(
    std::same_as<why<of_25>, refusal<of_25>::it_has_more_than_24_members_so_group_them_or_give_it_a_serialize_member>);
static_assert(std::same_as<why<with_reference>, no_ordinary_value<with_reference>>);
static_assert(std::same_as<why<with_open_reference>, no_ordinary_value<with_open_reference>>);
static_assert(std::same_as<why<with_constant>, no_ordinary_value<with_constant>>);
static_assert(std::same_as<why<with_member_without_default>, no_ordinary_value<with_member_without_default>>);
template <class T>
using union_within = typename refusal<
    T>::a_union_does_not_say_which_member_it_holds_so_use_a_std_variant_or_give_its_class_a_serialize_member;
static_assert(std::same_as<why<integer_or_float>, union_within<integer_or_float>>);
static_assert(std::same_as<why<with_union>, union_within<with_union>>);
static_assert(std::same_as<why<std::vector<with_anonymous_union>>, union_within<with_anonymous_union>>);
static_assert(std::same_as<why<with_union_of_classes>, union_within<with_union_of_classes>>);
static_assert(serializable<with_tagged>);
static_assert(
    std::same_as<why<node_with_pointer>,
                 refusal<int*>::a_raw_pointer_means_nothing_elsewhere_so_use_the_value_a_unique_ptr_or_a_span>);
static_assert(!serializable<std::vector<node_with_pointer>>);
static_assert(
    std::same_as<why<with_mutex>,
                 refusal<std::mutex>::it_means_nothing_in_another_process_so_send_a_value_that_it_stands_for>);
static_assert(std::same_as<why<with_save_alone>,
                           refusal<with_save_alone>::give_it_a_serialize_member_or_save_and_load_or_enable_raw_bytes>);

using encodings::encoded;
using encodings::round_trip;

detection a_detection(int id) { return {id, "cat", {0, 1, 2, 3}, 0.5, {{"a", id}, {"b", -1}}}; }

}  // namespace

template <>
inline constexpr bool hfcomm::enable_raw_bytes<with_raw_bytes> = true;

namespace {

static_assert(plain<with_raw_bytes>);

TEST_CASE("aggregates: what is encoded comes back") {
  CHECK(round_trip(box{1, 2, 3, 4}) == box{1, 2, 3, 4});
  CHECK(round_trip(a_detection(7)) == a_detection(7));
  const particle one = {{1, 2, 3}, {{4, 5}, {6, 7}}, {8, 9}, color::green, "hfcomm", 10};
  CHECK(round_trip(one) == one);
  const texts text = {{{"a", "b"}, {"", "a longer text than fits into a string"}}, {true, false}};
  CHECK(round_trip(text) == text);
  const auto mixed = round_trip(padded_inside{{'x', 3}, 0.25});
  CHECK(mixed.first.tag == 'x');
  CHECK(mixed.first.number == 3);
  CHECK(mixed.second == 0.25);
  const auto last = round_trip(padded_at_the_end{0.5, 0.25F});
  CHECK(last.number == 0.5);
  CHECK(last.half == 0.25F);
}

TEST_CASE("aggregates: they may be within containers, optionals, variants and pairs") {
  const std::map<std::string, std::vector<detection>> lists = {{"one", {a_detection(1), a_detection(2)}}, {"two", {}}};
  CHECK(round_trip(lists) == lists);
  const std::variant<int, std::pair<box, std::optional<detection>>> choice =
      std::pair(box{1, 2, 3, 4}, std::optional(a_detection(3)));
  CHECK(round_trip(choice) == choice);
  const std::vector<std::optional<box>> boxes = {box{1, 2, 3, 4}, std::nullopt};
  CHECK(round_trip(boxes) == boxes);
}

TEST_CASE("aggregates: an aggregate may contain itself") {
  node root = {.value = 1};
  root.children.push_back({.value = 2});
  root.children.push_back({.value = 3});
  root.children[1].next = std::make_unique<node>(node{.value = 4});
  const node copy = round_trip(root);
  REQUIRE(copy.children.size() == 2);
  CHECK(copy.children[0].value == 2);
  REQUIRE(copy.children[1].next);
  CHECK(copy.children[1].next->value == 4);
  CHECK_FALSE(copy.next);

  first_of_two first = {{second_of_two{{}, 5}}, "text"};
  first.others[0].others.push_back({{}, "inner"});
  const first_of_two other = round_trip(first);
  REQUIRE(other.others.size() == 1);
  CHECK(other.others[0].number == 5);
  CHECK(other.others[0].others.at(0).text == "inner");
}

TEST_CASE("aggregates: nesting is bounded") {
  node root;
  node* last = &root;
  for (int depth = 0; depth < 300; ++depth) {
    last->next = std::make_unique<node>();
    last = last->next.get();
  }
  CHECK_THROWS_AS(encoded(root), hfcomm::usage_error);
}

TEST_CASE("aggregates: all of 24 members are sent") {
  const of_24 value = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, "24"};
  const of_24 copy = round_trip(value);
  CHECK(copy.m1 == 1);
  CHECK(copy.m12 == 12);
  CHECK(copy.m23 == 23);
  CHECK(copy.m24 == "24");
}

TEST_CASE("aggregates: a plain one is its bytes, and a list of these one block") {
  CHECK(encoded(box{1, 2, 3, 4}).size() == sizeof(box));
  CHECK(encoded(particle{}).size() == sizeof(particle));
  CHECK(encoded(std::vector<box>(3)).size() == sizeof(std::uint64_t) + 3 * sizeof(box));
}

TEST_CASE("aggregates: the bytes are those of a serialize member with all members in their order") {
  CHECK(encoded(a_detection(7)) == encoded(listed_detection{a_detection(7)}));
}

TEST_CASE("aggregates: padding is not sent") {
  CHECK(encoded(padded{'x', 1}).size() == 5);
  CHECK(encoded(padded_inside{{'x', 1}, 2}).size() == 13);
}

TEST_CASE("aggregates: functions of the class's own, and enable_raw_bytes, are kept") {
  CHECK(round_trip(with_member_function{1, 2}).kept == 1);
  CHECK(round_trip(with_member_function{1, 2}).lost == 0);
  CHECK(round_trip(with_free_functions{1, 2}).kept == 1);
  CHECK(round_trip(with_free_functions{1, 2}).lost == 0);
  CHECK(encoded(with_raw_bytes{'x', 1}).size() == sizeof(with_raw_bytes));
  CHECK(round_trip(around_functions{3, {{1, 2}}}).values.at(0).kept == 1);
  CHECK(round_trip(around_functions{3, {{1, 2}}}).values.at(0).lost == 0);
}

TEST_CASE("aggregates: a class's own functions may save and load aggregates") {
  const auto copy = round_trip(with_function_around{{1, 2, 3, 4}, a_detection(5)});
  CHECK(copy.where == box{1, 2, 3, 4});
  CHECK(copy.found == a_detection(5));
}

TEST_CASE("aggregates: wrong bytes are a decode_error") {
  std::vector<std::byte> bytes = encoded(a_detection(1));
  bytes.pop_back();
  CHECK_THROWS_AS(static_cast<void>(hfcomm::decode<detection>(bytes)), hfcomm::decode_error);
  CHECK_THROWS_AS(static_cast<void>(hfcomm::decode<box>(std::vector<std::byte>(sizeof(box) + 1))),
                  hfcomm::decode_error);
  CHECK_THROWS_AS(static_cast<void>(hfcomm::decode<with_bool>(std::vector{std::byte{2}})), hfcomm::decode_error);
}

TEST_CASE("aggregates: collectives take them as objects") {
  for (const int ranks : {1, 2, 3, 4}) {
    hfcomm::testing::run_ranks(ranks, [](const process_group& world) {
      const auto all = hfcomm::all_gather(a_detection(world.rank()), world);
      REQUIRE(all.size() == static_cast<std::size_t>(world.size()));
      for (int rank = 0; rank < world.size(); ++rank) {
        CHECK(all[static_cast<std::size_t>(rank)] == a_detection(rank));
      }
      box one = {static_cast<float>(world.rank()), 1, 2, 3};
      hfcomm::broadcast(one, world.size() - 1, world);
      CHECK(one == box{static_cast<float>(world.size() - 1), 1, 2, 3});
      const box sum = hfcomm::all_reduce(
          box{1, 2, 3, 4},
          [](const box& left, const box& right) {
            return box{left.left + right.left, left.top, right.right, right.bottom};
          },
          world);
      CHECK(sum == box{static_cast<float>(world.size()), 2, 3, 4});
    });
  }
}

TEST_CASE("aggregates: plain ones are elements of buffers") {
  for (const int ranks : {1, 2, 3, 4}) {
    hfcomm::testing::run_ranks(ranks, [](const process_group& world) {
      const auto size = static_cast<std::size_t>(world.size());
      const std::vector<box> mine(10, box{static_cast<float>(world.rank()), 1, 2, 3});
      std::vector<box> every(10 * size);
      hfcomm::all_gather(std::span(mine), std::span(every), world);
      for (std::size_t i = 0; i < every.size(); ++i) {
        const std::size_t from = i / 10;
        CHECK(every[i] == box{static_cast<float>(from), 1, 2, 3});
      }
      std::vector<box> boxes = mine;
      hfcomm::broadcast(std::span(boxes), 0, world);
      CHECK(boxes == std::vector<box>(10, box{0, 1, 2, 3}));
      boxes.assign(static_cast<std::size_t>(world.rank()), box{});
      hfcomm::broadcast(boxes, world.size() - 1, world);  // an object, which may change its size
      CHECK(boxes.size() == size - 1);
    });
  }
}

TEST_CASE("aggregates: another type on another rank is a mismatch_error that names both") {
  hfcomm::testing::run_ranks(2, [](const process_group& world) {
    try {
      if (world.rank() == 0) {
        static_cast<void>(hfcomm::all_gather(a_detection(0), world));
      } else {
        static_cast<void>(hfcomm::all_gather(texts(), world));
      }
      FAIL_CHECK("nothing was thrown");
    } catch (const hfcomm::mismatch_error& problem) {
      const std::string text = problem.what();
      CHECK(text.find("detection") != std::string::npos);
      CHECK(text.find("texts") != std::string::npos);
    }
  });
}

TEST_CASE("aggregates: a class within a function is one, too") {
  struct local {
    int number;
    std::vector<float> values;
  };
  const auto copy = round_trip(local{3, {1, 2}});
  CHECK(copy.number == 3);
  CHECK(copy.values == std::vector<float>{1, 2});
}

}  // namespace
