// SPDX-License-Identifier: MIT
#pragma once

#include <cereal/cereal.hpp>
#include <cereal/types/common.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <type_traits>

#include <hfcomm/core/plain.hpp>
#include <hfcomm/serialization/encoder.hpp>
#include <hfcomm/serialization/output_bytes.hpp>
#include <hfcomm/serialization/std_parts.hpp>

/// The archives, and the functions for numbers and for cereal's wrappers. cereal finds these functions in the archives'
/// namespace. Values of standard types do not go through cereal, which would search for their functions: see
/// std_types.hpp.
namespace hfcomm::serialization {

/// An encoder that users' functions for cereal take.
class output_archive : public encoder, public cereal::OutputArchive<output_archive, cereal::AllowEmptyClassElision> {
 public:
  explicit output_archive(output_bytes& out) : encoder(out), OutputArchive(this) {}

  /// Saves values in turn; users' functions call it. The operators are cereal's other names for it.
  template <class... Ts>
  output_archive& operator()(const Ts&... values) {
    (save_value(*this, values), ...);
    return *this;
  }
  template <class T>
  output_archive& operator&(const T& value) {
    return (*this)(value);
  }
  template <class T>
  output_archive& operator<<(const T& value) {
    return (*this)(value);
  }

  /// Saves a value by the functions that cereal finds.
  template <class T>
  void save_by_cereal(const T& value) {
    OutputArchive::operator()(value);
  }
};

/// A decoder that users' functions for cereal take.
class input_archive : public decoder, public cereal::InputArchive<input_archive, cereal::AllowEmptyClassElision> {
 public:
  explicit input_archive(std::span<const std::byte> bytes) : decoder(bytes), InputArchive(this) {}

  /// Loads values in turn; users' functions call it. The operators are cereal's other names for it. A temporary is a
  /// wrapper, such as cereal::make_nvp's.
  template <class... Ts>
  input_archive& operator()(Ts&&... values) {  // NOLINT(*missing-std-forward)
    (load_value(*this, values), ...);
    return *this;
  }
  template <class T>
  input_archive& operator&(T&& value) {  // NOLINT(*missing-std-forward)
    return (*this)(value);
  }
  template <class T>
  input_archive& operator>>(T&& value) {  // NOLINT(*missing-std-forward)
    return (*this)(value);
  }

  /// Loads a value by the functions that cereal finds.
  template <class T>
  void load_by_cereal(T& value) {
    InputArchive::operator()(value);
  }
};

namespace detail {

// The padding behind a long double of 80 bits is uninitialized.
template <class T>
inline constexpr std::size_t value_bytes =
    std::same_as<T, long double> && std::numeric_limits<T>::digits == 64 ? 10 : sizeof(T);

/// A value that cereal gives to these functions, not to an archive's operators: the result of a user's save_minimal,
/// which may also be a string, or a base class of raw bytes.
template <class T>
concept given_by_cereal = std::is_arithmetic_v<T> || enable_raw_bytes<T>;

}  // namespace detail

template <detail::given_by_cereal T>
void save(output_archive& archive, const T& value) {
  save_value(archive, value);
}

template <detail::given_by_cereal T>
void load(input_archive& archive, T& value) {
  load_value(archive, value);
}

template <class Traits, class A>
void save(output_archive& archive, const std::basic_string<char, Traits, A>& text) {
  save_standard(archive, text);
}

template <class Traits, class A>
void load(input_archive& archive, std::basic_string<char, Traits, A>& text) {
  load_standard(archive, text);
}

// cereal's wrappers.

template <class T>
void serialize(output_archive& archive, cereal::NameValuePair<T>& pair) {
  archive(pair.value);
}

template <class T>
void serialize(input_archive& archive, cereal::NameValuePair<T>& pair) {
  archive(pair.value);
}

template <class T>
void serialize(output_archive& archive, cereal::SizeTag<T>& tag) {
  archive(tag.size);
  archive.declare_elements(static_cast<std::uint64_t>(tag.size));
}

template <class T>
void serialize(input_archive& archive, cereal::SizeTag<T>& tag) {
  archive(tag.size);
  // A negative size becomes a very large one.
  archive.declare_elements(static_cast<std::uint64_t>(tag.size));
}

namespace detail {

template <class T>
using binary_element = std::remove_cv_t<std::remove_all_extents_t<std::remove_pointer_t<std::remove_reference_t<T>>>>;

}  // namespace detail

template <class T>
void save(output_archive& archive, const cereal::BinaryData<T>& data) {
  static_assert(!std::is_pointer_v<detail::binary_element<T>>, "hfcomm does not serialize pointers");
  archive.write(data.data, static_cast<std::size_t>(data.size));
}

template <class T>
void load(input_archive& archive, cereal::BinaryData<T>& data) {
  static_assert(!std::is_pointer_v<detail::binary_element<T>>, "hfcomm does not serialize pointers");
  if constexpr (std::same_as<detail::binary_element<T>, bool>) {
    for (std::uint64_t i = 0; i < data.size; ++i) {
      static_cast<bool*>(data.data)[i] = archive.read_bool();
    }
  } else {
    archive.read(data.data, data.size);
  }
}

// The depth: cereal calls these around each object that goes through an archive.

namespace detail {

template <class T>
inline constexpr bool is_wrapper = false;
template <class T>
inline constexpr bool is_wrapper<cereal::NameValuePair<T>> = true;
template <class T>
inline constexpr bool is_wrapper<cereal::SizeTag<T>> = true;
template <class T>
inline constexpr bool is_wrapper<cereal::BinaryData<T>> = true;
template <class T>
inline constexpr bool is_wrapper<cereal::DeferredData<T>> = true;
template <class K, class V>
inline constexpr bool is_wrapper<cereal::MapItem<K, V>> = true;
template <class T>
inline constexpr bool is_wrapper<cereal::base_class<T>> = true;
template <class T>
inline constexpr bool is_wrapper<cereal::virtual_base_class<T>> = true;

template <class T>
concept level = std::is_class_v<T> && !hfcomm::detail::standard_type<T> && !is_wrapper<T>;

}  // namespace detail

template <class T>
void prologue(output_archive& archive, const T& /*value*/) {
  if constexpr (detail::level<T>) {
    archive.enter();
  }
}

template <class T>
void prologue(input_archive& archive, const T& /*value*/) {
  if constexpr (detail::level<T>) {
    archive.enter();
  }
}

template <class T>
void epilogue(output_archive& archive, const T& /*value*/) {
  if constexpr (detail::level<T>) {
    archive.leave();
  }
}

template <class T>
void epilogue(input_archive& archive, const T& /*value*/) {
  if constexpr (detail::level<T>) {
    archive.leave();
  }
}

namespace detail {

/// True for what cereal::defer returns. The value is serialized at once: deferred, it would be loaded when a growing
/// container may have moved it.
template <class T>
inline constexpr bool is_deferred = false;
template <class T>
inline constexpr bool is_deferred<cereal::DeferredData<T>> = true;

template <class T>
inline constexpr bool is_refused_pointer = std::is_pointer_v<T> || hfcomm::detail::is_shared_owner<T>;

/// Refuses a pointer, whatever headers of cereal's are included. An object's number in untrusted bytes may refer to an
/// earlier object of another type.
template <class T>
constexpr void refuse_pointer() {
  static_assert(!std::is_pointer_v<T>, "hfcomm does not serialize raw pointers: use a value or a std::unique_ptr");
  static_assert(!hfcomm::detail::is_shared_ptr<T>,
                "hfcomm does not serialize std::shared_ptr: use a value or a std::unique_ptr");
  static_assert(!hfcomm::detail::is_weak_ptr<T>,
                "hfcomm does not serialize std::weak_ptr: use a value or a std::unique_ptr");
}

}  // namespace detail

template <class T>
void save_value(encoder& archive, const T& value) {
  if constexpr (plain<T>) {
    archive.write(std::addressof(value), sizeof(value));
  } else if constexpr (std::is_arithmetic_v<T>) {
    static_assert(sizeof(bool) == 1);
    archive.write(std::addressof(value), detail::value_bytes<T>);
  } else if constexpr (hfcomm::detail::standard_type<T>) {
    save_standard(archive, value);
  } else if constexpr (detail::is_refused_pointer<T>) {
    detail::refuse_pointer<T>();
  } else if constexpr (detail::is_deferred<T>) {
    save_value(archive, value.value);
  } else if constexpr (hfcomm::detail::aggregate_object<T>) {
    archive.enter();
    hfcomm::detail::aggregate_traits<T>::save(archive, value);
    archive.leave();
  } else {
    static_assert(hfcomm::detail::goes_by_cereal<T>);
    static_cast<output_archive&>(archive).save_by_cereal(value);
  }
}

template <class T>
void load_value(decoder& archive, T& value) {
  if constexpr (plain<T>) {
    archive.read(static_cast<void*>(std::addressof(value)), sizeof(value));
  } else if constexpr (std::is_same_v<T, bool>) {
    value = archive.read_bool();
  } else if constexpr (std::is_arithmetic_v<T>) {
    archive.read(std::addressof(value), detail::value_bytes<T>);
  } else if constexpr (hfcomm::detail::standard_type<T>) {
    load_standard(archive, value);
  } else if constexpr (detail::is_refused_pointer<T>) {
    detail::refuse_pointer<T>();
  } else if constexpr (detail::is_deferred<T>) {
    load_value(archive, value.value);
  } else if constexpr (hfcomm::detail::aggregate_object<T>) {
    archive.enter();
    hfcomm::detail::aggregate_traits<T>::load(archive, value);
    archive.leave();
  } else {
    static_assert(hfcomm::detail::goes_by_cereal<T>);
    static_cast<input_archive&>(archive).load_by_cereal(value);
  }
}

}  // namespace hfcomm::serialization

namespace hfcomm {

using serialization::input_archive;
using serialization::output_archive;

}  // namespace hfcomm

CEREAL_SETUP_ARCHIVE_TRAITS(hfcomm::serialization::input_archive, hfcomm::serialization::output_archive)

// Raw bytes take precedence over all other ways to serialize a type.
template <class T>
  requires hfcomm::enable_raw_bytes<T>
struct cereal::specialize<hfcomm::output_archive, T, cereal::specialization::non_member_load_save> : std::true_type {};
template <class T>
  requires hfcomm::enable_raw_bytes<T>
struct cereal::specialize<hfcomm::input_archive, T, cereal::specialization::non_member_load_save> : std::true_type {};
