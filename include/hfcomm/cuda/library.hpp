// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstdlib>
#include <initializer_list>
#include <source_location>
#include <string>

#include <dlfcn.h>

#include <hfcomm/core/error.hpp>

namespace hfcomm::cuda {

/// A shared library that a program may run without: looked for when it is first needed. What the process has already
/// (linked, or loaded by somebody else, such as libtorch) comes before what the loader finds.
class library {
 public:
  /// `variable` may name a file to take instead. `known` is a function that tells whether the process has it already.
  library(const char* what, const char* variable, const char* known, std::initializer_list<const char*> names)
      : what_(what), variable_(variable) {
    if (const char* path = std::getenv(variable); path != nullptr && *path != '\0') {
      open(path);
      return;
    }
    if (::dlsym(RTLD_DEFAULT, known) != nullptr) {
      handle_ = RTLD_DEFAULT;
      found_ = true;
      return;
    }
    for (const char* name : names) {
      if (!found_) {
        open(name);
      }
    }
  }

  [[nodiscard]] bool found() const noexcept { return found_; }
  [[nodiscard]] void* symbol(const char* name) const noexcept { return found_ ? ::dlsym(handle_, name) : nullptr; }

  /// What was tried, and what the loader said.
  [[nodiscard]] std::string problem() const {
    return std::string(what_) + " is not in this process and cannot be loaded: " + searched_ + ". Set " + variable_ +
           " to its path, or LD_LIBRARY_PATH to its folder";
  }

  /// Fills one entry of a table. Throws engine_error where a function is missing that must be there.
  template <class Function>
  void fill(Function*& entry, const char* name, bool optional, const std::source_location& where) const {
    entry = reinterpret_cast<Function*>(symbol(name));
    if (entry == nullptr && !optional) {
      throw engine_error({-1, 0, what_, 0, where},
                         std::string(what_) + " has no function " + name + "; it is too old, or not what it should be");
    }
  }

 private:
  void open(const char* name) {
    // Never closed: other libraries, and threads of its own, may be inside until the process ends.
    handle_ = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    found_ = handle_ != nullptr;
    if (!found_) {
      const char* const text = ::dlerror();
      searched_ += (searched_.empty() ? "" : "; ") + std::string(text != nullptr ? text : name);
    }
  }

  const char* what_;
  const char* variable_;
  void* handle_ = nullptr;
  bool found_ = false;
  std::string searched_;
};

namespace detail {

/// The table in use; null before one was asked for.
template <class Api>
std::atomic<const Api*>& table_in_use() noexcept {
  static std::atomic<const Api*> table{nullptr};
  return table;
}

/// The table in use, which `load(where)` makes once where there is none. Any thread.
template <class Api>
const Api& table_of(Api (*load)(const std::source_location&), const std::source_location& where) {
  if (const auto* table = table_in_use<Api>().load(std::memory_order_acquire); table != nullptr) [[likely]] {
    return *table;
  }
  static const Api loaded = load(where);
  const Api* none = nullptr;
  table_in_use<Api>().compare_exchange_strong(none, &loaded);
  return *table_in_use<Api>().load(std::memory_order_acquire);
}

}  // namespace detail

}  // namespace hfcomm::cuda
