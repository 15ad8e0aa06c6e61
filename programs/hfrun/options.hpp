// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <fstream>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <unistd.h>

#include <hfcomm/group/detail/root_address.hpp>

namespace hfrun {

/// The command line is wrong.
class usage_error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A host that the user has named. Without `slots`, it gets a share of what the others leave.
struct named_host {
  std::string name;
  std::optional<int> slots{};
};

/// A host and the ranks that run there, which follow each other.
struct host_share {
  std::string name;
  int first_rank = 0;
  int ranks = 0;
};

struct options {
  int processes = 0;  ///< 0: the sum of the hosts' slots.
  std::vector<named_host> hosts;
  std::vector<std::string> remote_shell;  ///< Empty: ssh, and none for this host.
  bool prefix = true;
  std::vector<std::string> variables;  ///< NAME or NAME=VALUE, for all ranks.
  std::vector<std::string> command;
};

/// Returns a number from 1 to 1'000'000. Throws usage_error, with what it is for.
inline int parse_count(std::string_view text, const std::string& what) {
  int value = 0;
  const auto [stop, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || stop != text.data() + text.size() || value < 1 || value > 1'000'000) {
    throw usage_error(what + " \"" + std::string(text) + "\" is no number from 1 to 1000000");
  }
  return value;
}

/// Returns the host of "name", "name:4", "[v6]" or "[v6]:4".
inline named_host parse_host(std::string_view text) {
  named_host host;
  std::string_view slots;
  if (const auto bracket = text.find(']'); text.starts_with('[') && bracket != std::string_view::npos) {
    host.name = text.substr(1, bracket - 1);
    slots = text.substr(bracket + 1);
  } else {
    const auto colon = text.find(':');
    host.name = text.substr(0, colon);
    slots = colon == std::string_view::npos ? std::string_view() : text.substr(colon);
  }
  if (!slots.empty()) {
    if (!slots.starts_with(':')) {
      throw usage_error("\"" + std::string(text) + "\" is no host such as node7, node7:4 or [fd77::1]:4");
    }
    host.slots = parse_count(slots.substr(1), "the number of ranks of host " + host.name);
  }
  // A remote shell would take a dash for an option.
  if (host.name.empty() || host.name.starts_with('-') || host.name.find_first_of(" \t'\"") != std::string::npos) {
    throw usage_error("\"" + std::string(text) + "\" is no host such as node7, node7:4 or [fd77::1]:4");
  }
  return host;
}

/// Returns the hosts of a list between commas.
inline std::vector<named_host> parse_hosts(std::string_view list) {
  std::vector<named_host> hosts;
  while (true) {
    const auto comma = list.find(',');
    hosts.push_back(parse_host(list.substr(0, comma)));
    if (comma == std::string_view::npos) {
      return hosts;
    }
    list.remove_prefix(comma + 1);
  }
}

/// Returns the hosts of a file: one a line, "node7", "node7:4" or "node7 slots=4"; # begins a comment.
inline std::vector<named_host> read_hosts(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    throw usage_error("the host file " + path + " cannot be read");
  }
  std::vector<named_host> hosts;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string word;
    if (!(words >> word)) {
      continue;
    }
    hosts.push_back(parse_host(word));
    while (words >> word) {
      if (!word.starts_with("slots=")) {
        throw usage_error("\"" + word + "\" in " + path +
                          " is not understood; a line is a host, or a host and slots=4");
      }
      hosts.back().slots = parse_count(std::string_view(word).substr(6), "slots in " + path);
    }
  }
  if (hosts.empty()) {
    throw usage_error("the host file " + path + " names no host");
  }
  return hosts;
}

/// Returns the words between blanks.
inline std::vector<std::string> split_words(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) {
    words.push_back(word);
  }
  return words;
}

/// Returns which ranks run where: blocks in the order of the hosts. Hosts with slots are filled; the others share the
/// ranks that are left as evenly as possible, the first ones getting one more. Hosts without ranks are left out. Throws
/// usage_error where the hosts do not take the ranks, or where a host would get two blocks.
inline std::vector<host_share> share_ranks(int processes, const std::vector<named_host>& hosts) {
  int slots = 0;
  int open_hosts = 0;
  for (const auto& host : hosts) {
    slots += host.slots.value_or(0);
    open_hosts += host.slots ? 0 : 1;
  }
  if (processes == 0 && open_hosts > 0) {
    throw usage_error("-n is needed, because not all hosts have a number of ranks (node7:4)");
  }
  const int all = processes == 0 ? slots : processes;
  int left = all - slots;
  if (left > 0 && open_hosts == 0) {
    throw usage_error("the hosts have " + std::to_string(slots) + " slots for " + std::to_string(all) + " ranks");
  }
  std::vector<host_share> shares;
  int next = 0;
  for (const auto& host : hosts) {
    int ranks = host.slots.value_or(0);
    if (!host.slots) {
      ranks = left > 0 ? (left + open_hosts - 1) / open_hosts : 0;
      left -= ranks;
      --open_hosts;
    }
    ranks = std::min(ranks, all - next);
    const auto earlier =
        std::find_if(shares.begin(), shares.end(), [&](const host_share& share) { return share.name == host.name; });
    if (ranks > 0 && earlier == shares.end()) {
      shares.push_back({host.name, next, ranks});
    } else if (ranks > 0 && earlier == shares.end() - 1) {
      earlier->ranks += ranks;
    } else if (ranks > 0) {
      throw usage_error("host " + host.name + " is named again after other hosts, and would get two blocks of ranks, " +
                        "each with a local rank 0; name it once, with the number of all its ranks");
    }
    next += ranks;
  }
  return shares;
}

/// Throws usage_error where the ranks of several hosts would look for rank 0 by a name that leads each host to itself.
inline void check_root_name(const std::vector<host_share>& shares) {
  const std::string& root = shares.front().name;
  const std::string name = root.substr(root.find('@') + 1);
  if (shares.size() > 1 && hfcomm::detail::is_loopback_host(name)) {
    throw usage_error("the first host, " + root + ", runs rank 0, but " + shares.back().name +
                      " would find itself by that name; name this machine as the other hosts reach it, or set " +
                      "HFCOMM_ADDRESS to such a name or address");
  }
}

/// Returns whether that names the machine on which hfrun runs: "localhost", a loopback address, or the name that the
/// machine gives itself, also without its domain. "user@localhost" does not: a remote shell changes the user.
inline bool is_this_host(const std::string& name) {
  std::array<char, 256> own{};
  ::gethostname(own.data(), own.size() - 1);
  const std::string full = own.data();
  return hfcomm::detail::is_loopback_host(name) || name == full || name == full.substr(0, full.find('.'));
}

/// Returns the options of a command line; throws usage_error.
inline options parse(const std::vector<std::string>& arguments) {
  options result;
  std::size_t at = 0;
  const auto value_of = [&](const std::string& option) {
    if (++at >= arguments.size()) {
      throw usage_error(option + " needs a value");
    }
    return arguments[at];
  };
  for (; at < arguments.size() && arguments[at].starts_with('-'); ++at) {
    const std::string option = arguments[at];
    if (option == "--") {
      ++at;
      break;
    }
    if (option == "-n" || option == "-np") {
      result.processes = parse_count(value_of(option), option);
    } else if (option.starts_with("-n") && option.find_first_not_of("0123456789", 2) == std::string::npos) {
      result.processes = parse_count(option.substr(2), "-n");
    } else if (option == "-x") {
      result.variables.push_back(value_of(option));
    } else if (option == "-H" || option == "--hosts" || option == "--hostfile") {
      const std::string value = value_of(option);
      for (auto& host : option == "--hostfile" ? read_hosts(value) : parse_hosts(value)) {
        result.hosts.push_back(std::move(host));
      }
    } else if (option == "--rsh") {
      result.remote_shell = split_words(value_of(option));
      if (result.remote_shell.empty()) {
        throw usage_error("--rsh needs a program");
      }
    } else if (option == "--plain") {
      result.prefix = false;
    } else {
      throw usage_error("there is no option " + option);
    }
  }
  result.command.assign(arguments.begin() + static_cast<std::ptrdiff_t>(at), arguments.end());
  if (result.command.empty()) {
    throw usage_error("no program is named");
  }
  if (result.processes == 0 && result.hosts.empty()) {
    throw usage_error("-n is needed");
  }
  return result;
}

}  // namespace hfrun
