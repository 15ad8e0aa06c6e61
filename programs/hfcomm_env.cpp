// SPDX-License-Identifier: MIT
// hfcomm-env [--json]: prints how hfcomm::init() sees this process's place in its job, and why.
// hfcomm-env --tuning [RANKS] [FILE]: finds the quickest ways of the operations on this machine, and prints them.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <unistd.h>

#include <hfcomm/comm.hpp>
#include <hfcomm/group/detail/root_exchange.hpp>
#include <hfcomm/machine/network_interfaces.hpp>
#include <hfcomm/machine/tcp_socket.hpp>
#include <hfcomm/rendezvous/credentials.hpp>

#include "tuning_run.hpp"

namespace {

using hfcomm::root_lookup;
using hfcomm::rendezvous::interface_address;
using hfcomm::rendezvous::tcp_address;

constexpr const char* usage = R"(usage: hfcomm-env [--json]
       hfcomm-env --tuning [RANKS] [FILE]

Prints the launcher that hfcomm::init() would find in this process's environment: its variables, the rank and the
sizes, the machine of rank 0 with the ports that it may use, and this machine's network addresses. Start it by the
launcher in question, in place of the program:  srun -N2 -n4 hfcomm-env

  --json   prints one JSON object
  --help   prints this

With --tuning: lets RANKS processes of this machine (2 to 1024; as many as there are cores) do each operation with
buffers of up to 16 MiB in all until they have found the quickest ways, and prints those, or writes them to FILE, whose
name begins with no "-". A job takes them from there: HFCOMM_TUNING=FILE. What HFCOMM_TUNING names already is not
measured again.

The status is 0 where init() may succeed, 1 where there are problems, 2 for wrong arguments.
A secret is checked on one machine, too, where init() needs none.
)";

/// Findings, for both forms of the output.
struct findings {
  std::string host;
  std::vector<std::pair<std::string, std::string>> variables;
  std::optional<hfcomm::launch_environment> job;
  std::vector<interface_address> addresses;
  std::vector<interface_address> usable;
  std::string secret;  // where it comes from, never itself
  std::vector<std::string> problems;
};

std::string variable(const char* name) { return hfcomm::read_process_environment(name).value_or(""); }

const char* name_of(root_lookup lookup) {
  switch (lookup) {
    case root_lookup::none: return "none";
    case root_lookup::address: return "address";
    case root_lookup::file: return "file";
    case root_lookup::pmi: return "PMI-1";
    case root_lookup::pmix: return "PMIx";
  }
  return "";
}

/// Finds the secret of the job as init() does. Of the variables that are looked at, the last one that has a value is
/// the one that counts.
void find_secret(findings& found) {
  std::string counts;
  const auto read = [&](const char* name) {
    auto value = hfcomm::read_process_environment(name);
    counts = value.value_or("").empty() ? counts : name;
    return value;
  };
  found.secret = "none";
  try {
    auto credentials = hfcomm::rendezvous::find_credentials("", read);
    if (credentials && credentials->has_secret()) {
      found.secret = counts;
    } else if (credentials) {
      found.secret = "none, as HFCOMM_AUTH=none says: nothing is proven or encrypted between machines";
      const bool has_secret = !variable("HFCOMM_SECRET_FILE").empty() || !variable("HFCOMM_SECRET").empty();
      found.secret += has_secret ? ", although a secret is set" : "";
    } else if (found.job && !found.job->is_one_machine()) {
      static_cast<void>(hfcomm::rendezvous::require_credentials(std::move(credentials)));
    }
  } catch (const hfcomm::error& problem) {
    found.secret = counts.empty() ? "none" : counts + ", which cannot be used";
    found.problems.push_back(problem.detail());
  }
}

void check_root(findings& found) {
  const auto& job = *found.job;
  if (job.is_one_machine()) {
    return;
  }
  if (job.lookup == root_lookup::none) {
    found.problems.push_back(
        "nothing tells where rank 0 is: set HFCOMM_ADDRESS in each process to a host name or "
        "address of its machine that the others reach");
  }
  if (job.lookup != root_lookup::address) {
    return;
  }
  const auto root = hfcomm::rendezvous::resolve(job.root_host, job.root_ports.front());
  const auto is_loopback = [](const tcp_address& address) { return address.is_loopback(); };
  if (root.addresses.empty()) {
    found.problems.push_back("this machine does not know the host \"" + job.root_host + "\" of rank 0 (" +
                             root.problem + "): set HFCOMM_ADDRESS to an address that it does");
  } else if (std::all_of(root.addresses.begin(), root.addresses.end(), is_loopback) && job.local_rank != job.rank) {
    found.problems.push_back("the host \"" + job.root_host + "\" of rank 0 is " + root.addresses.front().text() +
                             " here, which only this machine reaches: set HFCOMM_ADDRESS to another of its addresses");
  }
}

findings find() {
  findings found;
  std::string host(256, '\0');
  found.host = ::gethostname(host.data(), host.size() - 1) == 0 ? host.c_str() : "";
  found.variables =
      hfcomm::detail::found_variables([](const char* name) { return hfcomm::read_process_environment(name); });
  try {
    found.job = hfcomm::detect_environment();
  } catch (const hfcomm::usage_error& problem) {
    found.problems.push_back(problem.detail());
  }
  try {
    found.addresses = hfcomm::rendezvous::network_addresses();
  } catch (const hfcomm::engine_error& problem) {
    found.problems.push_back(problem.detail());
  }
  const std::string chosen = variable("HFCOMM_INTERFACE");
  found.usable = hfcomm::rendezvous::reachable_addresses(found.addresses, chosen);
  if (found.usable.empty() && !chosen.empty()) {
    found.problems.push_back("HFCOMM_INTERFACE=\"" + chosen +
                             "\" is no interface or address of this machine that is up");
  } else if (found.usable.empty() && found.job && !found.job->is_one_machine()) {
    found.problems.push_back("no network interface of this machine but loopback is up");
  }
  find_secret(found);
  if (found.job) {
    check_root(found);
  }
  return found;
}

bool is_used(const findings& found, const interface_address& one) {
  return std::any_of(found.usable.begin(), found.usable.end(),
                     [&](const interface_address& used) { return used.address == one.address; });
}

std::string ports_text(const hfcomm::launch_environment& job) {
  std::string text;
  for (const auto port : job.root_ports) {
    text += (text.empty() ? "" : ", ") + std::to_string(port);
  }
  return text;
}

std::string root_text(const hfcomm::launch_environment& job) {
  if (job.is_one_machine()) {
    return "not needed, all ranks are on this machine";
  }
  switch (job.lookup) {
    case root_lookup::address:
      return job.root_host + (job.root_ports.size() == 1 ? ", port " : ", the first free port of ") + ports_text(job);
    case root_lookup::pmi: return "the launcher's PMI-1 server tells (PMI_FD)";
    case root_lookup::pmix: return "the launcher's PMIx server tells (PMIX_NAMESPACE)";
    default: return "unknown";
  }
}

void print_text(const findings& found) {
  std::printf("host        %s\n", found.host.c_str());
  if (found.job) {
    const auto& job = *found.job;
    std::printf("launcher    %s\n", job.source == "none" ? "none: a job of one process" : job.source.c_str());
    std::printf("rank        %d of %d\n", job.rank, job.world_size);
    std::printf("local rank  %d of %d%s\n", job.local_rank, job.local_size,
                job.has_local_size || job.world_size == 1 ? "" : " (a guess: nothing tells the number)");
    if (job.node_rank >= 0 || job.node_count >= 0) {
      std::printf("machine     %s of %s\n", job.node_rank >= 0 ? std::to_string(job.node_rank).c_str() : "?",
                  job.node_count >= 0 ? std::to_string(job.node_count).c_str() : "?");
    }
    if (job.world_size > 1) {
      std::printf("job         %s\nrestarts    %d\nroot        %s\n", job.rendezvous.c_str(), job.epoch,
                  root_text(job).c_str());
    }
  }
  std::printf("secret      %s\n", found.secret.c_str());
  std::printf("addresses   (* used between machines)\n");
  for (const auto& one : found.addresses) {
    std::printf("  %c %s  %s%s\n", is_used(found, one) ? '*' : ' ', one.interface.c_str(), one.address.c_str(),
                one.is_up ? "" : "  down");
  }
  std::printf("variables\n");
  for (const auto& [name, value] : found.variables) {
    std::printf("    %s=%s\n", name.c_str(), value.c_str());
  }
  for (const auto& problem : found.problems) {
    std::printf("problem     %s\n", problem.c_str());
  }
}

/// Returns a text as JSON; bytes that are no ASCII become "?".
std::string quoted(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      result += '\\';
    }
    result += byte < 0x20 || byte >= 0x7f ? '?' : c;
  }
  return result + '"';
}

/// Returns the items between brackets, each as `text` writes it.
template <class Items, class Text>
std::string list_of(const Items& items, char open, char close, const Text& text) {
  std::string result(1, open);
  for (const auto& item : items) {
    result += (result.size() > 1 ? ", " : "") + text(item);
  }
  return result + close;
}

void print_json(const findings& found) {
  const auto text_of = [](const std::string& text) { return quoted(text); };
  std::printf("{\"host\": %s, ", quoted(found.host).c_str());
  if (found.job) {
    const auto& job = *found.job;
    std::printf("\"launcher\": %s, \"rank\": %d, \"world_size\": %d, \"local_rank\": %d, \"local_size\": %d, ",
                quoted(job.source).c_str(), job.rank, job.world_size, job.local_rank, job.local_size);
    std::printf("\"has_local_size\": %s, \"is_one_machine\": %s, \"node_rank\": %d, \"node_count\": %d, ",
                job.has_local_size ? "true" : "false", job.is_one_machine() ? "true" : "false", job.node_rank,
                job.node_count);
    std::printf("\"job\": %s, \"epoch\": %d, \"root_lookup\": \"%s\", \"root_host\": %s, \"root_ports\": [%s], ",
                quoted(job.rendezvous).c_str(), job.epoch, name_of(job.lookup), quoted(job.root_host).c_str(),
                ports_text(job).c_str());
  }
  const auto address = [&](const interface_address& one) {
    return "{\"interface\": " + quoted(one.interface) + ", \"address\": " + quoted(one.address) +
           ", \"up\": " + (one.is_up ? "true" : "false") + ", \"used\": " + (is_used(found, one) ? "true" : "false") +
           '}';
  };
  const auto assignment = [](const auto& one) { return quoted(one.first) + ": " + quoted(one.second); };
  std::printf("\"secret\": %s, \"addresses\": %s, \"variables\": %s, \"problems\": %s}\n", quoted(found.secret).c_str(),
              list_of(found.addresses, '[', ']', address).c_str(),
              list_of(found.variables, '{', '}', assignment).c_str(),
              list_of(found.problems, '[', ']', text_of).c_str());
}

}  // namespace

int main(int count, char** arguments) {
  const std::string_view option = count > 1 ? arguments[1] : "";
  if (option == "--tuning") {
    const auto wanted = tuning_run::parse({arguments + 2, arguments + count});
    if (!wanted) {
      std::fputs(usage, stderr);
      return 2;
    }
    return tuning_run::run(*wanted);
  }
  if (option == "--help") {
    std::fputs(usage, stdout);
    return 0;
  }
  if (count > 2 || (count == 2 && option != "--json")) {
    std::fputs(usage, stderr);
    return 2;
  }
  try {
    const findings found = find();
    count == 2 ? print_json(found) : print_text(found);
    return found.problems.empty() ? 0 : 1;
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "hfcomm-env: %s\n", problem.what());
    return 1;
  }
}
