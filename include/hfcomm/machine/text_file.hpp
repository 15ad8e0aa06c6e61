// SPDX-License-Identifier: MIT
#pragma once

#include <cerrno>
#include <cstdio>
#include <string>

#include <hfcomm/core/function_ref.hpp>

namespace hfcomm::rendezvous {

/// A file that is read, and closed with this object. Without <fstream>, which every program would parse.
class text_file {
 public:
  explicit text_file(const std::string& path) : file_(std::fopen(path.c_str(), "re")) {}
  text_file(const text_file&) = delete;
  text_file& operator=(const text_file&) = delete;
  ~text_file() {
    if (file_ != nullptr) {
      std::fclose(file_);
    }
  }

  /// Calls `take` with each line, without its end, until it returns false. Returns 0, or errno of what failed: to open
  /// the file, or to read it, as where it is a folder.
  [[gnu::cold]] int read_lines(function_ref<bool(const std::string&)> take) {
    if (file_ == nullptr) {
      return errno;
    }
    std::string line;
    char piece[256];
    while (std::fgets(piece, sizeof(piece), file_) != nullptr) {
      line += piece;
      if (!line.ends_with('\n')) {
        continue;
      }
      line.pop_back();
      if (!take(line)) {
        return 0;
      }
      line.clear();
    }
    if (std::ferror(file_) != 0) {
      return errno;
    }
    if (!line.empty()) {
      take(line);
    }
    return 0;
  }

 private:
  std::FILE* file_;
};

}  // namespace hfcomm::rendezvous
