// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace hfcomm {

namespace detail {

// The return type is not an alias, because g++ would append its definition to the name.
template <class T>
constexpr const char* signature_with_type() {
  return __PRETTY_FUNCTION__;
}

/// g++ writes `... [with T = NAME]`, clang++ `... [T = NAME]`.
template <class T>
constexpr std::string_view type_name_of_compiler() {
  constexpr std::string_view before = "T = ";
  const std::string_view text = signature_with_type<T>();
  const std::size_t first = text.find(before) + before.size();
  return text.substr(first, text.rfind(']') - first);
}

template <std::size_t capacity>
struct static_text {
  std::array<char, capacity> characters{};
  std::size_t size = 0;

  constexpr void append(std::string_view text) {
    for (const char c : text) {
      characters[size++] = c;
    }
  }
  [[nodiscard]] constexpr std::string_view view() const noexcept { return {characters.data(), size}; }
};

/// Returns a name without the standard library's implementation details: `std::__cxx11::basic_string<char>` becomes
/// `std::string`.
template <std::size_t capacity>
constexpr static_text<capacity> tidy_type_name(std::string_view name) {
  static_text<capacity> result;
  while (!name.empty()) {
    const bool in_namespace = result.view().ends_with("::");
    std::string_view taken = name.substr(0, 1);
    std::string_view written = taken;
    for (const std::string_view inline_namespace : {"__cxx11::", "__1::", "_V2::"}) {
      if (in_namespace && name.starts_with(inline_namespace)) {
        taken = inline_namespace;
        written = {};
      }
    }
    constexpr std::string_view string = "basic_string<char>";
    if (in_namespace && name.starts_with(string)) {
      taken = string;
      written = "string";
    } else if (name.starts_with("> >")) {
      taken = name.substr(0, 2);
      written = ">";
    }
    result.append(written);
    name.remove_prefix(taken.size());
  }
  return result;
}

template <class T>
inline constexpr auto type_name_text = tidy_type_name<type_name_of_compiler<T>().size()>(type_name_of_compiler<T>());

}  // namespace detail

/// Returns T's name as the compiler writes it, such as `std::map<std::string, float>`. The characters live as long as
/// the program, and each type has its own.
template <class T>
[[nodiscard]] constexpr std::string_view type_name() noexcept {
  return detail::type_name_text<T>.view();
}

/// Returns the 64-bit FNV-1a hash of `type_name<T>()`. Compilers spell some names differently (`unsigned long`, `long
/// unsigned int`), so programs that compare hashes must be built by the same compiler family.
template <class T>
[[nodiscard]] consteval std::uint64_t type_hash() {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : type_name<T>()) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  }
  return hash;
}

}  // namespace hfcomm
