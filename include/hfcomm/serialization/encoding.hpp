// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include <hfcomm/core/error.hpp>
#include <hfcomm/core/plain.hpp>
#include <hfcomm/serialization/archive.hpp>
#include <hfcomm/serialization/not_serializable.hpp>
#include <hfcomm/serialization/serializable.hpp>
#include <hfcomm/serialization/type_name.hpp>

namespace hfcomm {

namespace detail {

template <class T>
void encode_to(const T& value, serialization::output_bytes& out) {
  if constexpr (plain<T>) {
    out.write(std::addressof(value), sizeof(value));
  } else {
    std::conditional_t<goes_by_cereal<T>, output_archive, serialization::encoder> archive(out);
    serialization::save_value(archive, value);
    archive.require_decodable();
  }
}

/// Throws decode_error: a plain object has another size.
[[noreturn]] void fail_for_size(std::size_t wanted, std::size_t bytes);

/// To be called in a handler: throws decode_error with the exception's text. An error of hfcomm's own stays as it is.
[[noreturn]] void rethrow_as_decode_error();

/// A new object, which is on the heap where it has more than 64 KiB: threads may have small stacks.
template <class T>
class new_object {
 public:
  [[nodiscard]] T& operator*() noexcept {
    if constexpr (is_large) {
      return *object_;
    } else {
      return object_;
    }
  }

 private:
  static constexpr bool is_large = sizeof(T) > std::size_t{1} << 16;
  [[nodiscard]] static auto make() {
    if constexpr (is_large) {
      return std::make_unique<T>();
    } else {
      return T{};
    }
  }

  std::conditional_t<is_large, std::unique_ptr<T>, T> object_ = make();
};

}  // namespace detail

/// Appends `value` to `out`, in this machine's representation: only processes with the same ABI understand it. A plain
/// value is copied, and so are the elements of contiguous containers of plain ones.
///
/// Throws what the user's serialization functions throw, usage_error where objects are nested more than 256 deep or
/// more than 65536 elements of containers serialize nothing, and std::bad_alloc; `out` is then as it was. `out` must
/// not be a part of `value`.
template <serializable T>
void encode(const T& value, std::vector<std::byte>& out) {
  const std::size_t before = out.size();
  try {
    serialization::output_bytes bytes(out, before);
    detail::encode_to(value, bytes);
    out.resize(before + bytes.written().size());
  } catch (...) {
    out.resize(before);
    throw;
  }
}

/// Replaces `value` by the object that `bytes` encode. The bytes are not trusted. Sizes are checked before memory is
/// allocated, and nesting is bounded. Bools, a variant's index and a set's keys are checked, and all bytes must be
/// used.
///
/// Throws decode_error, with an empty context, for anything that is wrong with them. An exception of a user's load
/// function becomes a decode_error, too, unless it is an hfcomm::error. `value` is then valid but may be changed.
template <serializable T>
void decode_into(T& value, std::span<const std::byte> bytes) {
  if constexpr (plain<T>) {
    if (bytes.size() != sizeof(T)) {
      detail::fail_for_size(sizeof(T), bytes.size());
    }
    std::memcpy(static_cast<void*>(std::addressof(value)), bytes.data(), sizeof(T));
  } else {
    try {
      std::conditional_t<detail::goes_by_cereal<T>, input_archive, serialization::decoder> archive(bytes);
      serialization::load_value(archive, value);
      archive.require_end();
    } catch (...) {
      detail::rethrow_as_decode_error();
    }
  }
}

/// Returns the object that `bytes` encode; see decode_into().
template <serializable T>
[[nodiscard]] T decode(std::span<const std::byte> bytes) {
  T value{};
  decode_into(value, bytes);
  return value;
}

// Calls that are refused; see not_serializable.hpp.

template <class T, class Why = detail::why_no_object<T>>
  requires detail::refused<Why>
void encode(const T&, std::vector<std::byte>&) = delete;  // not serializable: Why says what to do
template <class T, class Why = detail::why_no_object<T>>
  requires detail::refused<Why>
void decode_into(T&, std::span<const std::byte>) = delete;  // not serializable: Why says what to do
template <class T, class Why = detail::why_no_object<T>>
  requires detail::refused<Why>
T decode(std::span<const std::byte>) = delete;  // not serializable: Why says what to do

}  // namespace hfcomm
