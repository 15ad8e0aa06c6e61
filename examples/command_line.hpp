// SPDX-License-Identifier: MIT
#pragma once

#include <charconv>
#include <concepts>
#include <cstdio>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

namespace examples {

/// An invalid argument of the user; the text says why.
struct bad_option : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

/// The options of an example: their names, their meanings, and the variables that get their values.
class command_line {
 public:
  /// `program` is its name; `required` are the arguments that it needs, for the usage: " --text FILE".
  explicit command_line(std::string program, std::string required = {})
      : program_(std::move(program)), required_(std::move(required)) {}

  /// An option with a number of at least `minimum`. `form` is its name and what follows it: "--steps N".
  template <class T>
    requires std::is_arithmetic_v<T> && (!std::same_as<T, bool>)
  void add(std::string form, std::string meaning, T& value, T minimum) {
    add(std::move(form), std::move(meaning),
        [&value, minimum](std::string_view name, std::string_view text) { value = number(name, text, minimum); });
  }
  /// An option with a text.
  void add(std::string form, std::string meaning, std::string& value) {
    add(std::move(form), std::move(meaning),
        [&value](std::string_view /*name*/, std::string_view text) { value = text; });
  }
  /// An option without a value, which sets `value`.
  void add(std::string form, std::string meaning, bool& value) {
    add(std::move(form), std::move(meaning),
        [&value](std::string_view /*name*/, std::string_view /*text*/) { value = true; });
  }

  [[nodiscard]] std::string usage() const {
    std::string text = "usage: " + program_ + required_ + " [options]\n";
    for (const auto& [form, meaning, take] : options_) {
      text.append("  ").append(form).append(form.size() < 20 ? 20 - form.size() : 1, ' ').append(meaning).append("\n");
    }
    return text + "  --help              this text\n";
  }

  /// Gives the variables their values. Returns false where the arguments ask for help. Throws bad_option.
  [[nodiscard]] bool parse(const std::vector<std::string_view>& arguments) const {
    for (std::size_t index = 0; index < arguments.size(); ++index) {
      const std::string_view name = arguments[index];
      if (name == "--help" || name == "-h") {
        return false;
      }
      const option& found = find(name);
      if (!found.takes_value()) {
        found.take(name, {});
      } else if (index + 1 < arguments.size()) {
        found.take(name, arguments[++index]);
      } else {
        throw bad_option(std::string(name) + " needs a value");
      }
    }
    return true;
  }

  /// Parses the arguments of `main` and returns what `work()` returns. Prints the usage, and returns 0 where that was
  /// asked for, 2 where an option is bad; prints the text of another exception and returns 1.
  template <class Work>
  [[nodiscard]] int run(int count, char** arguments, Work work) const {
    try {
      if (!parse({arguments + 1, arguments + count})) {
        std::fputs(usage().c_str(), stdout);
        return 0;
      }
      return work();
    } catch (const bad_option& problem) {
      std::fprintf(stderr, "%s: %s\n%s", program_.c_str(), problem.what(), usage().c_str());
      return 2;
    } catch (const std::exception& problem) {
      std::fprintf(stderr, "%s: %s\n", program_.c_str(), problem.what());
      return 1;
    }
  }

 private:
  using taker = std::function<void(std::string_view name, std::string_view text)>;

  struct option {
    std::string form;
    std::string meaning;
    taker take;

    [[nodiscard]] std::string_view name() const { return std::string_view(form).substr(0, form.find(' ')); }
    [[nodiscard]] bool takes_value() const { return form.find(' ') != std::string::npos; }
  };

  void add(std::string form, std::string meaning, taker take) {
    options_.push_back({std::move(form), std::move(meaning), std::move(take)});
  }

  [[nodiscard]] const option& find(std::string_view name) const {
    for (const option& known : options_) {
      if (known.name() == name) {
        return known;
      }
    }
    throw bad_option("unknown option: " + std::string(name));
  }

  template <class T>
  static T number(std::string_view name, std::string_view text, T minimum) {
    T value{};
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
    // Not "value < minimum", which is false for NaN.
    if (problem != std::errc() || end != text.data() + text.size() || !(value >= minimum)) {
      throw bad_option(std::string(name) + " wants a number of at least " + std::to_string(minimum) + ", not \"" +
                       std::string(text) + '"');
    }
    return value;
  }

  std::string program_;
  std::string required_;
  std::vector<option> options_;
};

}  // namespace examples
