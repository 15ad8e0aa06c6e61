// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstdlib>
#include <initializer_list>
#include <source_location>
#include <string>

#include <dlfcn.h>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/error.hpp>

namespace hfcomm::detail {

/// A shared library that a program may run without, and that is loaded when it is first needed. A library that the
/// process has already (linked, or loaded by libtorch, for example) comes before one that the loader finds.
class library {
 public:
  /// Loads one of `names`. The environment variable `variable` may name another file. The process has the library
  /// already where it has its function `known_function`. RTLD_GLOBAL is for a library whose plugins need its functions.
  library(const char* what, const char* variable, const char* known_function, std::initializer_list<const char*> names,
          int visibility = RTLD_LOCAL)
      : what_(what), variable_(variable), visibility_(visibility) {
    if (const char* path = std::getenv(variable); path != nullptr && *path != '\0') {
      open(path);
      return;
    }
    if (::dlsym(RTLD_DEFAULT, known_function) != nullptr) {
      handle_ = RTLD_DEFAULT;
      is_found_ = true;
      return;
    }
    for (const char* name : names) {
      if (!is_found_) {
        open(name);
      }
    }
  }

  [[nodiscard]] bool is_found() const noexcept { return is_found_; }
  [[nodiscard]] void* symbol(const char* name) const noexcept { return is_found_ ? ::dlsym(handle_, name) : nullptr; }

  /// Describes what was tried, with the loader's errors.
  [[nodiscard]] std::string problem() const {
    return concat({what_, " is not in this process and cannot be loaded: ", searched_, ". Set ", variable_,
                   " to its path, or LD_LIBRARY_PATH to its folder"});
  }

  /// Sets one entry of a table of functions. Throws engine_error where a function is missing that is not optional.
  template <class Function>
  void fill(Function*& entry, const char* name, bool optional, const std::source_location& where) const {
    entry = reinterpret_cast<Function*>(symbol(name));
    if (entry == nullptr && !optional) {
      throw_error<engine_error>({-1, 0, what_, 0, where},
                                {what_, " has no function ", name, "; it is too old, or not what it should be"});
    }
  }

 private:
  void open(const char* name) {
    // Never closed, because other libraries, and the library's own threads, may use it until the process ends.
    handle_ = ::dlopen(name, RTLD_NOW | visibility_);
    is_found_ = handle_ != nullptr;
    if (!is_found_) {
      const char* const text = ::dlerror();
      append(searched_, {searched_.empty() ? "" : "; ", text != nullptr ? text : name});
    }
  }

  const char* what_;
  const char* variable_;
  int visibility_;
  void* handle_ = nullptr;
  bool is_found_ = false;
  std::string searched_;
};

/// Returns the table in use; null before the first use.
template <class Api>
std::atomic<const Api*>& table_in_use() noexcept {
  static std::atomic<const Api*> table{nullptr};
  return table;
}

/// Returns the table in use. Where there is none, `load(where)` makes it, once. Any thread may call.
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

}  // namespace hfcomm::detail
