// SPDX-License-Identifier: MIT
// Decoding gives back what was encoded: every standard type, and every way to make a class serializable.
#include <doctest/doctest.h>

#include <bitset>
#include <chrono>
#include <cmath>
#include <complex>
#include <deque>
#include <forward_list>
#include <functional>
#include <limits>
#include <list>
#include <map>
#include <numeric>
#include <optional>
#include <queue>
#include <set>
#include <stack>
#include <unordered_map>
#include <unordered_set>
#include <valarray>
#include <variant>

#include <hfcomm/serialization/encoding.hpp>

#include "../chain.hpp"
#include "encodings.hpp"

namespace {

using encodings::encoded;
using encodings::round_trip;

template <class T>
void check_round_trip(const T& value) {
  CAPTURE(hfcomm::type_name<T>());
  CHECK(round_trip(value) == value);
  const std::vector<T> several(3, value);
  CHECK(round_trip(several) == several);
}

enum class color : std::uint8_t { red, green, blue };
enum class yes_no : bool { no, yes };
enum old_style { first, second };

struct point {
  float x = 0;
  std::int32_t label = 0;
  bool operator==(const point&) const = default;
};

/// Both raw and with functions of its own, which must not be called.
struct raw_and_serialize {
  int x = 0;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(x, x);
  }
  bool operator==(const raw_and_serialize&) const = default;
};

struct person {
  std::string name;
  int age = 0;
  std::map<std::string, std::vector<double>> scores;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(CEREAL_NVP(name), age, cereal::make_nvp("points", scores));
  }
  bool operator==(const person&) const = default;
};

/// Stored in another unit than its member.
class celsius {
 public:
  celsius() = default;
  explicit celsius(double degrees) : degrees_(degrees) {}
  bool operator==(const celsius&) const = default;

 private:
  friend class cereal::access;
  template <class Archive>
  void save(Archive& archive) const {
    archive(degrees_ + 273.15);
  }
  template <class Archive>
  void load(Archive& archive) {
    double kelvin = 0;
    archive(kelvin);
    degrees_ = kelvin - 273.15;
  }
  double degrees_ = 0;
};

struct minimal {
  int x = 0;
  template <class Archive>
  [[nodiscard]] std::string save_minimal(const Archive& /*archive*/) const {
    return std::to_string(x);
  }
  template <class Archive>
  void load_minimal(const Archive& /*archive*/, const std::string& text) {
    x = std::stoi(text);
  }
  bool operator==(const minimal&) const = default;
};

struct outside {
  int x = 0;
  std::vector<int> more;
  bool operator==(const outside&) const = default;
};
template <class Archive>
void serialize(Archive& archive, outside& value) {
  archive(value.x, value.more);
}

struct versioned {
  int x = 0;
  std::uint32_t version = 0;
  template <class Archive>
  void serialize(Archive& archive, const std::uint32_t stored) {
    archive(x);
    version = stored;
  }
};

struct empty {
  bool operator==(const empty&) const = default;
};

struct animal {
  int legs = 0;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(legs);
  }
  bool operator==(const animal&) const = default;
};
struct dog : animal {
  std::string name;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(cereal::base_class<animal>(this), name);
  }
  bool operator==(const dog&) const = default;
};

struct c_arrays {
  int numbers[3] = {};
  bool flags[2] = {};
  std::string texts[2];
  template <class Archive>
  void serialize(Archive& archive) {
    archive(numbers, flags, texts);
  }
  bool operator==(const c_arrays&) const = default;
};

/// A user's container that is saved with cereal's size tag.
struct block {
  std::vector<bool> unused;
  std::unique_ptr<bool[]> data;
  std::size_t size = 0;

  template <class Archive>
  void save(Archive& archive) const {
    archive(cereal::make_size_tag(static_cast<cereal::size_type>(size)), cereal::binary_data(data.get(), size));
  }
  template <class Archive>
  void load(Archive& archive) {
    cereal::size_type stored = 0;
    archive(cereal::make_size_tag(stored));
    size = stored;
    data = std::make_unique<bool[]>(size);
    archive(cereal::binary_data(data.get(), size));
  }
};

struct tree {
  int value = 0;
  std::unique_ptr<tree> left;
  std::unique_ptr<tree> right;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(value, left, right);
  }
};

int sum(const tree& node) {
  return node.value + (node.left ? sum(*node.left) : 0) + (node.right ? sum(*node.right) : 0);
}

}  // namespace

template <>
inline constexpr bool hfcomm::enable_raw_bytes<point> = true;
template <>
inline constexpr bool hfcomm::enable_raw_bytes<raw_and_serialize> = true;
CEREAL_CLASS_VERSION(versioned, 7)

namespace {

TEST_CASE("round trip: numbers") {
  check_round_trip(true);
  check_round_trip('x');
  check_round_trip(std::int8_t{-7});
  check_round_trip(U'\U0001F600');
  check_round_trip(std::numeric_limits<std::int64_t>::min());
  check_round_trip(std::numeric_limits<std::uint64_t>::max());
  check_round_trip(-0.5F);
  check_round_trip(std::numeric_limits<double>::denorm_min());
  check_round_trip(std::numeric_limits<long double>::max());
  check_round_trip(hfcomm::float16(1.5F));
  check_round_trip(hfcomm::bfloat16(-3.0F));
  check_round_trip(std::byte{200});
  check_round_trip(color::blue);
  check_round_trip(yes_no::yes);
  check_round_trip(second);
  CHECK(std::isnan(round_trip(std::numeric_limits<double>::quiet_NaN())));
  CHECK(std::signbit(round_trip(std::vector{-0.0}).front()));
}

TEST_CASE("round trip: strings") {
  check_round_trip(std::string());
  check_round_trip(std::string("with \0 inside", 13));
  check_round_trip(std::string(100'000, 'x'));
  check_round_trip(std::wstring(L"wide"));
  check_round_trip(std::u8string(u8"eight"));
  check_round_trip(std::u16string(u"sixteen"));
  check_round_trip(std::u32string(U"thirty-two"));
}

TEST_CASE("round trip: sequences") {
  check_round_trip(std::vector<float>{1, 2, 3});
  check_round_trip(std::vector<color>{color::red, color::blue});
  check_round_trip(std::vector<std::string>{"a", "", "c"});
  check_round_trip(std::vector<bool>{true, false, true});
  check_round_trip(std::vector<yes_no>{yes_no::yes, yes_no::no});
  check_round_trip(std::vector<long double>{1.5L, -2});
  check_round_trip(std::vector<std::vector<std::vector<int>>>{{{1}, {}}, {}, {{2, 3}}});
  check_round_trip(std::array<int, 3>{1, 2, 3});
  check_round_trip(std::array<bool, 3>{true, false, true});
  check_round_trip(std::array<std::string, 2>{"a", "b"});
  check_round_trip(std::array<int, 0>{});
  check_round_trip(std::deque<int>{1, 2});
  check_round_trip(std::deque<std::string>{"a", "b"});
  check_round_trip(std::list<double>{1, 2});
  check_round_trip(std::forward_list<int>{3, 2, 1});
}

TEST_CASE("round trip: blocks of plain elements at every alignment") {
  for (std::size_t before = 0; before < 9; ++before) {
    const std::string text(before, 'x');
    check_round_trip(std::pair(text, std::vector<double>{1, 2, 3}));
    check_round_trip(std::pair(text, std::vector<std::vector<std::int16_t>>{{1}, {}, {2, 3}}));
    check_round_trip(std::pair(text, std::u32string(U"thirty-two")));
  }
}

TEST_CASE("round trip: valarrays") {
  const auto check = []<class T>(const std::valarray<T>& values) {
    const auto result = round_trip(values);
    REQUIRE(result.size() == values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      CHECK(result[i] == values[i]);
    }
  };
  check(std::valarray<double>{1, 2, 3});
  check(std::valarray<double>{});
  check(std::valarray<bool>{true, false});
  check(std::valarray<std::string>{"a", "b"});
}

TEST_CASE("round trip: sets and maps") {
  check_round_trip(std::set<int>{3, 1, 2});
  check_round_trip(std::set<std::string, std::greater<>>{"a", "b"});
  check_round_trip(std::multiset<int>{1, 1, 2});
  check_round_trip(std::unordered_set<std::string>{"a", "b"});
  check_round_trip(std::unordered_multiset<int>{1, 1, 2});
  check_round_trip(std::map<std::string, int>{{"a", 1}, {"b", 2}});
  check_round_trip(std::map<int, bool>{{1, true}, {0, false}});
  check_round_trip(std::multimap<int, std::string>{{1, "second"}, {1, "first"}});
  check_round_trip(std::unordered_map<std::string, std::vector<int>>{{"a", {1}}, {"b", {}}});
  check_round_trip(std::unordered_multimap<int, int>{{1, 1}, {1, 2}});
  std::map<int, std::string> many;
  for (int i = 0; i < 1000; ++i) {
    many[i] = std::to_string(i);
  }
  check_round_trip(many);
}

TEST_CASE("round trip: container adaptors") {
  check_round_trip(std::queue<int>({1, 2, 3}));
  check_round_trip(std::stack<std::string>({"a", "b"}));
  std::priority_queue<int, std::vector<int>, std::greater<>> values;
  for (const int value : {5, 1, 3}) {
    values.push(value);
  }
  auto result = round_trip(values);
  CHECK(result.size() == 3);
  CHECK(result.top() == 1);
}

TEST_CASE("round trip: pairs, tuples, optionals and variants") {
  check_round_trip(std::pair<int, std::string>{1, "a"});
  check_round_trip(std::tuple<>{});
  check_round_trip(std::tuple<int, std::string, std::vector<bool>>{1, "a", {true}});
  check_round_trip(std::optional<std::string>{});
  check_round_trip(std::optional<std::string>{"a"});
  check_round_trip(std::optional<bool>{false});
  using either = std::variant<std::monostate, int, std::string, std::vector<int>>;
  check_round_trip(either{});
  check_round_trip(either{3});
  check_round_trip(either{"text"});
  check_round_trip(std::vector<either>{{}, 3, std::vector{1, 2}});
}

TEST_CASE("round trip: complex numbers, bitsets and times") {
  check_round_trip(std::complex<float>{1, 2});
  check_round_trip(std::complex<double>{1, 2});
  check_round_trip(std::complex<long double>{1, 2});
  check_round_trip(std::vector<std::complex<float>>{{1, 2}, {3, 4}});
  check_round_trip(std::bitset<1>{1});
  check_round_trip(std::bitset<77>{0x123456789abcdefULL});
  check_round_trip(std::chrono::milliseconds{5});
  check_round_trip(std::chrono::duration<double>{0.25});
  check_round_trip(std::chrono::system_clock::time_point{std::chrono::seconds{1'700'000'000}});
}

TEST_CASE("round trip: unique pointers") {
  CHECK(round_trip(std::unique_ptr<int>()) == nullptr);
  CHECK(*round_trip(std::make_unique<int>(3)) == 3);
  CHECK(*round_trip(std::unique_ptr<const std::string>(std::make_unique<std::string>("a"))) == "a");
  std::map<std::string, std::unique_ptr<person>> people;
  people["a"] = std::make_unique<person>(person{"Ada", 36, {}});
  people["b"] = nullptr;
  const auto result = round_trip(people);
  CHECK(*result.at("a") == *people.at("a"));
  CHECK(result.at("b") == nullptr);

  tree root{1, std::make_unique<tree>(), std::make_unique<tree>()};
  root.left->value = 10;
  root.right->left = std::make_unique<tree>();
  root.right->left->value = 100;
  const tree copy = round_trip(root);
  CHECK(sum(copy) == 111);
  CHECK(copy.right->left->value == 100);
  CHECK(copy.right->right == nullptr);
}

TEST_CASE("round trip: users' classes") {
  check_round_trip(person{"Ada", 36, {{"math", {1, 2.5}}, {"art", {}}}});
  CHECK(round_trip(celsius(20.5)) == celsius(20.5));
  check_round_trip(minimal{42});
  check_round_trip(outside{1, {2, 3}});
  check_round_trip(empty{});
  check_round_trip(std::map<int, empty>{{1, {}}, {2, {}}});
  check_round_trip(std::vector<empty>(10'000));
  dog rex;
  rex.legs = 4;
  rex.name = "Rex";
  check_round_trip(rex);
  check_round_trip(c_arrays{{1, 2, 3}, {true, false}, {"a", "b"}});
  const versioned stored = round_trip(std::vector{versioned{5}, versioned{6}}).back();
  CHECK(stored.x == 6);
  CHECK(stored.version == 7);
  block flags;
  flags.size = 3;
  flags.data = std::make_unique<bool[]>(3);
  flags.data[1] = true;
  const block copy = round_trip(flags);
  REQUIRE(copy.size == 3);
  CHECK(!copy.data[0]);
  CHECK(copy.data[1]);
}

struct shaped_values : std::vector<float> {
  std::vector<int> shape;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(static_cast<std::vector<float>&>(*this), shape);
  }
};

TEST_CASE("round trip: a class with its own functions that is derived from a container") {
  shaped_values value;
  value.assign({1, 2});
  value.shape = {2, 1};
  std::vector<std::byte> bytes;
  hfcomm::encode(value, bytes);
  const auto copy = hfcomm::decode<shaped_values>(bytes);
  CHECK(copy == value);
  CHECK(copy.shape == value.shape);
}

TEST_CASE("encode: a raw-bytes class takes exactly its own bytes, alone or nested") {
  check_round_trip(point{1, 2});
  check_round_trip(std::map<std::string, point>{{"a", {1, 2}}});
  check_round_trip(raw_and_serialize{3});
  check_round_trip(std::optional<raw_and_serialize>{{3}});
  CHECK(encoded(point{1, 2}).size() == sizeof(point));
  CHECK(encoded(std::pair(raw_and_serialize{3}, 'x')).size() == sizeof(raw_and_serialize) + 1);
  CHECK(encoded(std::vector<float>(10)).size() == 8 + 40);
  CHECK(encoded(std::array<point, 3>{}).size() == 3 * sizeof(point));
}

TEST_CASE("encode: the padding of a long double is not written") {
  if (std::numeric_limits<long double>::digits == 64) {
    CHECK(encoded(1.0L).size() == 10);
  }
  CHECK(encoded(1.0L) == encoded(std::array<long double, 1>{1.0L}));
}

TEST_CASE("encode: it appends to the bytes already there") {
  std::vector<std::byte> bytes;
  hfcomm::encode(std::string("first"), bytes);
  const std::size_t middle = bytes.size();
  hfcomm::encode(2, bytes);
  const std::span<const std::byte> all(bytes);
  CHECK(hfcomm::decode<std::string>(all.first(middle)) == "first");
  CHECK(hfcomm::decode<int>(all.subspan(middle)) == 2);
}

TEST_CASE("decode_into: it replaces the old value") {
  std::vector<std::string> strings{"old", "older", "oldest"};
  hfcomm::decode_into(strings, encoded(std::vector<std::string>{"new"}));
  CHECK(strings == std::vector<std::string>{"new"});
  std::map<int, int> map{{1, 1}};
  hfcomm::decode_into(map, encoded(std::map<int, int>{{2, 2}}));
  CHECK(map == std::map<int, int>{{2, 2}});
  std::forward_list<int> list{1, 2, 3};
  hfcomm::decode_into(list, encoded(std::forward_list<int>{4}));
  CHECK(list == std::forward_list<int>{4});
  auto pointer = std::make_unique<int>(1);
  hfcomm::decode_into(pointer, encoded(std::unique_ptr<int>()));
  CHECK(pointer == nullptr);
  std::bitset<3> bits(7);
  hfcomm::decode_into(bits, encoded(std::bitset<3>(2)));
  CHECK(bits == 2);
}

/// Counts the bytes that a vector sets to zero before they are used.
template <class T>
struct zero_counter : std::allocator<T> {
  static inline std::size_t zeros = 0;
  void construct(T* place) {
    ++zeros;
    std::construct_at(place);
  }
};

TEST_CASE("encode: the cost of appending does not grow with the bytes already there") {
  constexpr std::size_t count = 10'000;
  std::vector<std::byte, zero_counter<std::byte>> all;
  for (std::uint64_t value = 0; value < count; ++value) {  // as encode() does
    const std::size_t before = all.size();
    hfcomm::serialization::output_bytes out(all, before);
    out.write(&value, sizeof(value));
    all.resize(before + out.written().size());
  }
  CHECK(all.size() == count * sizeof(std::uint64_t));
  CHECK(zero_counter<std::byte>::zeros < count * 500);
}

TEST_CASE("encode: an object nested too deep is a usage_error and leaves no bytes behind") {
  const chain deepest = round_trip(chain_of(hfcomm::detail::nesting_limit()));
  CHECK(depth_of(deepest) == hfcomm::detail::nesting_limit());

  std::vector<std::byte> bytes(5);
  CHECK_THROWS_AS(hfcomm::encode(chain_of(hfcomm::detail::nesting_limit() + 1), bytes), hfcomm::usage_error);
  CHECK(bytes.size() == 5);
  // Beside each other is not within each other.
  CHECK(round_trip(std::vector<person>(1000)).size() == 1000);
}

}  // namespace
