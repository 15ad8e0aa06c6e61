// SPDX-License-Identifier: MIT
#pragma once

#include <hfcomm/collectives/detail/dictionary.hpp>
#include <hfcomm/core/std_template.hpp>
#include <hfcomm/engine/reduction/kernel.hpp>

/// The kernels of the values in a dictionary.
namespace hfcomm::detail {

template <class T>
inline constexpr reduction_kernel kernel_of_single_leaf = &reduce_elements<element_of(leaf_kind_of<T>)>;

template <class Leaf>
struct leaf_kernels {
  static reduction_kernel of(leaf_kind /*kind*/) noexcept { return kernel_of_single_leaf<Leaf>; }
};
template <template <class...> class C, class... T>
  requires(std_template_name<C> == "variant")
struct leaf_kernels<C<T...>> {
  static reduction_kernel of(leaf_kind kind) noexcept {
    reduction_kernel found = nullptr;
    ((found = leaf_kind_of<T> == kind ? kernel_of_single_leaf<T> : found), ...);
    return found;
  }
};

/// Returns the kernel that reduces values of one kind. `Leaf` can hold a value of that kind.
template <class Leaf>
[[nodiscard]] reduction_kernel kernel_of_leaf(leaf_kind kind) noexcept {
  return leaf_kernels<Leaf>::of(kind);
}

}  // namespace hfcomm::detail
