// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string_view>

/// Functions for libFuzzer: each gets bytes that nobody has checked, and aborts or throws where hfcomm handles them
/// wrongly.
namespace fuzz {

using bytes = std::span<const std::byte>;

void decode_objects(bytes input);
void decode_dictionaries(bytes input);
void detect_launchers(bytes input);
void read_rendezvous_packets(bytes input);
void parse_command_lines(bytes input);
void read_addresses(bytes input);
void read_side_channel(bytes input);

struct target {
  std::string_view name;
  void (*run)(bytes input);
};

/// The targets. Each has a folder of its name in corpus/.
inline constexpr target targets[] = {
    {"objects", decode_objects},           {"dictionaries", decode_dictionaries},
    {"environment", detect_launchers},     {"rendezvous", read_rendezvous_packets},
    {"command_line", parse_command_lines}, {"addresses", read_addresses},
    {"side_channel", read_side_channel},
};

/// Returns the target of that name, or null.
[[nodiscard]] inline const target* find_target(std::string_view name) {
  for (const target& known : targets) {
    if (known.name == name) {
      return &known;
    }
  }
  return nullptr;
}

/// Aborts unless the claim holds.
inline void require(bool holds, const char* claim) {
  if (!holds) {
    std::fprintf(stderr, "false: %s\n", claim);
    std::abort();
  }
}

/// Removes the first byte and returns its remainder; 0 where there is none. Chooses among several things.
[[nodiscard]] inline std::size_t choose(bytes& input, std::size_t among) {
  if (input.empty()) {
    return 0;
  }
  const auto chosen = static_cast<std::size_t>(input.front()) % among;
  input = input.subspan(1);
  return chosen;
}

[[nodiscard]] inline std::string_view as_text(bytes input) {
  return {reinterpret_cast<const char*>(input.data()), input.size()};
}

/// Removes the first line, without its end, and returns it.
[[nodiscard]] inline std::string_view take_line(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(line.size() < text.size() ? line.size() + 1 : line.size());
  return line;
}

}  // namespace fuzz
