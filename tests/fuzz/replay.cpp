// SPDX-License-Identifier: MIT
// replay TARGET FOLDER: runs a target with every file of a folder. Prints each file's name before, so that the last one
// is at fault.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "targets.hpp"

int main(int count, char** arguments) {
  const fuzz::target* target = count == 3 ? fuzz::find_target(arguments[1]) : nullptr;
  if (target == nullptr) {
    std::fputs("usage: replay TARGET FOLDER\n", stderr);
    return 2;
  }
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(arguments[2])) {
    files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  for (const auto& path : files) {
    std::printf("%s\n", path.c_str());
    std::fflush(stdout);
    std::ifstream file(path, std::ios::binary);
    const std::string content(std::istreambuf_iterator<char>(file), {});
    target->run(std::as_bytes(std::span(content)));
  }
  return files.empty() ? 1 : 0;
}
