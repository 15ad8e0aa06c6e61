// SPDX-License-Identifier: MIT
#pragma once

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <source_location>
#include <string>
#include <vector>

#include <hfcomm/call/typed_calls.hpp>
#include <hfcomm/torch/detail/tensor_elements.hpp>

/// Tensors as the memory of hfcomm's operations.
namespace hfcomm::torch_backend_detail {

using hfcomm::detail::const_elements;
using hfcomm::detail::elements;
using torch::detail::typed_call;

/// The call site of all operations: c10d does not tell it.
inline constexpr std::source_location unknown_call_site{};

/// Returns the tensor. Throws c10::Error unless its elements are in host memory.
inline const at::Tensor& require_host_memory(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.defined(), "hfcomm: the tensor is undefined");
  TORCH_CHECK(torch::detail::is_dense(tensor),
              "hfcomm: the tensor is sparse, quantized or nested; this operation is there for dense tensors");
  TORCH_CHECK(tensor.device().is_cpu(), "hfcomm: the tensor is on the device ", tensor.device().str(),
              "; this backend moves tensors in host memory (CPU) only");
  return tensor;
}

/// Throws c10::Error where results cannot be written into the tensor.
inline void require_writable(const at::Tensor& tensor) {
  const std::string problem = torch::detail::writing_problem(tensor);
  TORCH_CHECK(problem.empty(), "hfcomm: ", problem);
}

inline void require_writable(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& one : tensors) {
    require_writable(one);
  }
}

/// A tensor of a call.
class host_tensor : public torch::detail::tensor_memory {
 public:
  explicit host_tensor(const at::Tensor& tensor) : tensor_memory(require_host_memory(tensor)) {}

  [[nodiscard]] at::ScalarType type() const { return tensor().scalar_type(); }
  [[nodiscard]] std::size_t bytes() const { return tensor().nbytes(); }
  [[nodiscard]] hfcomm::detail::elements memory() const { return elements(); }
  void require_writable() const { torch_backend_detail::require_writable(tensor()); }
  /// Returns `count` rows of the first dimension, from row `first` on.
  [[nodiscard]] hfcomm::detail::elements rows(std::int64_t first, std::int64_t count) const {
    const std::int64_t row = tensor().size(0) == 0 ? 0 : tensor().numel() / tensor().size(0);
    const auto all = elements();
    return {all.data + static_cast<std::size_t>(first * row) * all.width, static_cast<std::size_t>(count * row),
            all.width};
  }
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
  void require_writable() const {
    for (const host_tensor& one : tensors_) {
      one.require_writable();
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

/// Throws c10::Error where two tensors of a call have different types.
inline void require_one_type(const host_tensor& in, const host_tensor& out) {
  TORCH_CHECK(in.type() == out.type(), "hfcomm: the output is of type ", out.type(), ", the input of ", in.type());
}

/// Returns the only element of a list. Throws c10::Error where there is another number.
template <class T>
const T& only(const std::vector<T>& list, const char* what) {
  TORCH_CHECK(list.size() == 1, "hfcomm: ", list.size(), " ", what,
              "; a process has one in each call (the forms for several GPUs in one process are not supported)");
  return list.front();
}

}  // namespace hfcomm::torch_backend_detail
