// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/std_algorithm.hpp>
#include <hfcomm/machine/text_file.hpp>

namespace hfcomm::rendezvous {

/// Neighbouring pages of one kind.
struct mapped_area {
  /// Describes why its pages cannot be replaced; empty: they can.
  [[nodiscard, gnu::cold]] std::string problem() const {
    if (permissions[3] != 'p') {
      return detail::concat({"it is shared memory already, by an earlier share or from allocate (", name, ")"});
    }
    if (const std::string_view all(permissions.data()); all != "rw-p") {
      return permissions[1] == 'w' ? detail::concat({"its permissions are ", all}) : "it is read-only";
    }
    if (is_of_file) {
      return detail::concat({"it is the mapping of a file, as arrays with initialisers are (", name, ")"});
    }
    return name == "[stack]" ? "it is on the stack" : "";
  }

  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  std::array<char, 5> permissions{};  // as in /proc/self/maps: "rw-p"
  bool is_of_file = false;
  std::string name{};
};

/// The memory of this process. The kernel is asked for one area at a time, if it can tell (Linux 6.11). Otherwise all
/// areas are read once, when the first one is asked for.
class memory_map {
 public:
  memory_map() = default;
  memory_map(const memory_map&) = delete;
  memory_map& operator=(const memory_map&) = delete;
  ~memory_map() {
    if (file_ >= 0) {
      ::close(file_);
    }
  }

  /// Describes why pages of this process cannot be replaced by others without a difference to the program; empty: they
  /// can. Pages of private memory that may be read and written can. `pages` begins and ends with a page.
  [[nodiscard, gnu::cold]] std::string replacement_problem(std::span<const std::byte> pages) {
    auto next = reinterpret_cast<std::uintptr_t>(pages.data());
    const std::uintptr_t end = next + pages.size();
    while (next < end) {
      const auto area = area_from(next);
      if (!area) {
        return is_readable_ ? "not all of it is mapped"
                            : "/proc/self/maps, which tells what memory it is, cannot be read";
      }
      if (area->begin > next) {
        return "not all of it is mapped";
      }
      if (std::string problem = area->problem(); !problem.empty()) {
        return problem;
      }
      next = area->end;
    }
    return {};
  }

  /// Reads all areas at once, as where the kernel cannot tell one. For tests.
  void read_all() {
    areas_.emplace();
    is_readable_ = text_file("/proc/self/maps").read_lines([this](const std::string& line) {
      areas_->push_back(parse(line));
      return true;
    }) == 0;
  }

 private:
  /// The question and the answer of the kernel, as in linux/fs.h, which may be older than the kernel.
  struct map_query {
    std::uint64_t size = sizeof(map_query);
    std::uint64_t flags = covering_or_next;
    std::uint64_t address = 0;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    std::uint64_t area_flags = 0;
    std::uint64_t page_bytes = 0;
    std::uint64_t offset = 0;
    std::uint64_t inode = 0;
    std::uint32_t major_device = 0;
    std::uint32_t minor_device = 0;
    std::uint32_t name_bytes = 0;
    std::uint32_t build_id_bytes = 0;
    std::uint64_t name_address = 0;
    std::uint64_t build_id_address = 0;
  };
  static constexpr std::uint64_t readable = 1;
  static constexpr std::uint64_t writable = 2;
  static constexpr std::uint64_t executable = 4;
  static constexpr std::uint64_t is_shared = 8;
  static constexpr std::uint64_t covering_or_next = 16;

  /// Returns the area with this address, or the first one behind it; nullopt where there is none.
  [[nodiscard]] std::optional<mapped_area> area_from(std::uintptr_t address) {
    if (!areas_) {
      if (auto area = ask_kernel(address)) {
        return area;
      }
      if (errno == ENOENT) {
        return std::nullopt;
      }
      read_all();
    }
    const auto found = std::partition_point(areas_->begin(), areas_->end(),
                                            [&](const mapped_area& one) { return one.end <= address; });
    return found == areas_->end() ? std::nullopt : std::optional(*found);
  }

  /// The same from the kernel; nullopt, with errno, also where it cannot tell.
  [[nodiscard]] std::optional<mapped_area> ask_kernel(std::uintptr_t address) {
    if (file_ < 0) {
      file_ = ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    }
    char name[256] = {};
    map_query query;
    query.address = address;
    query.name_address = reinterpret_cast<std::uintptr_t>(name);
    query.name_bytes = sizeof(name);
    // A name that is longer is no reason to fail: it is only for the error.
    while (::ioctl(file_, _IOWR('f', 17, map_query), &query) != 0) {
      if (errno != ENAMETOOLONG || query.name_bytes == 0) {
        return std::nullopt;
      }
      query.name_bytes = 0;
      query.name_address = 0;
    }
    const auto letter = [&](std::uint64_t flag, char one) { return (query.area_flags & flag) != 0 ? one : '-'; };
    return mapped_area{static_cast<std::uintptr_t>(query.begin),
                       static_cast<std::uintptr_t>(query.end),
                       {letter(readable, 'r'), letter(writable, 'w'), letter(executable, 'x'),
                        (query.area_flags & is_shared) != 0 ? 's' : 'p'},
                       query.inode != 0,
                       name};
  }

  /// Reads a line of /proc/self/maps.
  [[nodiscard]] static mapped_area parse(const std::string& line) {
    mapped_area area;
    unsigned long long inode = 0;
    int name = static_cast<int>(line.size());
    std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " %4s %*s %*s %llu %n", &area.begin, &area.end,
                area.permissions.data(), &inode, &name);
    area.is_of_file = inode != 0;
    area.name = line.substr(static_cast<std::size_t>(name));
    return area;
  }

  int file_ = -1;
  bool is_readable_ = true;
  std::optional<std::vector<mapped_area>> areas_;  // in the order of their addresses; nothing: the kernel is asked
};

}  // namespace hfcomm::rendezvous
