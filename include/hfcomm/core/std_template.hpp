// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <string_view>

/// Class templates of the standard library by their names: a file that sends no std::deque does not pay for <deque>.
namespace hfcomm::detail {

// The return types are not aliases, because g++ would append their definitions to the name.
template <template <class...> class C>
constexpr const char* signature_with_template() {
  return __PRETTY_FUNCTION__;
}
template <template <std::size_t> class C>
constexpr const char* signature_with_value_template() {
  return __PRETTY_FUNCTION__;
}

/// Takes "deque" out of a signature that ends with `[with C = std::deque]` (g++) or `[C = std::deque]` (clang++). Empty
/// for a template that is not the standard library's.
constexpr std::string_view std_name_in(std::string_view signature) {
  constexpr std::string_view before = "C = ";
  constexpr std::string_view std_namespace = "std::";
  std::string_view name = signature.substr(signature.find(before) + before.size());
  name = name.substr(0, name.find_first_of("];"));
  if (!name.starts_with(std_namespace)) {
    return {};
  }
  name.remove_prefix(std_namespace.size());
  for (const std::string_view inline_namespace : {"__cxx11::", "__debug::", "__1::", "_V2::"}) {
    if (name.starts_with(inline_namespace)) {
      name.remove_prefix(inline_namespace.size());
    }
  }
  return name;
}

template <template <class...> class C>
inline constexpr std::string_view std_template_name = std_name_in(signature_with_template<C>());
template <template <std::size_t> class C>
inline constexpr std::string_view std_value_template_name = std_name_in(signature_with_value_template<C>());

/// True for std::complex<Part>.
template <class T, class Part>
inline constexpr bool is_complex_of = false;
template <template <class...> class C, class Part>
inline constexpr bool is_complex_of<C<Part>, Part> = std_template_name<C> == "complex";

}  // namespace hfcomm::detail
