// SPDX-License-Identifier: MIT
#pragma once

/// Finds the quickest ways of the operations on this machine, for hfcomm-env.

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <hfcomm/comm.hpp>
#include <hfcomm/engine/shared_memory/ways.hpp>
#include <hfcomm/group/tuning.hpp>
#include <hfcomm/machine/waiting.hpp>

namespace tuning_run {

struct settings {
  int ranks = 2;
  std::string file;  // empty: standard output
};

/// Reads the arguments [RANKS] [FILE]. Prints what is wrong and returns nullopt where they are something else.
inline std::optional<settings> parse(const std::vector<std::string>& words) {
  settings wanted{.ranks = std::max(2, hfcomm::detail::allowed_cores(0)), .file = ""};
  std::size_t next = 0;
  if (next < words.size()) {
    const std::string& word = words[next];
    int ranks = 0;
    const auto [end, problem] = std::from_chars(word.data(), word.data() + word.size(), ranks);
    if (problem == std::errc() && end == word.data() + word.size()) {
      if (ranks < 2 || ranks > 1024) {
        std::fprintf(stderr, "hfcomm-env: %d ranks cannot be tuned, only 2 to 1024\n", ranks);
        return std::nullopt;
      }
      wanted.ranks = ranks;
      ++next;
    }
  }
  if (next < words.size() && !words[next].starts_with("-")) {
    wanted.file = words[next++];
  }
  if (next != words.size()) {
    std::fprintf(stderr, "hfcomm-env: unexpected argument \"%s\"\n", words[next].c_str());
    return std::nullopt;
  }
  return wanted;
}

/// Does one operation until each of its ways has been tried.
inline void tune(const std::function<void()>& operation) {
  for (int call = 0; call < hfcomm::engines::most_tuning_calls; ++call) {
    operation();
  }
}

/// Tunes all operations. Every rank calls it.
inline void tune_all() {
  constexpr std::size_t most = std::size_t{16} << 20;
  const auto ranks = static_cast<std::size_t>(hfcomm::world_size());
  std::vector<float> in(most / sizeof(float), 1.0F);
  std::vector<float> out(most / sizeof(float), 1.0F);
  std::vector<hfcomm::bfloat16> narrow_in(most / sizeof(hfcomm::bfloat16), hfcomm::bfloat16(1.0F));
  std::vector<hfcomm::bfloat16> narrow_out = narrow_in;
  hfcomm::barrier();
  for (std::size_t bytes = 256; bytes <= most; bytes *= 2) {
    const std::size_t count = bytes / sizeof(float);
    const std::size_t part = count / ranks;
    const std::span<const float> all_in(in.data(), count);
    const std::span<float> all_out(out.data(), count);
    tune([&] { hfcomm::all_reduce(all_in, all_out); });
    tune([&] { hfcomm::reduce(all_in, all_out, 0); });
    tune([&] { hfcomm::broadcast(all_out); });
    const std::span<const hfcomm::bfloat16> narrow_all_in(narrow_in.data(), 2 * count);
    const std::span<hfcomm::bfloat16> narrow_all_out(narrow_out.data(), 2 * count);
    tune([&] { hfcomm::all_reduce(narrow_all_in, narrow_all_out); });
    tune([&] { hfcomm::reduce(narrow_all_in, narrow_all_out, 0); });
    if (part == 0) {
      continue;
    }
    const std::span<const float> part_in(in.data(), part);
    const std::span<float> part_out(out.data(), part);
    const std::span<const float> parts_in(in.data(), part * ranks);
    const std::span<float> parts_out(out.data(), part * ranks);
    tune([&] { hfcomm::all_gather(part_in, parts_out); });
    tune([&] { hfcomm::gather(part_in, parts_out); });
    tune([&] { hfcomm::scatter(parts_in, part_out); });
    tune([&] { hfcomm::all_to_all(parts_in, parts_out); });
    tune([&] { hfcomm::reduce_scatter(parts_in, part_out); });
    tune([&] { hfcomm::reduce_scatter(narrow_all_in.first(2 * part * ranks), narrow_all_out.first(2 * part)); });
  }
}

/// Returns whether a file can be written, and leaves it as it is. A wrong name is then noticed before the measurements.
inline bool is_writable(const std::string& file) {
  std::FILE* opened = std::fopen(file.c_str(), "r+b");
  const bool is_new = opened == nullptr && errno == ENOENT;
  if (is_new) {
    opened = std::fopen(file.c_str(), "wb");
  }
  if (opened == nullptr) {
    return false;
  }
  std::fclose(opened);
  if (is_new) {
    std::remove(file.c_str());
  }
  return true;
}

/// Returns the exit status.
inline int run(const settings& wanted) {
  if (!wanted.file.empty() && !is_writable(wanted.file)) {
    std::fprintf(stderr, "hfcomm-env: %s cannot be written: %s\n", wanted.file.c_str(), std::strerror(errno));
    return 1;
  }
  // Choices of a file are taken; the rest is measured thoroughly, too.
  const char* const given = std::getenv("HFCOMM_TUNING");
  const std::string table = given == nullptr ? "" : given;
  const bool is_file = !table.empty() && table != "off" && table != "thorough";
  if (table != "off") {
    ::setenv("HFCOMM_TUNING", "thorough", 1);
  }
  try {
    return hfcomm::launch(wanted.ranks, [&] {
      if (is_file) {
        hfcomm::load_tuning(table);
      }
      tune_all();
      if (hfcomm::is_main_process()) {
        if (wanted.file.empty()) {
          std::fputs(hfcomm::tuning_text().c_str(), stdout);
        } else {
          hfcomm::save_tuning(wanted.file);
        }
      }
    });
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "hfcomm-env: %s\n", problem.what());
    return 1;
  }
}

}  // namespace tuning_run
