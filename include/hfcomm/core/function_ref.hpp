// SPDX-License-Identifier: MIT
#pragma once

#include <concepts>
#include <type_traits>
#include <utility>

namespace hfcomm::detail {

/// Refers to a function object for the time of a call, without owning it. Parameters of this type keep their
/// function's definition out of headers. The function object must outlive the reference.
template <class Signature>
class function_ref;

template <class Result, class... Args>
class function_ref<Result(Args...)> {
 public:
  template <class Function>
    requires(std::is_class_v<Function> && !std::same_as<Function, function_ref>)
  function_ref(const Function& function) noexcept
      : function_(&function), call_([](const void* target, Args... args) -> Result {
          return (*static_cast<const Function*>(target))(std::forward<Args>(args)...);
        }) {}

  Result operator()(Args... args) const { return call_(function_, std::forward<Args>(args)...); }

 private:
  const void* function_;
  Result (*call_)(const void* target, Args... args);
};

}  // namespace hfcomm::detail
