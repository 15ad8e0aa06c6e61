// SPDX-License-Identifier: MIT
#pragma once

#include <torch/types.h>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/torch/detail/tensor_memory.hpp>
#include <hfcomm/torch/serialization.hpp>

namespace hfcomm::torch::detail {

/// The type of an undefined tensor in an archive. LibTorch's numbers of types are smaller.
inline constexpr std::uint8_t undefined_type = 255;

/// Returns the bytes of an element; 0 for a type whose tensors are not serialized.
[[nodiscard]] HFCOMM_INLINE std::size_t serialized_width(at::ScalarType type) {
  return with_type(type, []<class T>(std::type_identity<T> /*type*/) {
    return std::same_as<T, std::byte> ? std::size_t{0} : sizeof(T);
  });
}

/// Returns the number of elements. Throws decode_error where no memory holds so many.
[[nodiscard]] HFCOMM_INLINE std::uint64_t count_elements(const std::vector<std::int64_t>& sizes) {
  std::int64_t without_zeros = 1;
  bool is_empty = false;
  for (const std::int64_t size : sizes) {
    if (size < 0 || __builtin_mul_overflow(without_zeros, std::max<std::int64_t>(size, 1), &without_zeros)) {
      input_archive::fail("a tensor has impossible sizes");
    }
    is_empty = is_empty || size == 0;
  }
  return is_empty ? 0 : static_cast<std::uint64_t>(without_zeros);
}

}  // namespace hfcomm::torch::detail

namespace hfcomm::serialization {

HFCOMM_INLINE void save(output_archive& archive, const at::Tensor& tensor) {
  namespace tensors = torch::detail;
  if (!tensor.defined()) {
    archive.write(&tensors::undefined_type, 1);
    return;
  }
  std::string problem = tensors::host_memory_problem(tensor);
  if (problem.empty() && tensors::serialized_width(tensor.scalar_type()) == 0) {
    problem = hfcomm::detail::concat(
        {"a tensor of type ", std::string(tensor.dtype().name()), " cannot be sent as an object"});
  }
  if (!problem.empty()) {
    hfcomm::detail::throw_error<usage_error>({problem});
  }
  const auto type = static_cast<std::uint8_t>(tensor.scalar_type());
  archive.write(&type, sizeof(type));
  archive.write_size(static_cast<std::uint64_t>(tensor.dim()));
  archive.write(tensor.sizes().data(), static_cast<std::size_t>(tensor.dim()) * sizeof(std::int64_t));
  const tensors::tensor_memory memory(tensor);
  const auto bytes = memory.elements().bytes();
  archive.write(bytes.data(), bytes.size());
}

HFCOMM_INLINE void load(input_archive& archive, at::Tensor& tensor) {
  namespace tensors = torch::detail;
  std::uint8_t number = 0;
  archive.read(&number, sizeof(number));
  if (number == tensors::undefined_type) {
    tensor = at::Tensor();
    return;
  }
  const auto type = static_cast<at::ScalarType>(number);
  const std::size_t width = number < 128 ? tensors::serialized_width(type) : 0;
  if (width == 0) {
    input_archive::fail(hfcomm::detail::concat({"a tensor has the unknown type ", number}));
  }
  std::vector<std::int64_t> sizes(archive.read_size(sizeof(std::int64_t)));
  archive.read(sizes.data(), sizes.size() * sizeof(std::int64_t));
  const std::uint64_t count = tensors::count_elements(sizes);
  if (count > archive.remaining() / width) {
    input_archive::fail(hfcomm::detail::concat({"truncated: a tensor has ", count, " elements of ", width,
                                                " bytes where ", archive.remaining(), " bytes are left"}));
  }
  const std::byte* const elements = archive.take(count * width);
  if (type == at::kBool &&
      std::any_of(elements, elements + count, [](std::byte one) { return std::to_integer<unsigned>(one) > 1; })) {
    input_archive::fail("an element of a tensor of bools is neither true nor false");
  }
  tensor = at::empty(sizes, type);
  if (count != 0) {
    std::memcpy(tensor.data_ptr(), elements, count * width);
  }
}

}  // namespace hfcomm::serialization
