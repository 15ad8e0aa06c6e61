// SPDX-License-Identifier: MIT
// Lines of NAME=VALUE as the environment that a launcher has set.
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include <hfcomm/core/error.hpp>
#include <hfcomm/group/environment.hpp>

#include "targets.hpp"

namespace fuzz {

void detect_launchers(bytes input) {
  std::map<std::string, std::string> variables;
  for (std::string_view text = as_text(input); !text.empty();) {
    const std::string_view line = take_line(text);
    const auto name = line.substr(0, line.find('='));
    variables[std::string(name)] = line.substr(std::min(name.size() + 1, line.size()));
  }
  const auto read = [&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional<std::string>(found->second);
  };
  try {
    const auto found = hfcomm::detect_environment(read);
    require(found.rank >= 0 && found.rank < found.world_size, "the rank is in the job");
    require(found.local_rank >= 0 && found.local_rank < found.local_size, "the local rank is on the machine");
    require(found.local_size <= found.world_size, "a machine has no more ranks than the job");
    require((found.world_size == 1) == found.rendezvous.empty(), "several ranks have a place to meet");
    require(!found.source.empty(), "the launcher has a name");
    require(found.node_count == -1 || (found.node_count >= 1 && found.node_rank < found.node_count),
            "the machine is one of the machines");
    require(found.epoch >= 0, "the epoch is a count");
    const bool has_address = found.lookup == hfcomm::root_lookup::address;
    require(has_address != found.root_host.empty() && has_address != found.root_ports.empty(),
            "an address has a host and ports");
    require(found.world_size > 1 || found.is_one_machine(), "a job of one is on one machine");
    for (const char c : found.root_host) {
      require(found.source == "torchrun" || (static_cast<unsigned char>(c) > ' ' && c != ','),
              "a host has a host's letters");
    }
  } catch (const hfcomm::usage_error& problem) {
    require(!problem.detail().empty(), "a usage_error has a text");
  }
}

}  // namespace fuzz
