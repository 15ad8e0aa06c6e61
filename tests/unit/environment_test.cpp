// SPDX-License-Identifier: MIT
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include <hfcomm/core/error.hpp>
#include <hfcomm/group/environment.hpp>

namespace {

using variables = std::map<std::string, std::string>;

hfcomm::launch_environment detect(const variables& set) {
  const auto read = [&set](const char* name) {
    const auto found = set.find(name);
    return found == set.end() ? std::nullopt : std::optional<std::string>(found->second);
  };
  return hfcomm::detect_environment(read);
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

/// Returns the usage_error's text; empty without an error.
std::string complaint(const variables& set) {
  try {
    static_cast<void>(detect(set));
  } catch (const hfcomm::usage_error& problem) {
    CHECK(problem.rank() == -1);
    CHECK(problem.operation() == "detect_environment");
    return problem.detail();
  }
  return {};
}

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

const variables torchrun = {{"RANK", "5"},
                            {"WORLD_SIZE", "8"},
                            {"LOCAL_RANK", "1"},
                            {"LOCAL_WORLD_SIZE", "4"},
                            {"MASTER_ADDR", "node7"},
                            {"MASTER_PORT", "29500"},
                            {"TORCHELASTIC_RUN_ID", "run/a"},
                            {"TORCHELASTIC_RESTART_COUNT", "2"},
                            {"GROUP_RANK", "1"},
                            {"OMP_NUM_THREADS", "1"}};

const variables own = {{"HFCOMM_RANK", "1"}, {"HFCOMM_WORLD_SIZE", "3"}, {"HFCOMM_JOB", "my job"}};

const variables slurm = {{"SLURM_PROCID", "3"},          {"SLURM_LOCALID", "1"}, {"SLURM_NTASKS", "16"},
                         {"SLURM_STEP_NUM_TASKS", "16"}, {"SLURM_NODEID", "1"},  {"SLURM_JOB_ID", "77"},
                         {"SLURM_STEP_ID", "0"}};

}  // namespace

TEST_CASE("environment: each launcher's variables give rank, sizes and rendezvous") {
  struct row {
    const char* name;
    variables set;
    hfcomm::launch_environment expected;
  };
  const std::vector<row> table = {
      {"nothing", {}, {0, 1, 0, 1, "", "none"}},
      {"own", own, {1, 3, 1, 3, "hfcomm:my job", "HFCOMM_*"}},
      {"own, several machines",
       with(own, {{"HFCOMM_LOCAL_RANK", "0"}, {"HFCOMM_LOCAL_SIZE", "2"}}),
       {1, 3, 0, 2, "hfcomm:my job", "HFCOMM_*"}},
      {"own, a local rank alone", with(own, {{"HFCOMM_LOCAL_RANK", "2"}}), {1, 3, 2, 3, "hfcomm:my job", "HFCOMM_*"}},
      {"own, one process", {{"HFCOMM_RANK", "0"}, {"HFCOMM_WORLD_SIZE", "1"}}, {0, 1, 0, 1, "", "HFCOMM_*"}},
      {"torchrun", torchrun, {5, 8, 1, 4, "torchrun:node7/29500/2/run/a", "torchrun"}},
      {"by hand in torchrun's style",
       {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "::1"}, {"MASTER_PORT", "1"}},
       {0, 2, 0, 2, "torchrun:::1/1/0/", "torchrun"}},
      {"one process in torchrun's style", {{"RANK", "0"}, {"WORLD_SIZE", "1"}}, {0, 1, 0, 1, "", "torchrun"}},
      {"own inside torchrun", with(torchrun, own), {1, 3, 1, 3, "hfcomm:my job", "HFCOMM_*"}},
      {"torchrun inside srun", with(slurm, torchrun), {5, 8, 1, 4, "torchrun:node7/29500/2/run/a", "torchrun"}},
      {"a shell inside salloc", without(slurm, "SLURM_STEP_NUM_TASKS"), {0, 1, 0, 1, "", "none"}},
      {"left over addresses",
       {{"MASTER_ADDR", "node7"}, {"MASTER_PORT", "no"}, {"LOCAL_RANK", "3"}, {"LOCAL_WORLD_SIZE", "2"}},
       {0, 1, 0, 1, "", "none"}},
      {"a job's name alone", {{"HFCOMM_JOB", "x"}, {"HFCOMM_LOCAL_RANK", "-1"}}, {0, 1, 0, 1, "", "none"}},
      {"a job's name alone inside torchrun",
       with(torchrun, {{"HFCOMM_JOB", "x"}}),
       {5, 8, 1, 4, "torchrun:node7/29500/2/run/a", "torchrun"}},
      {"the last of the largest job",
       with(own, {{"HFCOMM_RANK", "2147483646"}, {"HFCOMM_WORLD_SIZE", "2147483647"}}),
       {2147483646, 2147483647, 2147483646, 2147483647, "hfcomm:my job", "HFCOMM_*"}},
      {"the largest port",
       with(torchrun, {{"MASTER_PORT", "65535"}}),
       {5, 8, 1, 4, "torchrun:node7/65535/2/run/a", "torchrun"}},
  };
  for (const auto& [name, set, expected] : table) {
    CAPTURE(name);
    const auto found = detect(set);
    CHECK(found.rank == expected.rank);
    CHECK(found.world_size == expected.world_size);
    CHECK(found.local_rank == expected.local_rank);
    CHECK(found.local_size == expected.local_size);
    CHECK(found.rendezvous == expected.rendezvous);
    CHECK(found.source == expected.source);
  }
}

TEST_CASE("environment: Open MPI's variables are found whether or not the program uses MPI") {
  const variables mpirun = {{"OMPI_COMM_WORLD_RANK", "2"},       {"OMPI_COMM_WORLD_SIZE", "4"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                            {"PMIX_NAMESPACE", "500432897"},     {"SLURM_PROCID", "0"},
                            {"SLURM_STEP_NUM_TASKS", "2"}};
  const auto found = detect(mpirun);
  CHECK(found.source == "Open MPI");
  CHECK(found.rank == 2);
  CHECK(found.world_size == 4);
  CHECK(found.local_rank == 1);
  CHECK(found.local_size == 2);
  CHECK(found.rendezvous == "openmpi:500432897");
  CHECK(contains(complaint(without(mpirun, "PMIX_NAMESPACE")), "missing PMIX_NAMESPACE"));
  CHECK(detect(with(mpirun, torchrun)).source == "torchrun");
}

TEST_CASE("environment: MPICH's variables make a rank; the launcher names the job, unless a variable does") {
  const variables hydra = {
      {"PMI_RANK", "2"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "2"}, {"PMI_FD", "9"}};
  const auto found = detect(hydra);
  CHECK(found.source == "PMI");
  CHECK(found.rank == 2);
  CHECK(found.world_size == 4);
  CHECK(found.local_rank == 0);
  CHECK(found.local_size == 2);
  CHECK(found.rendezvous.rfind("pmi:", 0) == 0);
  CHECK(found.rendezvous.size() > 4);
  CHECK(detect(hydra).rendezvous == found.rendezvous);
  CHECK(detect(with(hydra, {{"PMI_JOBID", "77.0"}})).rendezvous == "pmi:77.0");
  CHECK(detect(with(with(slurm, hydra), {{"PMI_RANK", "3"}})).rank == 3);  // srun has started MPICH's proxies
  CHECK(detect({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}).rendezvous.empty());
}

TEST_CASE("environment: a launcher that is there but not understood is an error, unless its job has one process") {
  const std::vector<variables> jobs = {{{"MV2_COMM_WORLD_RANK", "1"}, {"MV2_COMM_WORLD_SIZE", "2"}},
                                       {{"MV2_COMM_WORLD_SIZE", "3"}},
                                       {{"ALPS_APP_PE", "0"}},
                                       {{"PMIX_RANK", "0"}}};
  for (const auto& job : jobs) {
    const std::string text = complaint(job);
    INFO(text);
    CHECK(text.find("hfcomm does not understand its variables") != std::string::npos);
    CHECK(text.find("HFCOMM_RANK, HFCOMM_WORLD_SIZE and HFCOMM_JOB") != std::string::npos);
    CHECK(detect(with(job, own)).source == "HFCOMM_*");
  }
  CHECK(detect({{"MV2_COMM_WORLD_RANK", "0"}, {"MV2_COMM_WORLD_SIZE", "1"}}).source == "none");
  // As Open MPI's MPI_Init sets them in a program that mpirun has not started.
  CHECK(detect({{"PMIX_RANK", "0"}, {"OMPI_APP_CTX_NUM_PROCS", "1"}, {"OMPI_MCA_ess", "singleton"}}).source == "none");
}

TEST_CASE("environment: Slurm's variables count only inside a job step") {
  const variables srun = {{"SLURM_PROCID", "5"},
                          {"SLURM_STEP_NUM_TASKS", "11"},
                          {"SLURM_NTASKS", "11"},
                          {"SLURM_LOCALID", "1"},
                          {"SLURM_STEP_TASKS_PER_NODE", "4(x2),3"},
                          {"SLURM_NODEID", "1"},
                          {"SLURM_JOB_ID", "77"},
                          {"SLURM_STEP_ID", "0"}};
  const auto found = detect(srun);
  CHECK(found.source == "Slurm");
  CHECK(found.rank == 5);
  CHECK(found.world_size == 11);
  CHECK(found.local_rank == 1);
  CHECK(found.local_size == 4);
  CHECK(found.rendezvous == "slurm:77.0/0");
  CHECK(detect(with(srun, {{"SLURM_NODEID", "2"}})).local_size == 3);
  CHECK(detect(with(srun, {{"SLURM_STEP_TASKS_PER_NODE", "11"}, {"SLURM_NODEID", "0"}})).local_size == 11);
  CHECK(detect(with(srun, {{"SLURM_RESTART_COUNT", "1"}})).rendezvous != found.rendezvous);
  CHECK(detect(without(srun, "SLURM_STEP_NUM_TASKS")).source == "none");
  CHECK(contains(complaint(with(srun, {{"SLURM_NODEID", "3"}})), "has no number for SLURM_NODEID=\"3\""));
  for (const char* list : {"", "x", "4(x2", "4(x0)", "0", "4,", "4;3", "4(x99999999999)", "-1"}) {
    CHECK(contains(complaint(with(srun, {{"SLURM_STEP_TASKS_PER_NODE", list}})), "SLURM_STEP_TASKS_PER_NODE"));
  }
  CHECK(contains(complaint(without(srun, "SLURM_STEP_ID")), "missing SLURM_STEP_ID"));
}

TEST_CASE("environment: ranks of one job have the same rendezvous key, and different jobs have different ones") {
  const auto key = detect(torchrun).rendezvous;
  CHECK(detect(with(torchrun, {{"RANK", "0"}, {"LOCAL_RANK", "3"}})).rendezvous == key);
  CHECK(detect(with(torchrun, {{"MASTER_PORT", "029500"}})).rendezvous == key);  // the same port

  CHECK(detect(with(torchrun, {{"MASTER_ADDR", "node8"}})).rendezvous != key);
  CHECK(detect(with(torchrun, {{"MASTER_PORT", "29501"}})).rendezvous != key);
  CHECK(detect(with(torchrun, {{"TORCHELASTIC_RUN_ID", "other"}})).rendezvous != key);
  CHECK(detect(without(torchrun, "TORCHELASTIC_RUN_ID")).rendezvous != key);
  CHECK(detect(with(torchrun, {{"TORCHELASTIC_RESTART_COUNT", "3"}})).rendezvous != key);
  CHECK(detect(with(own, {{"HFCOMM_JOB", "other"}})).rendezvous != detect(own).rendezvous);
  CHECK(detect(with(own, {{"HFCOMM_JOB", key}})).rendezvous != key);
}

TEST_CASE("environment: an incomplete set is an error that lists the variables found and missing") {
  struct row {
    variables set;
    const char* expected;
  };
  const std::vector<row> table = {
      {{{"RANK", "3"}},
       "torchrun variables are incomplete: found RANK=\"3\"; missing WORLD_SIZE, MASTER_ADDR, MASTER_PORT"},
      {{{"WORLD_SIZE", "4"}, {"LOCAL_RANK", "0"}, {"MASTER_PORT", "1"}, {"TORCHELASTIC_RUN_ID", "r"}},
       "torchrun variables are incomplete: found WORLD_SIZE=\"4\", MASTER_PORT=\"1\", LOCAL_RANK=\"0\", "
       "TORCHELASTIC_RUN_ID=\"r\"; missing RANK, MASTER_ADDR"},
      {{{"WORLD_SIZE", "1"}}, "torchrun variables are incomplete: found WORLD_SIZE=\"1\"; missing RANK"},
      {without(torchrun, "MASTER_PORT"),
       "torchrun variables are incomplete: found RANK=\"5\", WORLD_SIZE=\"8\", MASTER_ADDR=\"node7\", "
       "LOCAL_RANK=\"1\", "
       "LOCAL_WORLD_SIZE=\"4\", GROUP_RANK=\"1\", TORCHELASTIC_RUN_ID=\"run/a\", TORCHELASTIC_RESTART_COUNT=\"2\"; "
       "missing MASTER_PORT"},
      {without(own, "HFCOMM_JOB"),
       "HFCOMM_* variables are incomplete: found HFCOMM_RANK=\"1\", HFCOMM_WORLD_SIZE=\"3\"; missing HFCOMM_JOB"},
      {{{"HFCOMM_WORLD_SIZE", "1"}, {"HFCOMM_LOCAL_SIZE", "1"}},
       "HFCOMM_* variables are incomplete: found HFCOMM_WORLD_SIZE=\"1\", HFCOMM_LOCAL_SIZE=\"1\"; missing "
       "HFCOMM_RANK"},
      // torchrun's variables do not complete another launcher's set.
      {with(torchrun, {{"HFCOMM_RANK", "0"}}),
       "HFCOMM_* variables are incomplete: found HFCOMM_RANK=\"0\"; missing HFCOMM_WORLD_SIZE, HFCOMM_JOB"},
  };
  for (const auto& [set, expected] : table) {
    CHECK(complaint(set) == expected);
  }
}

TEST_CASE("environment: an invalid value is an error that names it and its variable") {
  const auto numbers_of = [](const variables& good, const char* name, const std::vector<std::string>& values) {
    for (const auto& value : values) {
      const auto text = complaint(with(good, {{name, value}}));
      CAPTURE(text);
      CHECK(contains(text, std::string(name) + "=\"" + value + "\""));
      CHECK(contains(text, " is no whole number from "));
    }
  };
  const std::vector<std::string> never = {"",   " ",  "x",   "1x",  " 1",         "1 ",
                                          "+1", "-1", "1.0", "0x1", "2147483648", "1e1"};
  const std::vector<std::string> nor_zero = {"", "x", "-3", "0", "3;", "99999999999999999999"};
  numbers_of(torchrun, "RANK", never);
  numbers_of(torchrun, "LOCAL_RANK", never);
  numbers_of(torchrun, "TORCHELASTIC_RESTART_COUNT", never);
  numbers_of(torchrun, "WORLD_SIZE", nor_zero);
  numbers_of(torchrun, "LOCAL_WORLD_SIZE", nor_zero);
  numbers_of(torchrun, "MASTER_PORT", {"", "x", "-1", "0", "65536", "29500/tcp"});
  numbers_of(own, "HFCOMM_RANK", never);
  numbers_of(own, "HFCOMM_LOCAL_RANK", never);
  numbers_of(own, "HFCOMM_WORLD_SIZE", nor_zero);
  numbers_of(own, "HFCOMM_LOCAL_SIZE", nor_zero);
  CHECK(contains(complaint(with(torchrun, {{"MASTER_PORT", "0"}})), "from 1 to 65535"));
  CHECK(contains(complaint(with(torchrun, {{"RANK", "-1"}})), "from 0 to 2147483647"));
}

TEST_CASE("environment: values that contradict each other are an error that names both") {
  CHECK(complaint(with(torchrun, {{"RANK", "8"}})) == "RANK=\"8\" must be less than WORLD_SIZE=\"8\"");
  CHECK(complaint(with(torchrun, {{"LOCAL_RANK", "4"}})) ==
        "LOCAL_RANK=\"4\" must be less than LOCAL_WORLD_SIZE=\"4\"");
  CHECK(complaint(with(torchrun, {{"LOCAL_WORLD_SIZE", "9"}})) ==
        "LOCAL_WORLD_SIZE=\"9\" is more than WORLD_SIZE=\"8\"");
  CHECK(complaint(with(own, {{"HFCOMM_RANK", "3"}})) == "HFCOMM_RANK=\"3\" must be less than HFCOMM_WORLD_SIZE=\"3\"");
  CHECK(complaint(with(own, {{"HFCOMM_LOCAL_RANK", "3"}})) ==
        "HFCOMM_LOCAL_RANK=\"3\" must be less than HFCOMM_WORLD_SIZE=\"3\"");
  CHECK(complaint(with(own, {{"HFCOMM_LOCAL_SIZE", "2"}})) ==
        "HFCOMM_LOCAL_SIZE=\"2\" is less than HFCOMM_WORLD_SIZE=\"3\", so HFCOMM_LOCAL_RANK must be set, too");
}

TEST_CASE("environment: an empty job name is an error") {
  CHECK(complaint(with(own, {{"HFCOMM_JOB", ""}})) == "HFCOMM_JOB=\"\" is empty");
  CHECK(complaint(with(torchrun, {{"MASTER_ADDR", ""}})) == "MASTER_ADDR=\"\" is empty");
}

TEST_CASE("environment: an error names the caller's line") {
  try {
    static_cast<void>(detect({{"RANK", "0"}}));
    FAIL("nothing was thrown");
  } catch (const hfcomm::usage_error& problem) {
    CHECK(contains(problem.what(), "detect_environment at environment_test.cpp:"));
  }
}

TEST_CASE("environment: by default the process's own environment is read") {
  CHECK_FALSE(hfcomm::read_process_environment("HFCOMM_THIS_IS_NOT_SET").has_value());
  const char* const path = std::getenv("PATH");
  REQUIRE(path != nullptr);
  CHECK(hfcomm::read_process_environment("PATH") == path);
}
