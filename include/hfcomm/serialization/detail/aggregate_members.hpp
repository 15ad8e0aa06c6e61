// SPDX-License-Identifier: MIT
#pragma once

#include <concepts>
#include <cstddef>
#include <type_traits>
#include <utility>

#include <hfcomm/serialization/std_parts.hpp>

/// How the members of an aggregate are counted and reached. Their number is that of the empty braces from which the
/// aggregate can be made. Each pair stands for one member, C arrays too, where values without braces would be spread
/// over the array's elements. Structured bindings reach the members.
namespace hfcomm::detail {

/// Converts to any type.
struct any_value {
  template <class T>
  operator T() const;
};

/// Converts to any type by a reference.
struct any_reference {
  template <class T>
  operator T&() const;
};

/// Converts to T's base classes.
template <class T>
struct any_base_of {
  template <class Base>
    requires(std::is_base_of_v<Base, T> && !std::same_as<Base, T>)
  operator Base() const;
};

/// Converts to any union.
struct any_union {
  template <class T>
    requires std::is_union_v<T>
  operator T() const;
};

/// Converts to nothing.
struct no_value {};

/// The most members that an aggregate may have.
inline constexpr std::size_t max_members = 24;

/// True if T can be made from `count` pairs of braces and the values of More. The braces are empty but for the last
/// pair, which has the values of Inner. `count` is at most one more than `max_members`.
template <class T, std::size_t count, class... Inner, class... More>
consteval bool is_made_from(parts<Inner...> /*inner*/, parts<More...> /*more*/) {
  if constexpr (count == 0) {
    return requires { T{More()...}; };
  } else if constexpr (count == 1) {
    return requires { T{{Inner()...}, More()...}; };
  } else if constexpr (count == 2) {
    return requires { T{{}, {Inner()...}, More()...}; };
  } else if constexpr (count == 3) {
    return requires { T{{}, {}, {Inner()...}, More()...}; };
  } else if constexpr (count == 4) {
    return requires { T{{}, {}, {}, {Inner()...}, More()...}; };
  } else if constexpr (count == 5) {
    return requires { T{{}, {}, {}, {}, {Inner()...}, More()...}; };
  } else if constexpr (count == 6) {
    return requires { T{{}, {}, {}, {}, {}, {Inner()...}, More()...}; };
  } else if constexpr (count == 7) {
    return requires { T{{}, {}, {}, {}, {}, {}, {Inner()...}, More()...}; };
  } else if constexpr (count == 8) {
    return requires { T{{}, {}, {}, {}, {}, {}, {}, {Inner()...}, More()...}; };
  } else if constexpr (count == 9) {
    return requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {Inner()...}, More()...}; };
  } else if constexpr (count == 10) {
    return requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {Inner()...}, More()...}; };
  } else if constexpr (count == 11) {
    return requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {Inner()...}, More()...}; };
  } else if constexpr (count == 12) {
    return requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {Inner()...}, More()...}; };
  } else if constexpr (count == 13) {
    return requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {Inner()...}, More()...}; };
  } else if constexpr (count == 14) {
    return requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {Inner()...}, More()...}; };
  } else if constexpr (count == 15) {
    return requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {Inner()...}, More()...}; };
  } else if constexpr (count == 16) {
    return requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {Inner()...}, More()...}; };
  } else if constexpr (count == 17) {
    return requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {Inner()...}, More()...}; };
  } else if constexpr (count == 18) {
    return requires { T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {Inner()...}, More()...}; };
  } else if constexpr (count == 19) {
    return requires {
      T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {Inner()...}, More()...};
    };
  } else if constexpr (count == 20) {
    return requires {
      T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {Inner()...}, More()...};
    };
  } else if constexpr (count == 21) {
    return requires {
      T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {Inner()...}, More()...};
    };
  } else if constexpr (count == 22) {
    return requires {
      T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {Inner()...}, More()...};
    };
  } else if constexpr (count == 23) {
    return requires {
      T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {},           {},
        {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {Inner()...}, More()...};
    };
  } else if constexpr (count == 24) {
    return requires {
      T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {},           {},       {},
        {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {Inner()...}, More()...};
    };
  } else {
    return requires {
      T{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {},           {},
        {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {Inner()...}, More()...};
    };
  }
}

/// True if T can be made from `count` empty braces and a value of each of More.
template <class T, std::size_t count, class... More>
inline constexpr bool is_made_of = is_made_from<T, count>(parts<>(), parts<More...>());

/// Returns the number of T's members, or one more than `max_members` where it has more. T has a default constructor and
/// no base class.
template <class T, std::size_t known = 0>
consteval std::size_t count_members() {
  if constexpr (known > max_members || !is_made_of<T, known + 1>) {
    return known;
  } else {
    return count_members<T, known + 1>();
  }
}

/// True if the member behind `count` others is made from a Value by its conversion, not by a constructor for anything.
template <class T, std::size_t count, class Value>
inline constexpr bool takes = is_made_of<T, count, Value> && !is_made_of<T, count, no_value>;

/// True if T has a base class. The first value within T's braces then makes that base.
template <class T>
inline constexpr bool has_base = takes<T, 0, any_base_of<T>>;

/// True if T has more members than the `count` that empty braces make.
template <class T, std::size_t count>
inline constexpr bool has_more_members = is_made_of<T, count, any_value> || is_made_of<T, count, any_reference>;

/// True if one of T's `count` members is a union, with a name or without. One that begins with a union, such as a class
/// or an array, takes it in braces, too.
template <class T, std::size_t count>
inline constexpr bool has_union = []<std::size_t... i>(std::index_sequence<i...>) {
  return ((takes<T, i, any_union> && !is_made_from<T, i + 1>(parts<any_union>(), parts<>())) || ...);
}(std::make_index_sequence<count>());

/// Calls `function` with the members of `value`, of which there are `count`, and returns its result. No call, and no
/// result, where a member is a bit-field, which has no reference.
template <std::size_t count, class T, class Function>
constexpr auto visit_members(T& value, Function function) {
// A macro, because C++20 has no packs of structured bindings.
#define HFCOMM_VISIT_MEMBERS(number, ...)                \
  if constexpr (count == (number)) {                     \
    auto& [__VA_ARGS__] = value;                         \
    if constexpr (requires { function(__VA_ARGS__); }) { \
      return function(__VA_ARGS__);                      \
    }                                                    \
  }
  if constexpr (count == 0) {
    return function();
  }
  HFCOMM_VISIT_MEMBERS(1, m1)
  HFCOMM_VISIT_MEMBERS(2, m1, m2)
  HFCOMM_VISIT_MEMBERS(3, m1, m2, m3)
  HFCOMM_VISIT_MEMBERS(4, m1, m2, m3, m4)
  HFCOMM_VISIT_MEMBERS(5, m1, m2, m3, m4, m5)
  HFCOMM_VISIT_MEMBERS(6, m1, m2, m3, m4, m5, m6)
  HFCOMM_VISIT_MEMBERS(7, m1, m2, m3, m4, m5, m6, m7)
  HFCOMM_VISIT_MEMBERS(8, m1, m2, m3, m4, m5, m6, m7, m8)
  HFCOMM_VISIT_MEMBERS(9, m1, m2, m3, m4, m5, m6, m7, m8, m9)
  HFCOMM_VISIT_MEMBERS(10, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10)
  HFCOMM_VISIT_MEMBERS(11, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11)
  HFCOMM_VISIT_MEMBERS(12, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12)
  HFCOMM_VISIT_MEMBERS(13, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13)
  HFCOMM_VISIT_MEMBERS(14, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14)
  HFCOMM_VISIT_MEMBERS(15, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15)
  HFCOMM_VISIT_MEMBERS(16, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16)
  HFCOMM_VISIT_MEMBERS(17, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17)
  HFCOMM_VISIT_MEMBERS(18, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18)
  HFCOMM_VISIT_MEMBERS(19, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18, m19)
  HFCOMM_VISIT_MEMBERS(20, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18, m19, m20)
  HFCOMM_VISIT_MEMBERS(21, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18, m19, m20,
                       m21)
  HFCOMM_VISIT_MEMBERS(22, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18, m19, m20,
                       m21, m22)
  HFCOMM_VISIT_MEMBERS(23, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18, m19, m20,
                       m21, m22, m23)
  HFCOMM_VISIT_MEMBERS(24, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18, m19, m20,
                       m21, m22, m23, m24)
#undef HFCOMM_VISIT_MEMBERS
}

}  // namespace hfcomm::detail
