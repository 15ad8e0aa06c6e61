// SPDX-License-Identifier: MIT
#pragma once

#include <cereal/cereal.hpp>
#include <cereal/types/common.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <type_traits>

#include <hfcomm/core/error.hpp>
#include <hfcomm/core/plain.hpp>
#include <hfcomm/serialization/output_bytes.hpp>
#include <hfcomm/serialization/std_parts.hpp>

/// The archives, and the functions for numbers and for cereal's wrappers. cereal finds these functions in the archives'
/// namespace. Values of standard types do not go through cereal, which would search for their functions: see
/// std_types.hpp.
namespace hfcomm::serialization {

class encoder;
class decoder;

/// Saves `value` as an element of a container, a member or a whole object.
template <class T>
void save_value(encoder& archive, const T& value);
/// Loads `value` as `save_value` saved it.
template <class T>
void load_value(decoder& archive, T& value);
/// Saves a value of a standard type.
template <class T>
void save_standard(encoder& archive, const T& value);
/// Loads `value` as `save_standard` saved it.
template <class T>
void load_standard(decoder& archive, T& value);

/// The maximum nesting depth of objects of the user's classes, in encoding, too. Only such a class can contain itself,
/// so this bounds the stack that decoding needs.
inline constexpr std::size_t max_depth = 256;

/// The number of elements that a message may declare beyond one for each of its bytes. Only an element of an empty
/// class has no bytes.
inline constexpr std::uint64_t max_elements_without_bytes = 65536;

/// Writes objects as bytes, in this machine's representation. Nothing else may use its target meanwhile.
class encoder {
 public:
  explicit encoder(output_bytes& out) noexcept : out_(&out) {}

  void write(const void* data, std::size_t size) { out_->write(data, size); }
  void write_size(std::uint64_t size) { write(&size, sizeof(size)); }

  void enter() {
    if (++depth_ > max_depth) {
      fail_for_depth();
    }
  }
  void leave() noexcept { --depth_; }

  /// Counts elements of a container, in front of them, as the decoder does.
  void declare_elements(std::uint64_t count) noexcept {
    elements_ += count;
    most_ = std::max(most_, out_->written().size() + count);
  }
  /// Throws usage_error where no rank could decode what was written, because too many elements have no bytes.
  void require_decodable() const {
    if (std::max(elements_, most_) > out_->written().size() + max_elements_without_bytes) [[unlikely]] {
      fail_for_elements();
    }
  }

 private:
  [[noreturn, gnu::cold]] static void fail_for_depth();
  [[noreturn, gnu::cold]] static void fail_for_elements();

  output_bytes* out_;
  std::size_t depth_ = 0;
  std::uint64_t elements_ = 0;
  std::uint64_t most_ = 0;  // of the bytes before a container and its elements
};

/// Reads objects from untrusted bytes. Throws decode_error with an empty context. Sizes are compared with the remaining
/// bytes before anything is allocated. So it takes no more memory than the encoded elements need, plus the bytes' size.
class decoder {
 public:
  explicit decoder(std::span<const std::byte> bytes) noexcept
      : bytes_(bytes), elements_left_(bytes.size() + max_elements_without_bytes), room_left_(bytes.size()) {}

  [[nodiscard]] std::size_t remaining() const noexcept { return bytes_.size() - position_; }

  /// Returns the next `size` bytes, in place.
  [[nodiscard]] const std::byte* take(std::uint64_t size) {
    if (size > remaining()) {
      fail_for_bytes(size);
    }
    const std::byte* result = bytes_.data() + position_;
    position_ += static_cast<std::size_t>(size);
    return result;
  }

  void read(void* to, std::uint64_t size) {
    const std::byte* from = take(size);
    if (size != 0) {
      std::memcpy(to, from, static_cast<std::size_t>(size));
    }
  }

  [[nodiscard]] bool read_bool() {
    const auto value = std::to_integer<unsigned>(*take(1));
    if (value > 1) {
      fail_for_bool(value);
    }
    return value == 1;
  }

  /// Returns how many elements follow. Their sizes differ, so they must be decoded one by one.
  [[nodiscard]] std::size_t read_size() {
    std::uint64_t size = 0;
    read(&size, sizeof(size));
    declare_elements(size);
    return static_cast<std::size_t>(size);
  }

  /// Returns how many elements of `element_size` bytes follow. All of them are there.
  [[nodiscard]] std::size_t read_size(std::size_t element_size) {
    std::uint64_t size = 0;
    read(&size, sizeof(size));
    if (size > remaining() / element_size) {
      fail_for_elements(size, element_size);
    }
    return static_cast<std::size_t>(size);
  }

  /// Counts elements over the whole message. Otherwise each of many nested containers could be full of elements without
  /// bytes.
  void declare_elements(std::uint64_t count) {
    if (count > elements_left_ || count > remaining() + max_elements_without_bytes) {
      fail_for_elements(count, 0);
    }
    elements_left_ -= count;
  }

  /// Returns for how many of `count` elements memory may be reserved before they are decoded. All such reservations
  /// together are at most as large as the bytes, whatever the sizes say.
  [[nodiscard]] std::size_t to_reserve(std::size_t count, std::size_t element_size) noexcept {
    count = std::min(count, room_left_ / element_size);
    room_left_ -= count * element_size;
    return count;
  }

  void enter() {
    if (++depth_ > max_depth) {
      fail_for_depth();
    }
  }
  void leave() noexcept { --depth_; }

  void require_end() const {
    if (remaining() != 0) {
      fail_for_rest();
    }
  }

  /// Throws decode_error.
  [[noreturn, gnu::cold]] static void fail(std::string detail);
  [[noreturn]] static void fail_for_equal_keys(std::size_t keys, std::size_t different);
  [[noreturn]] static void fail_for_alternative(std::int32_t index, std::size_t count);

 private:
  [[noreturn, gnu::cold]] static void fail_for_bool(unsigned value);
  [[noreturn, gnu::cold]] static void fail_for_depth();
  [[noreturn]] void fail_for_bytes(std::uint64_t size) const;
  [[noreturn, gnu::cold]] void fail_for_elements(std::uint64_t count, std::size_t element_size) const;
  [[noreturn]] void fail_for_rest() const;

  std::span<const std::byte> bytes_;
  std::size_t position_ = 0;
  std::uint64_t elements_left_;
  std::size_t room_left_;
  std::size_t depth_ = 0;
};

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

// What a user's save_minimal may return: cereal does not give it to an archive's operators.

namespace detail {

// The padding behind a long double of 80 bits is uninitialized.
template <class T>
inline constexpr std::size_t value_bytes =
    std::same_as<T, long double> && std::numeric_limits<T>::digits == 64 ? 10 : sizeof(T);

template <class T>
concept number = std::is_arithmetic_v<T> && !std::same_as<T, bool>;

}  // namespace detail

template <detail::number T>
void save(output_archive& archive, const T& value) {
  archive.write(std::addressof(value), detail::value_bytes<T>);
}

template <detail::number T>
void load(input_archive& archive, T& value) {
  archive.read(std::addressof(value), detail::value_bytes<T>);
}

template <std::same_as<bool> T>
void save(output_archive& archive, const T& value) {
  archive.write(&value, sizeof(value));
}

template <std::same_as<bool> T>
void load(input_archive& archive, T& value) {
  value = archive.read_bool();
}

static_assert(sizeof(bool) == 1);

template <class Traits, class A>
void save(output_archive& archive, const std::basic_string<char, Traits, A>& text) {
  save_standard(archive, text);
}

template <class Traits, class A>
void load(input_archive& archive, std::basic_string<char, Traits, A>& text) {
  load_standard(archive, text);
}

// Classes that the user declared to be raw bytes.

template <class T>
  requires enable_raw_bytes<T>
void save(output_archive& archive, const T& value) {
  archive.write(std::addressof(value), sizeof(value));
}

template <class T>
  requires enable_raw_bytes<T>
void load(input_archive& archive, T& value) {
  archive.read(static_cast<void*>(std::addressof(value)), sizeof(value));
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

template <class T>
inline constexpr bool is_shared_ptr = false;
template <class T>
inline constexpr bool is_shared_ptr<std::shared_ptr<T>> = true;
template <class T>
inline constexpr bool is_weak_ptr = false;
template <class T>
inline constexpr bool is_weak_ptr<std::weak_ptr<T>> = true;

template <class T>
inline constexpr bool is_refused_pointer = std::is_pointer_v<T> || is_shared_ptr<T> || is_weak_ptr<T>;

/// Refuses a pointer, whatever headers of cereal's are included. An object's number in untrusted bytes may refer to an
/// earlier object of another type.
template <class T>
constexpr void refuse_pointer() {
  static_assert(!std::is_pointer_v<T>, "hfcomm does not serialize raw pointers: use a value or a std::unique_ptr");
  static_assert(!is_shared_ptr<T>, "hfcomm does not serialize std::shared_ptr: use a value or a std::unique_ptr");
  static_assert(!is_weak_ptr<T>, "hfcomm does not serialize std::weak_ptr: use a value or a std::unique_ptr");
}

}  // namespace detail

template <class T>
void save_value(encoder& archive, const T& value) {
  if constexpr (plain<T>) {
    archive.write(std::addressof(value), sizeof(value));
  } else if constexpr (std::is_arithmetic_v<T>) {
    archive.write(std::addressof(value), detail::value_bytes<T>);
  } else if constexpr (hfcomm::detail::standard_type<T>) {
    save_standard(archive, value);
  } else if constexpr (detail::is_refused_pointer<T>) {
    detail::refuse_pointer<T>();
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
