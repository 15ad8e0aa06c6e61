// SPDX-License-Identifier: MIT
#pragma once

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/engine/shared_memory/ways.hpp>
#include <hfcomm/group/tuning.hpp>

namespace hfcomm {

HFCOMM_INLINE std::string tuning_text() { return engines::tuning_table::of_process().text(); }

HFCOMM_INLINE void save_tuning(const std::string& path) {
  const std::string text = tuning_text();
  std::FILE* const file = std::fopen(path.c_str(), "we");
  const bool is_written = file != nullptr && std::fputs(text.c_str(), file) >= 0;
  if ((file != nullptr && std::fclose(file) != 0) || !is_written) {
    detail::throw_error<engine_error>({"the tuning table cannot be written to ", path, ": ", std::strerror(errno)});
  }
}

HFCOMM_INLINE void load_tuning(const std::string& path) { engines::tuning_table::of_process().load(path); }

}  // namespace hfcomm
