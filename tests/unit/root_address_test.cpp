// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include <hfcomm/core/error.hpp>
#include <hfcomm/core/options.hpp>
#include <hfcomm/group/detail/connect_by.hpp>
#include <hfcomm/group/detail/root_address.hpp>
#include <hfcomm/group/environment.hpp>

namespace {

using hfcomm::root_lookup;
using hfcomm::detail::candidate_ports;
using hfcomm::detail::first_host;
using hfcomm::detail::parse_host_and_port;
using variables = std::map<std::string, std::string>;

hfcomm::launch_environment detect(const variables& set) {
  const auto read = [&set](const char* name) {
    const auto found = set.find(name);
    return found == set.end() ? std::nullopt : std::optional<std::string>(found->second);
  };
  return hfcomm::detect_environment(read);
}

std::string complaint(const variables& set) {
  try {
    static_cast<void>(detect(set));
  } catch (const hfcomm::usage_error& problem) {
    return problem.detail();
  }
  return {};
}

variables with(variables set, const variables& more) {
  for (const auto& [name, value] : more) {
    set[name] = value;
  }
  return set;
}

variables without(variables set, const std::string& name) {
  set.erase(name);
  return set;
}

// What launchers set on two machines, mlt0 and mlt1. The sets of Open MPI and MPICH were recorded there, without what
// is of no use here; the others are put together from the launchers' documentation and their users' notes.

/// hfrun, and scripts like it.
const variables own = {{"HFCOMM_RANK", "3"},       {"HFCOMM_WORLD_SIZE", "4"}, {"HFCOMM_LOCAL_RANK", "1"},
                       {"HFCOMM_LOCAL_SIZE", "2"}, {"HFCOMM_JOB", "j"},        {"HFCOMM_ADDRESS", "mlt0.lan"}};

/// torchrun --nnodes 2 --nproc_per_node 2 --node_rank 1 --master_addr 10.77.0.1 --master_port 29600 (torch 1.13)
const variables torchrun_static = {{"RANK", "2"},
                                   {"WORLD_SIZE", "4"},
                                   {"LOCAL_RANK", "0"},
                                   {"LOCAL_WORLD_SIZE", "2"},
                                   {"GROUP_RANK", "1"},
                                   {"GROUP_WORLD_SIZE", "2"},
                                   {"ROLE_RANK", "2"},
                                   {"ROLE_WORLD_SIZE", "4"},
                                   {"ROLE_NAME", "default"},
                                   {"MASTER_ADDR", "10.77.0.1"},
                                   {"MASTER_PORT", "29600"},
                                   {"TORCHELASTIC_RESTART_COUNT", "0"},
                                   {"TORCHELASTIC_MAX_RESTARTS", "0"},
                                   {"TORCHELASTIC_RUN_ID", "none"},
                                   {"TORCHELASTIC_USE_AGENT_STORE", "True"}};

/// torchrun --rdzv_backend c10d --rdzv_id job7, after one restart
const variables torchrun_c10d = with(torchrun_static, {{"MASTER_ADDR", "mlt0"},
                                                       {"MASTER_PORT", "41873"},
                                                       {"TORCHELASTIC_RESTART_COUNT", "1"},
                                                       {"TORCHELASTIC_RUN_ID", "job7"},
                                                       {"TORCHELASTIC_USE_AGENT_STORE", "False"}});

/// srun -N2 -n3 (Slurm 22.05)
const variables srun = {{"SLURM_PROCID", "2"},
                        {"SLURM_LOCALID", "0"},
                        {"SLURM_NODEID", "1"},
                        {"SLURM_NTASKS", "3"},
                        {"SLURM_NNODES", "2"},
                        {"SLURM_NPROCS", "3"},
                        {"SLURM_JOB_ID", "12"},
                        {"SLURM_STEP_ID", "0"},
                        {"SLURM_STEPID", "0"},
                        {"SLURM_STEP_NODELIST", "mlt[0-1]"},
                        {"SLURM_STEP_NUM_NODES", "2"},
                        {"SLURM_STEP_NUM_TASKS", "3"},
                        {"SLURM_STEP_TASKS_PER_NODE", "2,1"},
                        {"SLURM_SRUN_COMM_HOST", "10.77.0.9"},
                        {"SLURM_LAUNCH_NODE_IPADDR", "10.77.0.9"},
                        {"SLURMD_NODENAME", "mlt1"}};

/// srun --mpi=pmi2: these come on top.
const variables srun_pmi2 = with(srun, {{"PMI_FD", "12"}, {"PMI_JOBID", "12.0"}, {"PMI_RANK", "2"}, {"PMI_SIZE", "3"}});

/// A shell of `sbatch`, outside of srun.
const variables sbatch = {
    {"SLURM_PROCID", "0"},  {"SLURM_LOCALID", "0"}, {"SLURM_NODEID", "0"},   {"SLURM_NTASKS", "3"},
    {"SLURM_JOB_ID", "12"}, {"SLURM_NNODES", "2"},  {"SLURM_TASK_PID", "9"}, {"SLURM_JOB_NODELIST", "mlt[0-1]"}};

/// mpirun of Open MPI 4.1
const variables open_mpi_4 = {{"OMPI_COMM_WORLD_RANK", "1"},
                              {"OMPI_COMM_WORLD_SIZE", "2"},
                              {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
                              {"OMPI_COMM_WORLD_NODE_RANK", "0"},
                              {"OMPI_MCA_orte_hnp_uri", "1607794688.0;tcp://10.77.0.9:34341;tcp6://[fd77::1]:36553"},
                              {"PMIX_ID", "1607794689.1"},
                              {"PMIX_RANK", "1"},
                              {"PMIX_NAMESPACE", "1607794689"},
                              {"PMIX_SERVER_URI4", "1607794688.1;tcp4://127.0.0.1:45063"},
                              {"PMIX_HOSTNAME", "mlt1"}};

/// mpirun of Open MPI 5 (PRRTE)
const variables open_mpi_5 = with(without(open_mpi_4, "OMPI_MCA_orte_hnp_uri"),
                                  {{"PMIX_NAMESPACE", "prterun-mlt0-8656@1"}, {"PRTE_LAUNCHED", "1"}});

/// mpiexec.hydra of MPICH 4.0
const variables hydra = {
    {"PMI_RANK", "3"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "1"}, {"PMI_FD", "12"}};

/// `flux run -N2 -n4`, as Flux documents it
const variables flux = {{"FLUX_TASK_RANK", "2"},  {"FLUX_TASK_LOCAL_ID", "0"}, {"FLUX_JOB_SIZE", "4"},
                        {"FLUX_JOB_NNODES", "2"}, {"FLUX_JOB_ID", "f2xKcx"},   {"FLUX_URI", "local:///run/flux/local"},
                        {"PMI_FD", "7"},          {"PMI_RANK", "2"},           {"PMI_SIZE", "4"}};

/// mpiexec of PALS with --pmi=pmix, as its users show it
const variables pals = {{"PALS_RANKID", "13"}, {"PALS_LOCAL_RANKID", "1"}, {"PALS_LOCAL_SIZE", "12"},
                        {"PALS_NODEID", "1"},  {"PALS_APID", "0f3c"},      {"PMI_RANK", "13"},
                        {"PMI_SIZE", "24"},    {"PMI_LOCAL_RANK", "1"},    {"PMI_LOCAL_SIZE", "12"},
                        {"PMIX_RANK", "13"},   {"PMIX_NAMESPACE", "0f3c"}, {"PBS_JOBID", "77.pbs"}};

/// jsrun, as its users show it
const variables jsrun = {
    {"JSM_NAMESPACE_RANK", "7"},       {"JSM_NAMESPACE_SIZE", "12"}, {"JSM_NAMESPACE_LOCAL_RANK", "1"},
    {"JSM_NAMESPACE_LOCAL_SIZE", "6"}, {"LSB_JOBID", "881"},         {"PMIX_RANK", "7"},
    {"PMIX_NAMESPACE", "4e2a"}};

}  // namespace

TEST_CASE("root address: each launcher's variables tell where rank 0 is, or who knows it") {
  struct row {
    const char* name;
    variables set;
    std::string source;
    int rank, world_size, local_rank, local_size;
    int node_rank, node_count, epoch;
    root_lookup lookup;
    std::string host;
    std::size_t ports;
  };
  const std::vector<row> table = {
      {"own", own, "HFCOMM_*", 3, 4, 1, 2, -1, -1, 0, root_lookup::address, "mlt0.lan", 8},
      {"own, with a port", with(own, {{"HFCOMM_ADDRESS", "[fd77::1]:7000"}}), "HFCOMM_*", 3, 4, 1, 2, -1, -1, 0,
       root_lookup::address, "fd77::1", 1},
      {"own, no address", without(own, "HFCOMM_ADDRESS"), "HFCOMM_*", 3, 4, 1, 2, -1, -1, 0, root_lookup::none, "", 0},
      {"torchrun, static", torchrun_static, "torchrun", 2, 4, 0, 2, 1, 2, 0, root_lookup::address, "10.77.0.1", 8},
      {"torchrun, c10d", torchrun_c10d, "torchrun", 2, 4, 0, 2, 1, 2, 1, root_lookup::address, "mlt0", 8},
      {"torchrun, and an address", with(torchrun_c10d, {{"HFCOMM_ADDRESS", "10.77.0.1"}}), "torchrun", 2, 4, 0, 2, 1, 2,
       1, root_lookup::address, "10.77.0.1", 8},
      {"srun", srun, "Slurm", 2, 3, 0, 1, 1, 2, 0, root_lookup::address, "mlt0", 8},
      {"srun, restarted", with(srun, {{"SLURM_RESTART_COUNT", "2"}}), "Slurm", 2, 3, 0, 1, 1, 2, 2,
       root_lookup::address, "mlt0", 8},
      {"srun --mpi=pmi2", srun_pmi2, "Slurm", 2, 3, 0, 1, 1, 2, 0, root_lookup::address, "mlt0", 8},
      {"srun, no list of hosts", without(srun, "SLURM_STEP_NODELIST"), "Slurm", 2, 3, 0, 1, 1, 2, 0, root_lookup::none,
       "", 0},
      {"srun --mpi=pmix, no list of hosts",
       with(without(srun, "SLURM_STEP_NODELIST"), {{"PMIX_RANK", "2"}, {"PMIX_NAMESPACE", "slurm.pmix.12.0"}}), "Slurm",
       2, 3, 0, 1, 1, 2, 0, root_lookup::pmix, "", 0},
      {"srun for Cray's MPI", with(srun, {{"PALS_RANKID", "2"}, {"PMI_RANK", "2"}, {"PMI_SIZE", "3"}}), "Slurm", 2, 3,
       0, 1, 1, 2, 0, root_lookup::address, "mlt0", 8},
      {"Open MPI 4", open_mpi_4, "Open MPI", 1, 2, 0, 1, -1, -1, 0, root_lookup::pmix, "", 0},
      {"Open MPI 5", open_mpi_5, "Open MPI", 1, 2, 0, 1, -1, -1, 0, root_lookup::pmix, "", 0},
      {"MPICH", hydra, "PMI", 3, 4, 0, 1, -1, -1, 0, root_lookup::pmi, "", 0},
      {"MPICH, no PMI_FD", without(hydra, "PMI_FD"), "PMI", 3, 4, 0, 1, -1, -1, 0, root_lookup::none, "", 0},
      {"Flux", flux, "Flux", 2, 4, 0, 4, -1, 2, 0, root_lookup::pmi, "", 0},
      {"PALS", pals, "PALS", 13, 24, 1, 12, 1, -1, 0, root_lookup::pmix, "", 0},
      {"PALS, no PMIx", without(pals, "PMIX_NAMESPACE"), "PALS", 13, 24, 1, 12, 1, -1, 0, root_lookup::none, "", 0},
      {"jsrun", jsrun, "jsrun", 7, 12, 1, 6, -1, -1, 0, root_lookup::pmix, "", 0},
      // One launcher inside another: the inner one counts.
      {"hfrun inside srun", with(srun_pmi2, own), "HFCOMM_*", 3, 4, 1, 2, -1, -1, 0, root_lookup::address, "mlt0.lan",
       8},
      {"hfrun inside mpirun", with(open_mpi_4, without(own, "HFCOMM_ADDRESS")), "HFCOMM_*", 3, 4, 1, 2, -1, -1, 0,
       root_lookup::none, "", 0},
      {"torchrun inside srun", with(srun, torchrun_c10d), "torchrun", 2, 4, 0, 2, 1, 2, 1, root_lookup::address, "mlt0",
       8},
      {"Open MPI 4 inside srun", with(srun, open_mpi_4), "Open MPI", 1, 2, 0, 1, -1, -1, 0, root_lookup::pmix, "", 0},
      {"Open MPI 5 inside sbatch", with(sbatch, open_mpi_5), "Open MPI", 1, 2, 0, 1, -1, -1, 0, root_lookup::pmix, "",
       0},
      {"MPICH inside srun", with(srun, hydra), "PMI", 3, 4, 0, 1, -1, -1, 0, root_lookup::pmi, "", 0},
      {"MPICH inside srun, one rank a machine",
       with(
           srun,
           {{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}, {"PMI_FD", "9"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "1"}}),
       "PMI", 2, 3, 0, 1, -1, -1, 0, root_lookup::pmi, "", 0},
      {"MPICH inside a task of Flux", with(with(flux, {{"FLUX_TASK_RANK", "0"}, {"FLUX_JOB_SIZE", "1"}}), hydra), "PMI",
       3, 4, 0, 1, -1, -1, 0, root_lookup::pmi, "", 0},
      {"Flux inside srun", with(srun, flux), "Flux", 2, 4, 0, 4, -1, 2, 0, root_lookup::pmi, "", 0},
      {"a shell of sbatch", sbatch, "none", 0, 1, 0, 1, -1, -1, 0, root_lookup::none, "", 0},
  };
  for (const row& one : table) {
    CAPTURE(one.name);
    const auto found = detect(one.set);
    CHECK(found.source == one.source);
    CHECK(found.rank == one.rank);
    CHECK(found.world_size == one.world_size);
    CHECK(found.local_rank == one.local_rank);
    CHECK(found.local_size == one.local_size);
    CHECK(found.node_rank == one.node_rank);
    CHECK(found.node_count == one.node_count);
    CHECK(found.epoch == one.epoch);
    CHECK(found.lookup == one.lookup);
    CHECK(found.root_host == one.host);
    CHECK(found.root_ports.size() == one.ports);
    CHECK(found.is_one_machine() == (found.world_size == 1));
  }
}

TEST_CASE(
    "root address: a job is of one machine where the local ranks are all, or only this machine reaches the root") {
  const variables by_hand = {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "1"}};
  CHECK(detect(by_hand).is_one_machine());
  CHECK(detect(with(by_hand, {{"MASTER_ADDR", "localhost"}})).is_one_machine());
  CHECK(detect(with(by_hand, {{"MASTER_ADDR", "::1"}})).is_one_machine());
  CHECK_FALSE(detect(with(by_hand, {{"MASTER_ADDR", "mlt0"}})).is_one_machine());
  CHECK(detect(with(by_hand, {{"MASTER_ADDR", "mlt0"}, {"LOCAL_WORLD_SIZE", "2"}})).is_one_machine());
  CHECK(detect({{"HFCOMM_RANK", "0"}, {"HFCOMM_WORLD_SIZE", "2"}, {"HFCOMM_JOB", "j"}}).is_one_machine());
  CHECK(detect(with(flux, {{"FLUX_JOB_NNODES", "1"}})).is_one_machine());
  CHECK(detect(with(flux, {{"FLUX_JOB_NNODES", "1"}})).has_local_size);
  CHECK_FALSE(detect(flux).has_local_size);
}

TEST_CASE("root address: contradictions and malformed values are errors that show them") {
  CHECK(complaint(with(srun, {{"SLURM_STEP_NUM_NODES", "1"}, {"SLURM_NODEID", "0"}})) ==
        "SLURM_STEP_NUM_NODES=\"1\" contradicts SLURM_STEP_TASKS_PER_NODE=\"2,1\" and SLURM_STEP_NUM_TASKS=\"3\"");
  CHECK(complaint(with(torchrun_static, {{"LOCAL_WORLD_SIZE", "4"}})) ==
        "GROUP_WORLD_SIZE=\"2\" contradicts LOCAL_WORLD_SIZE=\"4\" and WORLD_SIZE=\"4\"");
  CHECK(complaint(with(torchrun_static, {{"GROUP_RANK", "2"}})) ==
        "GROUP_RANK=\"2\" must be less than GROUP_WORLD_SIZE=\"2\"");
  CHECK(complaint(with(srun, {{"SLURM_STEP_NODELIST", "mlt[0-"}})) ==
        "SLURM_STEP_NODELIST=\"mlt[0-\" is no list of hosts such as node[01-04,7],other");
  for (const char* text : {"", ":7000", "mlt0:", "mlt0:0", "mlt0:65536", "mlt0:x", "fd77::1", "[mlt0]:1", "[::1",
                           "[::1]7000", "a b", "tcp://mlt0:1"}) {
    CHECK(complaint(with(own, {{"HFCOMM_ADDRESS", text}})) ==
          "HFCOMM_ADDRESS=\"" + std::string(text) + "\" is no host, host:port or [IPv6 address]:port");
  }
  CHECK(complaint({{"PALS_RANKID", "0"}, {"PALS_NODEID", "0"}}) ==
        "PALS variables are incomplete: found PALS_RANKID=\"0\", PALS_NODEID=\"0\"; missing PMI_SIZE, PALS_APID");
  CHECK(complaint({{"FLUX_JOB_SIZE", "3"}}) ==
        "Flux variables are incomplete: found FLUX_JOB_SIZE=\"3\"; missing FLUX_TASK_RANK, FLUX_JOB_ID");
  CHECK(complaint(without(jsrun, "LSB_JOBID")).find("missing LSB_JOBID") != std::string::npos);
}

TEST_CASE("root address: the candidate ports are equal on all ranks and differ between jobs and epochs") {
  const auto ports = detect(torchrun_c10d).root_ports;
  CHECK(detect(with(torchrun_c10d, {{"RANK", "0"}, {"GROUP_RANK", "0"}})).root_ports == ports);
  CHECK(detect(with(torchrun_c10d, {{"TORCHELASTIC_RESTART_COUNT", "2"}})).root_ports != ports);
  CHECK(detect(with(torchrun_c10d, {{"TORCHELASTIC_RUN_ID", "job8"}})).root_ports != ports);
  std::set<std::uint16_t> first;
  for (int job = 0; job < 1000; ++job) {
    const auto some = candidate_ports("job " + std::to_string(job), job % 3, 20000);
    CHECK(some.size() == 8);
    CHECK(std::set<std::uint16_t>(some.begin(), some.end()).size() == 8);
    CHECK(std::ranges::all_of(some, [](std::uint16_t port) { return port > 20000 && port < 61000; }));
    first.insert(some.front());
  }
  CHECK(first.size() > 950);
  const auto without_first = candidate_ports("job", 0, candidate_ports("job", 0).front());
  CHECK(without_first.front() == candidate_ports("job", 0)[1]);  // the agent's port is left out
  // Programs of different builds and machines must agree on them.
  CHECK(candidate_ports("job", 0) ==
        std::vector<std::uint16_t>{26803, 52099, 28451, 27612, 27909, 29956, 31146, 56822});
}

TEST_CASE("root address: Slurm's lists of hosts") {
  struct row {
    const char* list;
    const char* expected;
  };
  const std::vector<row> table = {
      {"mlt0", "mlt0"},
      {"a,b", "a"},
      {"mlt[0-1,3],other7", "mlt0"},
      {"node[01-03,7]", "node01"},
      {"n[8-11]", "n8"},
      {"n[098-101]", "n098"},
      {"rack[1-2]n[01-02]", "rack1n01"},
      {"n[1-2]-ib,x", "n1-ib"},
      {"nodeA,nodeB[001,003],c", "nodeA"},
      {"jean-zay-ia[810-812]", "jean-zay-ia810"},
      {"[1-2]", "1"},
      {"10.0.0.[7,9]", "10.0.0.7"},
  };
  for (const auto& [list, expected] : table) {
    CAPTURE(list);
    CHECK(first_host(list) == expected);
  }
  for (const char* list : {"",
                           ",",
                           "a,",
                           ",a",
                           "a,,b",
                           "n[",
                           "n]",
                           "n[]",
                           "n[1",
                           "n[1-]",
                           "n[-1]",
                           "n[2-1]",
                           "n[1,]",
                           "n[a-b]",
                           "n[1--2]",
                           "n[[1]]",
                           "a b",
                           "n[1 ]",
                           "n[99999999999999999999]",
                           "n(x2)",
                           "a/b",
                           "n[0000000001]"}) {
    CAPTURE(list);
    CHECK_FALSE(first_host(list));
  }
  CHECK(first_host("n[0-999999999][0-999999999]") == "n00");
}

TEST_CASE("root address: hosts and ports") {
  const auto parts = [](const char* text) {
    const auto found = parse_host_and_port(text);
    REQUIRE(found);
    return found->host + '|' + (found->port ? std::to_string(*found->port) : "");
  };
  CHECK(parts("mlt0") == "mlt0|");
  CHECK(parts("mlt0:1") == "mlt0|1");
  CHECK(parts("10.77.0.1:65535") == "10.77.0.1|65535");
  CHECK(parts("[fd77::1]") == "fd77::1|");
  CHECK(parts("[fe80::1%eth0]:7000") == "fe80::1%eth0|7000");
}

TEST_CASE("root address: init_method names it") {
  const auto resolve = [](const std::string& method) {
    return hfcomm::detail::resolve({.init_method = method, .rank = 1, .world_size = 4}, {-1, 0, "init", 0});
  };
  const auto tcp = resolve("tcp://[fd77::1]:29500");
  CHECK(tcp.lookup == root_lookup::address);
  CHECK(tcp.root_host == "fd77::1");
  CHECK(tcp.root_ports == std::vector<std::uint16_t>{29500});
  CHECK_FALSE(tcp.is_one_machine());
  CHECK(resolve("tcp://node7").root_ports == candidate_ports("tcp://node7", 0));
  CHECK(resolve("tcp://localhost:29500").is_one_machine());
  const auto file = resolve("file:///shared/job 7");
  CHECK(file.lookup == root_lookup::file);
  CHECK(file.root_file == "/shared/job 7");
  CHECK_FALSE(file.is_one_machine());
  CHECK(resolve("job://x").is_one_machine());
  CHECK(resolve("job://x").lookup == root_lookup::none);
  for (const char* wrong :
       {"tcp://", "tcp://:1", "tcp://a:b", "tcp://fd77::1", "file://", "file://name", "file:///a/"}) {
    CHECK_THROWS_AS(static_cast<void>(resolve(wrong)), hfcomm::usage_error);
  }
}
