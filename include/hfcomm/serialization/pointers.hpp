// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

#include <hfcomm/serialization/archive.hpp>

/// Functions for std::unique_ptr, the one pointer that can be serialized, and readable compile errors for the others
/// within a user's serialize().
namespace hfcomm::serialization {

namespace detail {

template <class T>
inline constexpr bool always_false = false;

template <class Pointer>
constexpr void require_one_object() {
  static_assert(hfcomm::detail::owns_one_object<Pointer>,
                "hfcomm serializes a std::unique_ptr only with the default deleter, to one object, of no polymorphic "
                "class unless it is final");
}

}  // namespace detail

template <class T, class D>
void save(output_archive& archive, const std::unique_ptr<T, D>& pointer) {
  detail::require_one_object<std::unique_ptr<T, D>>();
  save_value(archive, pointer != nullptr);
  if (pointer != nullptr) {
    save_value(archive, *pointer);
  }
}

template <class T, class D>
void load(input_archive& archive, std::unique_ptr<T, D>& pointer) {
  detail::require_one_object<std::unique_ptr<T, D>>();
  if (archive.read_bool()) {
    auto object = std::make_unique<std::remove_const_t<T>>();
    load_value(archive, *object);
    pointer = std::move(object);
  } else {
    pointer.reset();
  }
}

// An object's number in untrusted bytes may refer to an earlier object of another type.

template <class T>
void save(output_archive& /*archive*/, const std::shared_ptr<T>& /*pointer*/) {
  static_assert(detail::always_false<T>, "hfcomm does not serialize std::shared_ptr: use a value or a std::unique_ptr");
}

template <class T>
void load(input_archive& /*archive*/, std::shared_ptr<T>& /*pointer*/) {
  static_assert(detail::always_false<T>, "hfcomm does not serialize std::shared_ptr: use a value or a std::unique_ptr");
}

template <class T>
void save(output_archive& /*archive*/, const std::weak_ptr<T>& /*pointer*/) {
  static_assert(detail::always_false<T>, "hfcomm does not serialize std::weak_ptr: use a value or a std::unique_ptr");
}

template <class T>
void load(input_archive& /*archive*/, std::weak_ptr<T>& /*pointer*/) {
  static_assert(detail::always_false<T>, "hfcomm does not serialize std::weak_ptr: use a value or a std::unique_ptr");
}

template <class T>
void serialize(output_archive& /*archive*/, T*& /*pointer*/) {
  static_assert(detail::always_false<T>, "hfcomm does not serialize raw pointers: use a value or a std::unique_ptr");
}

template <class T>
void serialize(input_archive& /*archive*/, T*& /*pointer*/) {
  static_assert(detail::always_false<T>, "hfcomm does not serialize raw pointers: use a value or a std::unique_ptr");
}

}  // namespace hfcomm::serialization
