// SPDX-License-Identifier: MIT
// Bytes that no encoder wrote: they must give a decode_error and take little memory. The sanitizers check the rest.
#include <doctest/doctest.h>

#include <algorithm>
#include <bitset>
#include <chrono>
#include <complex>
#include <cstring>
#include <deque>
#include <forward_list>
#include <functional>
#include <limits>
#include <list>
#include <map>
#include <new>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <stack>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <valarray>
#include <variant>

#include <hfcomm/serialization/encoding.hpp>

namespace {

std::size_t allocated = 0;

/// Counts all bytes requested.
template <class T>
struct counting_allocator {
  using value_type = T;

  counting_allocator() = default;
  template <class U>
  counting_allocator(const counting_allocator<U>& /*other*/) noexcept {}  // NOLINT(*explicit*)

  T* allocate(std::size_t n) {
    allocated += n * sizeof(T);  // NOLINT(bugprone-sizeof-expression): a pointer is meant where T is one
    return std::allocator<T>().allocate(n);
  }
  void deallocate(T* memory, std::size_t n) { std::allocator<T>().deallocate(memory, n); }
  bool operator==(const counting_allocator&) const = default;
};

template <class T>
using counted_vector = std::vector<T, counting_allocator<T>>;
using counted_string = std::basic_string<char, std::char_traits<char>, counting_allocator<char>>;

struct empty {
  auto operator<=>(const empty&) const = default;
};

struct chain {
  std::unique_ptr<chain> next;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(next);
  }
};

struct bush {
  std::vector<bush> branches;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(CEREAL_NVP(branches));
  }
};

struct counted_bush {
  counted_vector<counted_bush> branches;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(CEREAL_NVP(branches));
  }
};

struct flags {
  bool values[3] = {};
  template <class Archive>
  void serialize(Archive& archive) {
    archive(values);
  }
};

struct binary_flags {
  bool values[3] = {};
  template <class Archive>
  void serialize(Archive& archive) {
    archive(cereal::binary_data(values, sizeof(values)));
  }
};

struct small_size {
  int size = 0;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(cereal::make_size_tag(size));
  }
};

template <class Exception>
struct throws {
  int x = 0;
  template <class Archive>
  void save(Archive& archive) const {
    archive(x);
  }
  template <class Archive>
  void load(Archive& archive) {
    archive(x);
    if constexpr (std::same_as<Exception, int>) {
      throw 1;
    } else if constexpr (std::constructible_from<Exception, const char*>) {
      throw Exception("the value is bad");
    } else {
      throw Exception();
    }
  }
};

struct throws_usage_error {
  int x = 0;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(x);
    if constexpr (Archive::is_loading::value) {
      throw hfcomm::usage_error({}, "not here");
    }
  }
};

enum class yes_no : bool { no, yes };

template <class... Ts>
std::vector<std::byte> bytes_of(const Ts&... values) {
  std::vector<std::byte> result;
  (hfcomm::encode(values, result), ...);
  return result;
}

constexpr std::uint64_t huge = std::uint64_t{1} << 36;
constexpr std::uint64_t largest = std::numeric_limits<std::uint64_t>::max();

/// Decoding must fail; returns why.
template <class T>
std::string refusal(const std::vector<std::byte>& bytes) {
  CAPTURE(hfcomm::type_name<T>());
  // A copy of exactly that size, so that the sanitizer sees the first byte too many.
  const std::vector<std::byte> exact(bytes.begin(), bytes.end());
  try {
    static_cast<void>(hfcomm::decode<T>(exact));
  } catch (const hfcomm::decode_error& problem) {
    CHECK(problem.rank() == -1);
    CHECK(!problem.detail().empty());
    return problem.detail();
  }
  FAIL("was decoded");
  return {};
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_CASE_TEMPLATE("decode: a size larger than the bytes can hold is a decode_error", T, counted_vector<int>,
                   counted_vector<std::string>, counted_vector<empty>, std::vector<bool>, counted_string,
                   std::u32string, std::deque<int>, std::deque<empty>, std::list<int>, std::list<empty>,
                   std::forward_list<empty>, std::valarray<double>, std::valarray<bool>, std::valarray<std::string>,
                   std::set<int>, std::multiset<empty>, std::unordered_set<int>, std::unordered_multiset<int>,
                   std::map<int, int>, std::multimap<int, empty>, std::unordered_map<int, int>,
                   std::unordered_multimap<int, std::string>, std::queue<empty>, std::stack<int>) {
  allocated = 0;
  for (const std::uint64_t size : {huge, largest, largest / 8 + 2, largest / 4 + 2, std::uint64_t{2'000'000'000}}) {
    CHECK(contains(refusal<T>(bytes_of(size)), std::to_string(size)));
    CHECK(contains(refusal<T>(bytes_of(size, 0.0)), std::to_string(size)));
  }
  CHECK(allocated < 1000);
}

TEST_CASE("decode: memory grows with the elements present, not with the announced size") {
  allocated = 0;
  std::vector<std::byte> bytes = bytes_of(std::uint64_t{60'000}, std::string("the only one"));
  CHECK(!refusal<counted_vector<std::string>>(bytes).empty());
  CHECK(allocated < 1000);
  CHECK(
      !refusal<std::unordered_map<int, int, std::hash<int>, std::equal_to<>,
                                  counting_allocator<std::pair<const int, int>>>>(bytes_of(std::uint64_t{60'000}, 1, 1))
           .empty());
  CHECK(allocated < 2000);
}

TEST_CASE("decode: nested containers that announce large sizes take no more memory than there are bytes") {
  std::vector<std::byte> bytes = bytes_of(std::uint64_t{20'000}, std::uint64_t{20'000}, std::uint64_t{20'000});
  bytes.resize(60'000, std::byte{0xff});
  allocated = 0;
  CHECK(!refusal<counted_bush>(bytes).empty());
  CHECK(allocated <= bytes.size() + 1000);
}

TEST_CASE("decode: elements without bytes are limited per message") {
  constexpr std::uint64_t limit = hfcomm::serialization::max_elements_without_bytes;
  CHECK(hfcomm::decode<std::vector<empty>>(bytes_of(limit)).size() == limit);
  // Each of these containers alone would be small enough.
  const std::uint64_t half = limit / 2 + 20;
  CHECK(
      contains(refusal<std::vector<std::vector<empty>>>(bytes_of(std::uint64_t{3}, half, half, half)), "elements in"));
}

TEST_CASE("decode: bytes already read do not allow more elements without bytes") {
  using both = std::pair<std::string, std::vector<empty>>;
  const std::string text(100'000, 'x');
  constexpr std::uint64_t limit = hfcomm::serialization::max_elements_without_bytes;
  CHECK(hfcomm::decode<both>(bytes_of(text, limit)).second.size() == limit);
  CHECK(contains(refusal<both>(bytes_of(text, limit + 1)), "elements in 0 bytes"));
}

TEST_CASE("decode: a user's own size tag has the same limit") {
  CHECK(hfcomm::decode<small_size>(bytes_of(5)).size == 5);
  CHECK(!refusal<small_size>(bytes_of(1'000'000)).empty());
  CHECK(!refusal<small_size>(bytes_of(-1)).empty());
}

TEST_CASE("decode: the depth of nesting is limited") {
  std::vector<std::byte> exact(hfcomm::detail::nesting_limit(), std::byte{1});
  exact.back() = std::byte{0};
  CHECK(hfcomm::decode<chain>(exact).next != nullptr);
  exact.insert(exact.begin(), std::byte{1});
  CHECK(contains(refusal<chain>(exact), "deep"));

  const std::vector<std::byte> deep(200'000, std::byte{1});
  CHECK(contains(refusal<chain>(deep), "deep"));
  std::vector<std::byte> one_deep = bytes_of(std::uint64_t{1});
  one_deep.insert(one_deep.end(), deep.begin(), deep.end());
  CHECK(contains(refusal<std::vector<chain>>(one_deep), "deep"));
  std::vector<std::byte> nested;
  for (int i = 0; i < 100'000; ++i) {
    hfcomm::encode(std::uint64_t{1}, nested);
  }
  CHECK(contains(refusal<bush>(nested), "deep"));
}

TEST_CASE("decode: a bool other than 0 or 1 is a decode_error") {
  for (const int wrong : {2, 0x80, 0xff}) {
    const auto byte = static_cast<std::byte>(wrong);
    CHECK(refusal<bool>({byte}) == "a bool is " + std::to_string(wrong));
    CHECK(!refusal<yes_no>({byte}).empty());
    CHECK(!refusal<std::vector<bool>>(bytes_of(std::uint64_t{1}, byte)).empty());
    CHECK(!refusal<std::array<bool, 1>>({byte}).empty());
    CHECK(!refusal<std::valarray<bool>>(bytes_of(std::uint64_t{1}, byte)).empty());
    CHECK(!refusal<std::optional<int>>({byte}).empty());
    CHECK(!refusal<std::unique_ptr<int>>({byte}).empty());
    CHECK(!refusal<flags>({std::byte{0}, std::byte{1}, byte}).empty());
    CHECK(!refusal<binary_flags>({std::byte{0}, std::byte{1}, byte}).empty());
  }
  CHECK(hfcomm::decode<binary_flags>(bytes_of('\0', '\1', '\1')).values[2]);
}

TEST_CASE("decode: a variant index out of range is a decode_error") {
  using either = std::variant<int, std::string>;
  for (const std::int32_t wrong : {-1, 2, 9, std::numeric_limits<std::int32_t>::min()}) {
    CHECK(!refusal<either>(bytes_of(wrong)).empty());
    CHECK(!refusal<either>(bytes_of(wrong, 0)).empty());
  }
}

TEST_CASE("decode: a duplicate key is a decode_error") {
  CHECK(contains(refusal<std::set<int>>(bytes_of(std::uint64_t{2}, 5, 5)), "keys"));
  CHECK(contains(refusal<std::unordered_set<int>>(bytes_of(std::uint64_t{2}, 5, 5)), "keys"));
  CHECK(contains(refusal<std::map<int, int>>(bytes_of(std::uint64_t{2}, 5, 1, 5, 2)), "keys"));
  CHECK(contains(refusal<std::unordered_map<int, int>>(bytes_of(std::uint64_t{2}, 5, 1, 5, 2)), "keys"));
  // In another order than that of a set they are fine.
  CHECK(hfcomm::decode<std::set<int>>(bytes_of(std::uint64_t{3}, 3, 1, 2)) == std::set{1, 2, 3});
}

TEST_CASE("decode: a bitset in an unknown representation is a decode_error") {
  CHECK(!refusal<std::bitset<9>>({std::byte{9}, std::byte{0}, std::byte{0}}).empty());
  CHECK(!refusal<std::bitset<9>>(bytes_of('\2', std::string("10x"))).empty());
}

TEST_CASE("decode: a plain object of the wrong size is a decode_error") {
  CHECK(contains(refusal<int>({}), "4 bytes"));
  CHECK(!refusal<int>(std::vector<std::byte>(3)).empty());
  CHECK(!refusal<int>(std::vector<std::byte>(5)).empty());
  CHECK(!refusal<std::array<double, 2>>(std::vector<std::byte>(15)).empty());
}

TEST_CASE("decode: bytes left over are a decode_error") {
  CHECK(refusal<std::string>(bytes_of(std::string("a"), 'x')) == "1 of 10 bytes are left over");
  CHECK(!refusal<bool>(bytes_of(true, true)).empty());
  CHECK(!refusal<empty>(bytes_of('x')).empty());
  CHECK(!refusal<std::vector<int>>(bytes_of(std::vector<int>{1}, 'x')).empty());
}

TEST_CASE("decode: an exception of a load function becomes a decode_error, unless it is an hfcomm error") {
  CHECK(refusal<throws<std::runtime_error>>(bytes_of(1)) == "the value is bad");
  CHECK(refusal<throws<cereal::Exception>>(bytes_of(1)) == "the value is bad");
  CHECK(refusal<throws<std::length_error>>(bytes_of(1)) == "the value is bad");
  CHECK(contains(refusal<throws<std::bad_alloc>>(bytes_of(1)), "memory"));
  CHECK(!refusal<throws<int>>(bytes_of(1)).empty());
  CHECK_THROWS_AS(static_cast<void>(hfcomm::decode<throws_usage_error>(bytes_of(1))), hfcomm::usage_error);
}

/// A member of every kind.
struct mixture {
  bool flag = true;
  std::map<std::string, std::vector<std::optional<std::variant<int, std::string, std::vector<double>>>>> nested;
  std::unordered_map<std::int16_t, std::set<std::string>> sets;
  std::tuple<float, std::array<bool, 2>, std::pair<yes_no, long double>> fixed;
  std::vector<bool> bits;
  std::bitset<13> bit_set;
  std::valarray<double> numbers;
  std::list<std::deque<std::forward_list<int>>> lists;
  std::vector<empty> empties;
  std::chrono::nanoseconds time{};
  std::complex<double> complex;
  std::unique_ptr<mixture> next;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(flag, CEREAL_NVP(nested), sets, fixed, bits, bit_set, numbers, lists, empties, time, complex, next);
  }
};

mixture example() {
  mixture result;
  result.nested = {{"a", {{}, 1, "text", std::vector<double>{1, 2}}}, {"b", {}}};
  result.sets = {{1, {"x", "y"}}};  // of two, decoding may change the order
  result.fixed = {1.5F, {true, false}, {yes_no::yes, 2.5L}};
  result.bits = {true, false, true};
  result.bit_set = 0x155;
  result.numbers = {1, 2, 3};
  result.lists = {{{1, 2}, {}}, {}};
  result.empties.resize(3);
  result.next = std::make_unique<mixture>();
  result.next->next = std::make_unique<mixture>();
  return result;
}

TEST_CASE("decode: an object truncated anywhere is a decode_error") {
  const auto bytes = bytes_of(example());
  REQUIRE(bytes.size() > 300);
  CHECK(bytes_of(hfcomm::decode<mixture>(bytes)) == bytes);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    CAPTURE(size);
    const std::vector cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    CHECK_THROWS_AS(static_cast<void>(hfcomm::decode<mixture>(cut)), hfcomm::decode_error);
  }
}

TEST_CASE("decode: an object with changed bytes is decoded or a decode_error") {
  const auto original = bytes_of(example());
  std::mt19937_64 random(20240607);
  const auto below = [&](std::size_t limit) { return static_cast<std::size_t>(random() % limit); };
  constexpr std::uint64_t sizes[] = {0,      1,    255,     65'535,          65'536,
                                     70'000, huge, largest, largest / 8 + 2, largest / 2 + 1};
  int decoded = 0;
  int refused = 0;
  for (int round = 0; round < 30'000; ++round) {
    auto bytes = original;
    for (std::size_t changes = 1 + below(3); changes != 0; --changes) {
      const std::size_t place = below(bytes.size());
      const auto at = bytes.begin() + static_cast<std::ptrdiff_t>(place);
      switch (below(6)) {
        case 0: *at = static_cast<std::byte>(below(256)); break;
        case 1: *at ^= std::byte{1} << below(8); break;
        case 2:
          bytes.erase(at, at + static_cast<std::ptrdiff_t>(1 + below(std::min<std::size_t>(16, bytes.size() - place))));
          break;
        case 3: bytes.insert(at, 1 + below(16), static_cast<std::byte>(below(256))); break;
        case 4: {
          const std::uint64_t size = sizes[below(std::size(sizes))];
          std::memcpy(bytes.data() + place, &size, std::min(sizeof(size), bytes.size() - place));
          break;
        }
        default: std::swap(*at, bytes[below(bytes.size())]); break;
      }
      if (bytes.empty()) {
        bytes.resize(1);
      }
    }
    bytes.shrink_to_fit();
    try {
      const auto value = hfcomm::decode<mixture>(bytes);
      static_cast<void>(bytes_of(value));
      ++decoded;
    } catch (const hfcomm::decode_error&) {
      ++refused;
    }
  }
  CHECK(decoded + refused == 30'000);
  CHECK(decoded > 1000);
  CHECK(refused > 1000);
}

TEST_CASE("decode: random bytes are decoded or a decode_error") {
  std::mt19937_64 random(7);
  int refused = 0;
  for (int round = 0; round < 10'000; ++round) {
    std::vector<std::byte> bytes(random() % 200);
    // Few bits, so that sizes are small often enough for the decoder to get somewhere.
    std::ranges::generate(bytes, [&] { return static_cast<std::byte>(random() & random() & random() & 0x87); });
    try {
      static_cast<void>(hfcomm::decode<mixture>(bytes));
    } catch (const hfcomm::decode_error&) {
      ++refused;
    }
  }
  CHECK(refused > 9000);
}

}  // namespace
