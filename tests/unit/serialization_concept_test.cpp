// SPDX-License-Identifier: MIT
// Plain types, serializable types, and the names of types.
#include <doctest/doctest.h>

#include <bitset>
#include <chrono>
#include <complex>
#include <deque>
#include <forward_list>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <span>
#include <stack>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <valarray>
#include <variant>

#include <hfcomm/core/concepts.hpp>
#include <hfcomm/serialization/encoding.hpp>

namespace {

enum class color : std::uint8_t { red, green };
enum class yes_no : bool { no, yes };
enum old_style { first, second };
enum old_style_fixed : int { third };

struct trivial {
  int x;
};
struct point {
  float x, y;
};
struct unprepared {
  int x = 0;
};
struct empty {};
struct with_serialize {
  int x = 0;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(x);
  }
};
struct save_only {
  int x = 0;
  template <class Archive>
  void save(Archive& archive) const {
    archive(x);
  }
};
struct empty_save_only {
  template <class Archive>
  void save(Archive& archive) const {
    archive(1);
  }
};
struct no_default : with_serialize {
  explicit no_default(int value) : with_serialize{value} {}
};
struct immovable : with_serialize {
  immovable() = default;
  immovable(immovable&&) = delete;
};
struct base : with_serialize {
  virtual ~base() = default;
};
struct last final : base {};
struct abstract {
  virtual ~abstract() = default;
  virtual void f() = 0;
};
class only_cereal_constructs {
 public:
  template <class Archive>
  void serialize(Archive& archive) {
    archive(x_);
  }

 private:
  friend class cereal::access;
  only_cereal_constructs() = default;
  int x_ = 0;
};
struct deleter {
  void operator()(int* pointer) const { delete pointer; }
};

}  // namespace

template <>
inline constexpr bool hfcomm::enable_raw_bytes<point> = true;

namespace {

using hfcomm::plain;
using hfcomm::serializable;

static_assert(plain<char> && plain<signed char> && plain<wchar_t> && plain<char32_t> && plain<unsigned long long>);
static_assert(plain<float> && plain<double> && plain<hfcomm::float16> && plain<hfcomm::bfloat16> && plain<std::byte>);
static_assert(plain<color> && plain<old_style_fixed> && plain<point>);
static_assert(plain<std::complex<float>> && plain<std::complex<double>> && plain<std::array<int, 3>>);
static_assert(plain<std::array<std::array<point, 2>, 3>>);

static_assert(!plain<bool> && !plain<yes_no> && !plain<old_style> && !plain<long double> && !plain<trivial>);
static_assert(!plain<std::complex<long double>> && !plain<std::array<bool, 2>> && !plain<std::array<int, 0>>);
static_assert(!plain<int*> && !plain<std::array<int*, 2>> && !plain<std::nullptr_t> && !plain<int point::*>);
static_assert(!plain<const int> && !plain<int&> && !plain<int[2]> && !plain<void> && !plain<std::vector<int>>);
static_assert(!plain<std::string_view> && !plain<std::span<int>>);

static_assert(serializable<int> && serializable<bool> && serializable<long double> && serializable<std::byte>);
static_assert(serializable<color> && serializable<yes_no> && serializable<old_style> && serializable<point>);
static_assert(serializable<hfcomm::float16> && serializable<hfcomm::bfloat16>);
static_assert(serializable<with_serialize> && serializable<empty>);
static_assert(serializable<std::string> && serializable<std::wstring> && serializable<std::u8string>);
static_assert(serializable<std::vector<bool>> && serializable<std::vector<point>>);
static_assert(serializable<std::map<std::string, std::vector<std::optional<with_serialize>>>>);
static_assert(serializable<std::variant<std::monostate, int, std::vector<std::tuple<empty, std::string>>>>);
static_assert(serializable<std::unique_ptr<int>> && serializable<std::unique_ptr<const with_serialize>>);
static_assert(serializable<std::unique_ptr<last>> && serializable<std::unique_ptr<immovable>>);
static_assert(serializable<std::tuple<>> && serializable<std::bitset<9>> && serializable<std::array<empty, 0>>);
static_assert(serializable<std::chrono::system_clock::time_point> && serializable<std::chrono::duration<double>>);
static_assert(serializable<std::priority_queue<int, std::vector<int>, std::greater<>>>);

static_assert(!serializable<unprepared> && !serializable<trivial> && !serializable<save_only>);
static_assert(!serializable<empty_save_only> && !serializable<no_default> && !serializable<immovable>);
static_assert(!serializable<abstract> && !serializable<const with_serialize>);
static_assert(!serializable<int*> && !serializable<const char*> && !serializable<int&> && !serializable<void()>);
static_assert(!serializable<void> && !serializable<std::nullptr_t> && !serializable<int[3]>);
static_assert(!serializable<int with_serialize::*> && !serializable<std::function<void()>>);
static_assert(!serializable<std::reference_wrapper<int>> && !serializable<std::span<int>>);
static_assert(!serializable<std::span<int, 0>> && !serializable<std::string_view>);
static_assert(!serializable<std::shared_ptr<int>> && !serializable<std::weak_ptr<int>>);
static_assert(!serializable<std::vector<std::shared_ptr<int>>> && !serializable<std::map<int, int*>>);
static_assert(!serializable<std::unique_ptr<unprepared>> && !serializable<std::unique_ptr<base>>);
static_assert(!serializable<std::unique_ptr<int[]>> && !serializable<std::unique_ptr<int, deleter>>);
static_assert(!serializable<std::unique_ptr<no_default>> && !serializable<std::unique_ptr<std::shared_ptr<int>>>);
static_assert(!serializable<only_cereal_constructs> && !serializable<std::unique_ptr<only_cereal_constructs>>);
static_assert(!serializable<std::vector<no_default>> && !serializable<std::optional<immovable>>);

using N = unprepared;
static_assert(!serializable<std::vector<N>> && !serializable<std::deque<N>> && !serializable<std::list<N>>);
static_assert(!serializable<std::forward_list<N>> && !serializable<std::valarray<N>>);
static_assert(!serializable<std::array<N, 2>> && !serializable<std::array<N, 0>>);
static_assert(!serializable<std::map<std::string, N>> && !serializable<std::map<N, int>>);
static_assert(!serializable<std::unordered_map<int, N>> && !serializable<std::multimap<int, N>>);
static_assert(!serializable<std::unordered_multimap<int, N>> && !serializable<std::set<N>>);
static_assert(!serializable<std::multiset<N>> && !serializable<std::unordered_set<N>>);
static_assert(!serializable<std::unordered_multiset<N>> && !serializable<std::queue<N>>);
static_assert(!serializable<std::stack<N>> && !serializable<std::priority_queue<N>>);
static_assert(!serializable<std::optional<N>> && !serializable<std::variant<int, N>>);
static_assert(!serializable<std::pair<int, N>> && !serializable<std::tuple<int, N>>);
static_assert(!serializable<std::vector<std::map<int, std::optional<std::pair<int, std::array<N, 1>>>>>>);

template <class T>
using culprit = hfcomm::detail::first_unserializable_t<T>;
static_assert(std::same_as<culprit<std::map<std::string, std::vector<std::optional<N>>>>, N>);
static_assert(std::same_as<culprit<std::tuple<int, std::vector<std::shared_ptr<int>>>>, std::shared_ptr<int>>);
static_assert(std::same_as<culprit<std::vector<std::unique_ptr<base>>>, std::unique_ptr<base>>);
static_assert(std::same_as<culprit<std::vector<no_default>>, no_default>);
static_assert(std::same_as<culprit<std::map<int, const char*>>, const char*>);

static_assert(hfcomm::type_name<int>() == "int");
static_assert(hfcomm::type_name<std::string>() == "std::string");
static_assert(hfcomm::type_name<std::optional<std::vector<double>>>() == "std::optional<std::vector<double>>");
static_assert(hfcomm::type_hash<int>() == 0x2b9fff192bd4c83eU);
static_assert(hfcomm::type_hash<std::vector<int>>() != hfcomm::type_hash<std::vector<float>>());

TEST_CASE("type_name: a type's name is the one its user writes") {
  CHECK(hfcomm::type_name<std::map<std::string, std::vector<float>>>() == "std::map<std::string, std::vector<float>>");
  CHECK(hfcomm::type_name<hfcomm::float16>() == "hfcomm::float16");
  CHECK(hfcomm::type_name<point>().ends_with("::point"));
}

TEST_CASE("type_name: a type's name and hash are constants with one address each") {
  constexpr std::uint64_t hash = hfcomm::type_hash<point>();
  CHECK(hash == hfcomm::type_hash<point>());
  CHECK(hfcomm::type_name<point>().data() == hfcomm::type_name<point>().data());
  CHECK(hfcomm::type_name<int>().data() != hfcomm::type_name<unsigned>().data());
}

}  // namespace
