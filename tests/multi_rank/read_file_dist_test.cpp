// SPDX-License-Identifier: MIT
#include "ranks.hpp"

#include <filesystem>
#include <fstream>
#include <random>

#include <unistd.h>

namespace {

using namespace hfcomm;
using namespace multi_rank;

/// A file of its own that is gone afterwards.
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

TEST_CASE("read_file_dist: every rank gets the bytes, whatever they are") {
  for (const std::size_t size : each_of(1, 79, 80, 81, 262'144, 262'145, 1'000'003)) {
    std::string content = text_of(1, size);
    content[size / 2] = '\0';
    content.back() = '\n';
    const scratch_file file(content);
    at_every_size([&](const process_group&) { CHECK((read_file_dist(file.path()) == content)); });
  }
}

TEST_CASE("read_file_dist: an empty file") {
  const scratch_file file("");
  at_every_size([&](const process_group& world) {
    CHECK(read_file_dist(file.path()).empty());
    check_usable(world);
  });
}

TEST_CASE("read_file_dist: a file of several pieces") {
  std::string content((std::size_t{32} << 20) + 17, 'x');
  for (std::size_t i = 0; i < content.size(); i += 997) {
    content[i] = static_cast<char>('a' + i % 23);
  }
  const scratch_file file(content);
  run_noted(2, {}, [&](const process_group&) { CHECK((read_file_dist(file.path()) == content)); });
}

TEST_CASE("read_file_dist: only rank 0 needs to see the file") {
  const scratch_file file("only here");
  at_every_size([&](const process_group& world) {
    const std::filesystem::path elsewhere = "/does/not/exist";
    CHECK(read_file_dist(world.rank() == 0 ? file.path() : elsewhere) == "only here");
    // In a group that is turned around, the world's last rank is rank 0.
    const auto turned = world.split(0, -world.rank());
    CHECK(read_file_dist(turned.rank() == 0 ? file.path() : elsewhere, turned) == "only here");
  });
}

TEST_CASE("read_file_dist: no such file is an error on every rank, with the reason") {
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

TEST_CASE("read_file_dist: a directory is none") {
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

TEST_CASE("read_file_dist: without init it just reads") {
  const scratch_file file("alone");
  CHECK(read_file_dist(file.path()) == "alone");
  CHECK_CONTAINS(error_of<usage_error>([] { (void)read_file_dist("/does/not/exist"); }).what(), "No such file");
}

}  // namespace
