// SPDX-License-Identifier: MIT
#pragma once

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <source_location>
#include <type_traits>
#include <vector>

#include <hfcomm/call/typed_calls.hpp>
#include <hfcomm/core/float16.hpp>
#include <hfcomm/core/hash.hpp>
#include <hfcomm/engine/operation.hpp>

/// Tensors as the memory of hfcomm's operations.
namespace hfcomm::torch_backend_detail {

using hfcomm::detail::const_elements;
using hfcomm::detail::elements;

/// Returns `use(std::type_identity<T>{})`, where T is the C++ type of a tensor's elements; std::byte where hfcomm has
/// none.
template <class Use>
auto with_type(at::ScalarType type, Use use) {
  switch (type) {
    case at::kBool: return use(std::type_identity<bool>{});
    case at::kByte: return use(std::type_identity<std::uint8_t>{});
    case at::kChar: return use(std::type_identity<std::int8_t>{});
    case at::kShort: return use(std::type_identity<std::int16_t>{});
    case at::kInt: return use(std::type_identity<std::int32_t>{});
    case at::kLong: return use(std::type_identity<std::int64_t>{});
    case at::kHalf: return use(std::type_identity<float16>{});
    case at::kBFloat16: return use(std::type_identity<bfloat16>{});
    case at::kFloat: return use(std::type_identity<float>{});
    case at::kDouble: return use(std::type_identity<double>{});
    case at::kComplexFloat: return use(std::type_identity<std::complex<float>>{});
    case at::kComplexDouble: return use(std::type_identity<std::complex<double>>{});
    default: return use(std::type_identity<std::byte>{});
  }
}

/// Returns the operation `name` on elements of the tensor's type; `bytes` is what this rank contributes.
inline engines::operation tensor_call(engines::operation_name name, engines::movement pattern, const at::Tensor& tensor,
                                      std::size_t bytes, int root, std::source_location where) {
  auto call = with_type(tensor.scalar_type(), [&]<class T>(std::type_identity<T> /*type*/) {
    return hfcomm::detail::buffer_call<T>(name, pattern, 0, root, where);
  });
  call.bytes = bytes;
  if (call.type_hash == hfcomm::type_hash<std::byte>()) {
    call.type_hash = hfcomm::detail::mix(call.type_hash, static_cast<std::uint64_t>(tensor.scalar_type()));
  }
  return call;
}

/// Throws c10::Error unless the tensor's elements are in host memory.
inline void require_host_memory(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.defined(), "hfcomm: the tensor is undefined");
  TORCH_CHECK(tensor.layout() == at::kStrided && !tensor.is_quantized(),
              "hfcomm: the tensor is sparse or quantized; this operation is there for dense tensors");
  TORCH_CHECK(tensor.device().is_cpu(), "hfcomm: the tensor is on the device ", tensor.device().str(),
              "; this backend moves tensors in host memory (CPU) only");
}

/// The elements of a tensor, row by row: its own memory where that is contiguous, otherwise a copy.
class host_tensor {
 public:
  explicit host_tensor(const at::Tensor& tensor) {
    require_host_memory(tensor);
    tensor_ = tensor.detach();
    contiguous_ = tensor_.resolve_conj().resolve_neg().contiguous();
  }

  [[nodiscard]] const at::Tensor& tensor() const noexcept { return tensor_; }
  [[nodiscard]] at::ScalarType type() const { return tensor_.scalar_type(); }
  [[nodiscard]] std::size_t bytes() const { return contiguous_.nbytes(); }
  [[nodiscard]] elements memory() const {
    return {static_cast<std::byte*>(contiguous_.data_ptr()), static_cast<std::size_t>(contiguous_.numel()),
            static_cast<std::size_t>(contiguous_.itemsize())};
  }
  /// Returns `count` rows of the first dimension, from row `first` on.
  [[nodiscard]] elements rows(std::int64_t first, std::int64_t count) const {
    const std::int64_t row = contiguous_.size(0) == 0 ? 0 : contiguous_.numel() / contiguous_.size(0);
    const auto width = static_cast<std::size_t>(contiguous_.itemsize());
    return {static_cast<std::byte*>(contiguous_.data_ptr()) + static_cast<std::size_t>(first * row) * width,
            static_cast<std::size_t>(count * row), width};
  }
  /// Uses a copy from now on, whatever the tensor's memory is.
  void copy() {
    if (is_own_memory()) {
      contiguous_ = contiguous_.clone();
    }
  }
  /// Writes the elements into the tensor, if they are a copy.
  void write_back() const {
    if (!is_own_memory()) {
      const at::NoGradGuard no_grad;
      tensor_.copy_(contiguous_);
    }
  }

 private:
  [[nodiscard]] bool is_own_memory() const { return contiguous_.data_ptr() == tensor_.data_ptr(); }

  at::Tensor tensor_;
  at::Tensor contiguous_;
};

/// Tensors of one call. Those that share memory with another one are copied.
class host_tensors {
 public:
  explicit host_tensors(const std::vector<at::Tensor>& tensors) : tensors_(tensors.begin(), tensors.end()) {
    std::vector<std::size_t> order(tensors_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [&](std::size_t left, std::size_t right) {
      return tensors_[left].memory().data < tensors_[right].memory().data;
    });
    const std::byte* end = nullptr;
    for (const std::size_t index : order) {
      const auto memory = tensors_[index].memory();
      if (memory.count == 0) {
        continue;
      }
      if (memory.data < end) {
        tensors_[index].copy();
      } else {
        end = memory.data + tensors_[index].bytes();
      }
    }
  }

  [[nodiscard]] std::size_t size() const noexcept { return tensors_.size(); }
  [[nodiscard]] const host_tensor& operator[](std::size_t index) const { return tensors_[index]; }
  [[nodiscard]] auto begin() const noexcept { return tensors_.begin(); }
  [[nodiscard]] auto end() const noexcept { return tensors_.end(); }

  /// Throws c10::Error unless all tensors are of this type.
  void require_type(at::ScalarType type) const {
    for (const host_tensor& one : tensors_) {
      TORCH_CHECK(one.type() == type, "hfcomm: the tensors of one call have the types ", type, " and ", one.type());
    }
  }
  [[nodiscard]] std::vector<elements> parts() const {
    std::vector<elements> result;
    for (const host_tensor& one : tensors_) {
      result.push_back(one.memory());
    }
    return result;
  }
  [[nodiscard]] std::vector<const_elements> const_parts() const {
    const auto writable = parts();
    return {writable.begin(), writable.end()};
  }
  void write_back() const {
    for (const host_tensor& one : tensors_) {
      one.write_back();
    }
  }

 private:
  std::vector<host_tensor> tensors_;
};

/// Returns the only element of a list. Throws c10::Error where there is another number.
template <class T>
const T& only(const std::vector<T>& list, const char* what) {
  TORCH_CHECK(list.size() == 1, "hfcomm: ", list.size(), " ", what,
              "; a process has one in each call (the forms for several GPUs in one process are not supported)");
  return list.front();
}

}  // namespace hfcomm::torch_backend_detail
