// SPDX-License-Identifier: MIT
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "command_line.hpp"

namespace {

struct values {
  int processes = 2;
  double rate = 0.5;
  std::uint64_t seed = 7;
  std::string text;
  bool compare = false;

  [[nodiscard]] examples::command_line options() {
    examples::command_line line("program", " --text FILE");
    line.add("--processes N", "ranks", processes, 1);
    line.add("--rate X", "of learning", rate, 0.0);
    line.add("--seed N", "of the model", seed, std::uint64_t{0});
    line.add("--text FILE", "what to learn", text);
    line.add("--compare", "with one process", compare);
    return line;
  }
};

/// Returns the text of the bad_option that the arguments lead to; empty without one.
std::string problem_with(const std::vector<std::string_view>& arguments) {
  values ignored;
  try {
    static_cast<void>(ignored.options().parse(arguments));
  } catch (const examples::bad_option& problem) {
    return problem.what();
  }
  return {};
}

}  // namespace

TEST_CASE("command line: options set their variables, and the others keep their defaults") {
  values found;
  CHECK(found.options().parse({"--rate", "1e-3", "--compare", "--text", "--help", "--processes", "3"}));
  CHECK(found.processes == 3);
  CHECK(found.rate == 1e-3);
  CHECK(found.seed == 7);
  CHECK(found.text == "--help");
  CHECK(found.compare);
}

TEST_CASE("command line: help is asked for with --help or -h, and the usage names all options") {
  values found;
  CHECK_FALSE(found.options().parse({"--processes", "3", "--help"}));
  CHECK_FALSE(found.options().parse({"-h", "--nonsense"}));
  CHECK(found.options().usage() ==
        "usage: program --text FILE [options]\n"
        "  --processes N       ranks\n"
        "  --rate X            of learning\n"
        "  --seed N            of the model\n"
        "  --text FILE         what to learn\n"
        "  --compare           with one process\n"
        "  --help              this text\n");
}

TEST_CASE("command line: what is wrong is named") {
  CHECK(problem_with({"--nonsense"}) == "unknown option: --nonsense");
  CHECK(problem_with({"--processes=3"}) == "unknown option: --processes=3");
  CHECK(problem_with({"--compare", "--seed"}) == "--seed needs a value");
  const std::string range = "--processes wants a number of at least 1, not ";
  for (const std::string wrong : {"", "0", "-1", "two", "3x", " 3", "99999999999"}) {
    CHECK(problem_with({"--processes", wrong}) == range + '"' + wrong + '"');
  }
  CHECK(problem_with({"--rate", "nan"}) == "--rate wants a number of at least 0.000000, not \"nan\"");
  CHECK(problem_with({"--seed", "-1"}) == "--seed wants a number of at least 0, not \"-1\"");
}
