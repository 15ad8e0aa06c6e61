// SPDX-License-Identifier: MIT
// Bytes as objects of many types. They decode, or they are a decode_error; and what was decoded is encoded and decoded
// to the same object.
#include <array>
#include <bitset>
#include <complex>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include <hfcomm/core/error.hpp>
#include <hfcomm/core/plain.hpp>
#include <hfcomm/serialization/encoding.hpp>
#include <hfcomm/serialization/std_types.hpp>

#include "targets.hpp"

namespace fuzz {

struct point {
  std::int32_t x = 0;
  std::int32_t y = 0;
};

}  // namespace fuzz

template <>
inline constexpr bool hfcomm::enable_raw_bytes<fuzz::point> = true;

namespace fuzz {

namespace {

enum class color : bool { black, white };

struct record {
  std::string name;
  std::optional<std::int64_t> size;
  std::vector<point> points;
  color shade = color::black;
  bool flags[3] = {};
  template <class Archive>
  void serialize(Archive& archive) {
    archive(name, size, points, shade, flags);
  }
};

struct tree {
  std::string name;
  std::vector<std::unique_ptr<tree>> branches;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(name, branches);
  }
};

struct split_functions {
  std::uint16_t value = 0;
  std::vector<std::uint8_t> rest;
  template <class Archive>
  void save(Archive& archive) const {
    archive(static_cast<std::uint64_t>(value), rest);
  }
  template <class Archive>
  void load(Archive& archive) {
    std::uint64_t wide = 0;
    archive(wide, rest);
    value = static_cast<std::uint16_t>(wide);
  }
};

template <class T>
std::vector<std::byte> encoded(const T& value) {
  std::vector<std::byte> result;
  hfcomm::encode(value, result);
  return result;
}

template <class T>
void decode_as(bytes input) {
  T value{};
  try {
    hfcomm::decode_into(value, input);
  } catch (const hfcomm::decode_error& problem) {
    require(!problem.detail().empty(), "a decode_error has a text");
    static_cast<void>(encoded(value));  // it is still valid
    return;
  }
  const auto once = encoded(value);
  const auto twice = encoded(hfcomm::decode<T>(once));
  require(once == twice, "an object is decoded to what was encoded");
}

using decoder = void (*)(bytes input);

constexpr decoder decoders[] = {
    decode_as<std::string>,
    decode_as<std::vector<std::string>>,
    decode_as<std::vector<point>>,
    decode_as<std::vector<bool>>,
    decode_as<std::map<std::string, std::variant<std::int32_t, std::string, std::vector<float>>>>,
    decode_as<std::optional<std::pair<std::string, std::optional<double>>>>,
    decode_as<std::tuple<bool, std::array<std::string, 2>, std::complex<double>, std::bitset<70>>>,
    decode_as<std::list<std::deque<std::set<std::int16_t>>>>,
    decode_as<std::multimap<std::uint8_t, std::u16string>>,
    decode_as<std::variant<std::monostate, std::vector<std::variant<bool, std::string>>, record>>,
    decode_as<std::vector<record>>,
    decode_as<std::unique_ptr<tree>>,
    decode_as<tree>,
    decode_as<std::vector<split_functions>>,
    decode_as<point>,
};

}  // namespace

void decode_objects(bytes input) { decoders[choose(input, std::size(decoders))](input); }

}  // namespace fuzz
