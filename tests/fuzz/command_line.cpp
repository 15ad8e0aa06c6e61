// SPDX-License-Identifier: MIT
// Lines as the arguments of train_char_lm, which has more options than the other examples.
#include <string_view>
#include <vector>

#include "char_lm/options.hpp"
#include "targets.hpp"

namespace fuzz {

void parse_command_lines(bytes input) {
  std::vector<std::string_view> arguments;
  for (std::string_view text = as_text(input); !text.empty();) {
    arguments.push_back(take_line(text));
  }
  constexpr char_lm::program trainer{.name = "train_char_lm", .has_compare_single = true};
  char_lm::settings wanted;
  try {
    if (trainer.options(wanted).parse(arguments)) {
      wanted.check();
      require(wanted.processes >= 1 && wanted.steps >= 1, "there is something to do");
      require(wanted.batch >= wanted.accumulate && wanted.accumulate >= 1, "each pass has an example");
      require(wanted.learning_rate >= 0 && wanted.temperature >= 0, "what must not be negative is not");
      require(!wanted.text.empty(), "there is a text");
    }
  } catch (const examples::bad_option& problem) {
    require(!std::string_view(problem.what()).empty(), "a bad option is named");
  }
}

}  // namespace fuzz
