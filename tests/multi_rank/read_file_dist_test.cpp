// SPDX-License-Identifier: MIT
#include "ranks.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <span>

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <hfcomm/collectives/read_file_dist.hpp>

namespace {

using namespace hfcomm;
using namespace multi_rank;

/// A temporary file, removed by the destructor.
class scratch_file {
 public:
  explicit scratch_file(const std::string& content)
      : path_(std::filesystem::temp_directory_path() /
              ("hfcomm-read-file-" + std::to_string(::getpid()) + '-' + std::to_string(std::random_device()()))) {
    std::ofstream file(path_, std::ios::binary);
    file.write(content.data(), static_cast<std::streamsize>(content.size()));
  }
  scratch_file(const scratch_file&) = delete;
  scratch_file& operator=(const scratch_file&) = delete;
  ~scratch_file() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
};

/// A large sparse file in memory: reading its holes takes no memory.
class sparse_file {
 public:
  explicit sparse_file(std::uint64_t size) : fd_(::memfd_create("hfcomm-read-file", MFD_CLOEXEC)) {
    REQUIRE(fd_ >= 0);
    REQUIRE(::ftruncate(fd_, static_cast<::off_t>(size)) == 0);
  }
  sparse_file(const sparse_file&) = delete;
  sparse_file& operator=(const sparse_file&) = delete;
  ~sparse_file() { ::close(fd_); }
  void put(std::uint64_t place, char mark) const { REQUIRE(::pwrite(fd_, &mark, 1, static_cast<::off_t>(place)) == 1); }
  [[nodiscard]] std::filesystem::path path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

TEST_CASE("read_file_dist: every rank gets the bytes, whatever they are") {
  for (const std::size_t size : each_of(1, 79, 80, 81, 262'144, 262'145, 1'000'003)) {
    std::string content = text_of(1, size);
    content[size / 2] = '\0';
    content.back() = '\n';
    const scratch_file file(content);
    at_every_size([&](const process_group&) { CHECK((read_file_dist(file.path()) == content)); });
  }
}

TEST_CASE("read_file_dist: a file may be empty") {
  const scratch_file file("");
  at_every_size([&](const process_group& world) {
    CHECK(read_file_dist(file.path()).empty());
    check_usable(world);
  });
}

TEST_CASE("read_file_dist: a file may have several pieces") {
  std::string content((std::size_t{32} << 20) + 17, 'x');
  for (std::size_t i = 0; i < content.size(); i += 997) {
    content[i] = static_cast<char>('a' + i % 23);
  }
  const scratch_file file(content);
  run_noted(2, {}, [&](const process_group&) { CHECK((read_file_dist(file.path()) == content)); });
}

TEST_CASE("read_file_dist: only rank 0 needs access to the file") {
  const scratch_file file("only here");
  at_every_size([&](const process_group& world) {
    const std::filesystem::path elsewhere = "/does/not/exist";
    CHECK(read_file_dist(world.rank() == 0 ? file.path() : elsewhere) == "only here");
    // In a group that is turned around, the world's last rank is rank 0.
    const auto turned = world.split(0, -world.rank());
    CHECK(read_file_dist(turned.rank() == 0 ? file.path() : elsewhere, turned) == "only here");
  });
}

TEST_CASE("read_file_dist: a missing file is an error on every rank with the reason") {
  at_every_size([](const process_group& world) {
    const auto call = [] { (void)read_file_dist("/does/not/exist.txt"); };
    if (world.rank() == 0) {
      const auto problem = error_of<usage_error>(call);
      CHECK_CONTAINS(problem.what(), "/does/not/exist.txt");
      CHECK_CONTAINS(problem.what(), "No such file");
    } else {
      const auto problem = error_of<peer_error>(call);
      CHECK(problem.peer() == 0);
      CHECK_FALSE(problem.fatal());
      CHECK_CONTAINS(problem.what(), "/does/not/exist.txt");
      CHECK_CONTAINS(problem.what(), "No such file");
    }
    check_usable(world);
  });
}

TEST_CASE("read_file_dist: a directory is an error on every rank") {
  run_noted(2, {}, [](const process_group& world) {
    const auto call = [] { (void)read_file_dist("/"); };
    if (world.rank() == 0) {
      CHECK_CONTAINS(error_of<usage_error>(call).what(), "is a directory");
    } else {
      CHECK_CONTAINS(error_of<peer_error>(call).what(), "is a directory");
    }
    check_usable(world);
  });
}

TEST_CASE("read_file_dist: without init it reads the file") {
  const scratch_file file("alone");
  CHECK(read_file_dist(file.path()) == "alone");
  CHECK_CONTAINS(error_of<usage_error>([] { (void)read_file_dist("/does/not/exist"); }).what(), "No such file");
}

/// A sink that joins the pieces again.
class collector {
 public:
  void operator()(std::span<const std::byte> piece) {
    CHECK_FALSE(piece.empty());
    text_.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  }
  [[nodiscard]] const std::string& text() const noexcept { return text_; }

 private:
  std::string text_;
};

TEST_CASE("read_file_dist: a sink gets the bytes in order") {
  for (const std::size_t size : each_of(0, 1, 80, 262'145, (std::size_t{16} << 20) + 3)) {
    const std::string content = text_of(2, size);
    const scratch_file file(content);
    at_every_size([&](const process_group& world) {
      collector sink;
      CHECK(read_file_dist(file.path(), sink) == size);
      CHECK((sink.text() == content));
      check_usable(world);
    });
  }
}

TEST_CASE("read_file_dist: with the local group it reads once on each machine") {
  const scratch_file file("one for each machine");
  at_every_size([&](const process_group& world) {
    CHECK(read_file_dist(file.path(), local_group()) == "one for each machine");
    collector sink;
    CHECK(read_file_dist(file.path(), sink, local_group()) == 20);
    // As on two machines: each half has its own file, and its own rank 0.
    const scratch_file of_half("half " + std::to_string(world.rank() % 2));
    const auto half = world.split(world.rank() % 2);
    const std::filesystem::path elsewhere = "/does/not/exist";
    CHECK(read_file_dist(half.rank() == 0 ? of_half.path() : elsewhere, half) ==
          "half " + std::to_string(world.rank() % 2));
    check_usable(world);
  });
}

TEST_CASE("read_file_dist: a file may have more than 4 GiB") {
  constexpr std::uint64_t four_gib = std::uint64_t{4} << 30;
  constexpr std::uint64_t size = four_gib + 12'345;
  const sparse_file file(size);
  file.put(0, 'a');
  file.put(four_gib - 1, 'b');
  file.put(four_gib, 'c');
  file.put(size - 1, 'd');
  run_noted(2, {}, [&](const process_group& world) {
    std::uint64_t offset = 0;
    std::string found;
    const auto sink = [&](std::span<const std::byte> piece) {
      for (const std::uint64_t place :
           {std::uint64_t{0}, four_gib - 2, four_gib - 1, four_gib, four_gib + 1, size - 1}) {
        if (place >= offset && place < offset + piece.size()) {
          found += static_cast<char>(piece[static_cast<std::size_t>(place - offset)]);
        }
      }
      offset += piece.size();
    };
    CHECK(read_file_dist(file.path(), sink) == size);
    CHECK(offset == size);
    CHECK((found == std::string("a\0bc\0d", 6)));
    check_usable(world);
  });
}

TEST_CASE("read_file_dist: a sink that throws stops every rank") {
  const scratch_file file(text_of(0, (std::size_t{40} << 20)));
  at_every_size([&](const process_group& world) {
    for (int culprit = 0; culprit < world.size(); culprit += 3) {
      for (const std::uint64_t last : {std::uint64_t{0}, std::uint64_t{20} << 20, (std::uint64_t{40} << 20) - 1}) {
        std::uint64_t seen = 0;
        int calls_after = 0;
        bool thrown = false;
        const auto sink = [&](std::span<const std::byte> piece) {
          calls_after += thrown ? 1 : 0;
          seen += piece.size();
          if (world.rank() == culprit && seen > last) {
            thrown = true;
            throw std::domain_error("the disk is full");
          }
        };
        line_note note;
        const auto call = [&] { read_file_dist(file.path(), sink, note(world)); };
        if (world.rank() == culprit) {
          CHECK(error_of<std::domain_error>(call).what() == std::string("the disk is full"));
        } else {
          const auto problem = error_of<peer_error>(call);
          CHECK(problem.peer() == culprit);
          CHECK_FALSE(problem.fatal());
          CHECK_CONTAINS(problem.what(), "the disk is full");
          CHECK_CONTAINS(problem.what(), note.text());
        }
        CHECK(calls_after == 0);
        check_usable(world);
      }
    }
  });
}

TEST_CASE("read_file_dist: sinks that throw on several ranks each throw their own exception") {
  const scratch_file file("a few bytes");
  at_every_size([&](const process_group& world) {
    const auto sink = [&](std::span<const std::byte>) { throw std::domain_error(std::to_string(world.rank())); };
    const auto call = [&] { read_file_dist(file.path(), sink); };
    CHECK(error_of<std::domain_error>(call).what() == std::to_string(world.rank()));
    check_usable(world);
  });
}

TEST_CASE("read_file_dist: a file that cannot be opened or read never reaches a sink") {
  at_every_size([](const process_group& world) {
    for (const char* path : {"/does/not/exist.txt", "/"}) {
      const auto call = [&] { read_file_dist(path, [](std::span<const std::byte>) { CHECK(false); }); };
      if (world.rank() == 0) {
        CHECK_CONTAINS(error_of<usage_error>(call).what(), path);
      } else {
        CHECK_CONTAINS(error_of<peer_error>(call).what(), path);
      }
      check_usable(world);
    }
  });
}

TEST_CASE("read_file_dist: a file that shrinks or grows meanwhile is the same on every rank") {
  for (const std::size_t change : each_of(0, 1'000'000, std::size_t{33} << 20)) {
    for (const int ranks : {1, 2, 3}) {
      const scratch_file file(text_of(1, std::size_t{32} << 20));
      run_noted(ranks, {}, [&](const process_group& world) {
        std::uint64_t seen = 0;
        const auto sink = [&](std::span<const std::byte> piece) {
          if (world.rank() == 0 && seen == 0) {
            std::filesystem::resize_file(file.path(), change);
          }
          seen += piece.size();
        };
        const std::uint64_t size = read_file_dist(file.path(), sink);
        CHECK(seen == size);
        CHECK(size == std::max(change, std::size_t{16} << 20));  // the first piece was read before
        check_same_everywhere(size, world);
      });
    }
  }
}

TEST_CASE("read_file_dist: a file without a size is read to its end") {
  at_every_size([](const process_group& world) {
    const std::string text = read_file_dist("/proc/self/limits");
    CHECK_CONTAINS(text, "Max open files");
    check_same_everywhere(text, world);
  });
}

TEST_CASE("read_file_dist: too little memory for the contents is an error on every rank") {
  if (under_address_sanitizer || under_thread_sanitizer) {
    std::puts(
        "[hfcomm] skipped: read_file_dist: too little memory for the contents: sanitizers need the address space");
    return;
  }
  const sparse_file file(std::uint64_t{3} << 29);
  const ::pid_t child = ::fork();
  if (child == 0) {
    // Each rank has room for a part of the file only.
    std::uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const std::uint64_t bytes = pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)) + (std::uint64_t{1} << 30);
    const ::rlimit room{bytes, bytes};
    std::atomic<int> told{0};
    if (::setrlimit(RLIMIT_AS, &room) == 0) {
      run_ranks(2, [&](const process_group&) {
        try {
          (void)read_file_dist(file.path());
        } catch (const usage_error& problem) {
          told += contains(problem.what(), "no memory for the contents of") ? 1 : 0;
        } catch (const peer_error& problem) {
          told += contains(problem.what(), "no memory for the contents of") ? 1 : 0;
        }
        told += all_reduce(1) == 2 ? 10 : 0;
      });
    }
    ::_exit(told);
  }
  REQUIRE(child > 0);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 22);
}

}  // namespace
