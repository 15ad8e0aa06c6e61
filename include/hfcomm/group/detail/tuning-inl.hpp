// SPDX-License-Identifier: MIT
#pragma once

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/engine/shared_memory/ways.hpp>
#include <hfcomm/group/tuning.hpp>

namespace hfcomm {

HFCOMM_INLINE std::string tuning_text() { return engines::tuning_table::of_process().text(); }

HFCOMM_INLINE void save_tuning(const std::string& path) {
  std::ofstream file(path);
  file << tuning_text();
  file.close();
  if (!file) {
    detail::throw_error<engine_error>({"the tuning table cannot be written to ", path, ": ", std::strerror(errno)});
  }
}

HFCOMM_INLINE void load_tuning(const std::string& path) { engines::tuning_table::of_process().load(path); }

}  // namespace hfcomm
