// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include <hfcomm/core/nesting_limit.hpp>
#include <hfcomm/core/std_algorithm.hpp>
#include <hfcomm/serialization/output_bytes.hpp>

/// How objects become bytes and come out of them. None of it is cereal's: see archive.hpp.
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
    if (++depth_ > hfcomm::detail::nesting_limit()) {
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
    if (++depth_ > hfcomm::detail::nesting_limit()) {
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

}  // namespace hfcomm::serialization
