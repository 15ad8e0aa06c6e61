// SPDX-License-Identifier: MIT
#pragma once

#include <concepts>
#include <string>
#include <string_view>
#include <utility>

namespace hfcomm {

/// The path of a file, made from text or from a std::filesystem::path. Programs that do not use <filesystem> need not
/// include it.
class file_path {
 public:
  file_path(const char* path) : text_(path) {}
  file_path(std::string_view path) : text_(path) {}
  file_path(std::string path) noexcept : text_(std::move(path)) {}
  template <class Path>
    requires requires(const Path& path) {
      { path.native() } -> std::same_as<const std::string&>;
    }
  file_path(const Path& path) : text_(path.native()) {}

  [[nodiscard]] const std::string& string() const noexcept { return text_; }
  [[nodiscard]] const char* c_str() const noexcept { return text_.c_str(); }

 private:
  std::string text_;
};

}  // namespace hfcomm
