// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <optional>
#include <string>

#include <sys/mman.h>
#include <unistd.h>

#include <hfcomm/rendezvous/local_rendezvous.hpp>

#include "processes.hpp"

using namespace hfcomm;
using namespace std::chrono_literals;
using processes::unique_name;

TEST_CASE("session: before init and after its end the world is one process, in which every operation works") {
  const auto works = [] {
    CHECK(world_size() == 1);
    CHECK(rank() == 0);
    CHECK(local_rank() == 0);
    CHECK(local_size() == 1);
    CHECK(node_rank() == 0);
    CHECK(node_count() == 1);
    CHECK_FALSE(is_initialized());
    CHECK(is_main_process());
    CHECK(world().host_backend() == "self");
    barrier();
    CHECK(all_gather(std::string("x")) == std::vector<std::string>{"x"});
    CHECK(all_reduce(3, reduce_op::sum) == 3);
    CHECK_THROWS_AS(broadcast(std::span<float>(), 1), usage_error);
    std::vector<int> integers{1, 2};
    CHECK_THROWS_AS(all_reduce(integers, reduce_op{reduce_op::average}), usage_error);
  };
  works();
  processes::child_processes children(2, [&](int rank) {
    for (int round = 0; round < 3; ++round) {  // init again after the end works
      session own = init(processes::job_options(unique_name("again"), rank, 2));
      if (world_size() != 2 || !is_initialized() || world().host_backend() != "shared_memory") {
        throw std::runtime_error("a wrong world");
      }
      barrier();
      own.end();
      own.end();
      if (world_size() != 1 || is_initialized()) {
        throw std::runtime_error("the session did not end");
      }
    }
  });
  for (const auto& outcome : children.wait(30s)) {
    INFO(outcome.output);
    CHECK(outcome.exited_with(0));
  }
  works();
}

TEST_CASE("init: after the start timeout every other rank names a rank that never connects") {
  processes::child_processes children(4, [](int rank) {
    if (rank == 2) {
      return;
    }
    auto options = processes::job_options(unique_name("missing"), rank, 4);
    options.start_timeout = 700ms;
    try {
      session own = init(options);
    } catch (const timeout_error& problem) {
      processes::report(problem.what());
      processes::report(problem.missing() == std::vector<int>{2} ? "missing 2" : "missing others");
    }
  });
  const auto outcomes = children.wait(20s);
  for (const int rank : {0, 1, 3}) {
    const auto& output = outcomes[static_cast<std::size_t>(rank)].output;
    INFO(output);
    CHECK(output.find("the job did not start in time: rank 2 did not come") != std::string::npos);
    CHECK(output.find("session_test.cpp:") != std::string::npos);
    CHECK(output.find("missing 2") != std::string::npos);
  }
}

TEST_CASE("init: after the start timeout the others name a rank 0 that never connects") {
  processes::child_processes children(1, [](int) {
    auto options = processes::job_options(unique_name("no-root"), 1, 2);
    options.start_timeout = 300ms;
    session own = init(options);
  });
  const auto outcome = children.wait(20s).front();
  INFO(outcome.output);
  CHECK(outcome.output.find("rank 0 did not come") != std::string::npos);
}

TEST_CASE("init: ranks with contradictory sizes or ranks get an error on all of them") {
  struct misfit {
    const char* name;
    int rank, size;  // what the third process claims
    const char* told;
  };
  const misfit misfits[] = {{"size", 2, 5, "disagrees about the size of the job"},
                            {"twice", 1, 3, "claims a rank that another process has taken"}};
  for (const auto& one : misfits) {
    const std::string name = unique_name(std::string("misfit-") + one.name);
    processes::child_processes children(3, [&](int index) {
      if (index == 2) {
        std::this_thread::sleep_for(200ms);  // after rank 1
      }
      auto options =
          index == 2 ? processes::job_options(name, one.rank, one.size) : processes::job_options(name, index, 3);
      options.start_timeout = 5s;
      session own = init(options);
    });
    for (const auto& outcome : children.wait(20s)) {
      INFO(one.name, ": ", outcome.output);
      CHECK(outcome.exited_with(1));
      CHECK(outcome.output.find(one.told) != std::string::npos);
    }
  }
}

TEST_CASE("init: a rank that dies during the start ends the start on all ranks") {
  processes::child_processes children(3, [&](int rank) {
    auto options = processes::job_options(unique_name("dies"), rank, 3);
    options.start_timeout = 20s;
    if (rank == 1) {
      const auto connection = [&] {
        for (;;) {
          if (auto made = rendezvous::connect_to(rendezvous::socket_name(options.init_method))) {
            return std::move(*made);
          }
          std::this_thread::sleep_for(1ms);
        }
      };
      auto root = connection();
      rendezvous::local::hello introduction;
      introduction.rank = 1;
      introduction.world_size = 3;
      root.send(std::as_bytes(std::span(&introduction, 1)));
      std::this_thread::sleep_for(50ms);
      return;
    }
    if (rank == 2) {
      std::this_thread::sleep_for(10ms);
    }
    session own = init(options);
  });
  const auto outcomes = children.wait(10s);
  for (const int rank : {0, 2}) {
    INFO(outcomes[static_cast<std::size_t>(rank)].output);
    CHECK(outcomes[static_cast<std::size_t>(rank)].exited_with(1));
  }
  CHECK(outcomes[0].output.find("rank 1 went away while the job was starting") != std::string::npos);
}

TEST_CASE("init: a foreign process that connects and sends nothing or nonsense does not delay the ranks") {
  processes::child_processes children(4, [&](int rank) {
    const auto options = processes::job_options(unique_name("stranger"), rank, 2);
    if (rank >= 2) {
      for (int patience = 0; patience < 2000; ++patience) {
        if (auto made = rendezvous::connect_to(rendezvous::socket_name(options.init_method))) {
          if (rank == 3) {
            const std::string nonsense = "GET / HTTP/1.1\r\n\r\n";
            made->send(std::as_bytes(std::span(nonsense)));
          }
          std::this_thread::sleep_for(300ms);
          return;
        }
        std::this_thread::sleep_for(1ms);
      }
      return;
    }
    if (rank == 1) {
      std::this_thread::sleep_for(100ms);
    }
    session own = init(options);
    barrier();
  });
  const auto outcomes = children.wait(20s);
  CHECK(outcomes[0].exited_with(0));
  CHECK(outcomes[1].exited_with(0));
}

TEST_CASE("init: every init method leads to the same job") {
  const std::string port = std::to_string(10'000 + ::getpid() % 50'000);
  for (const std::string& method :
       {"tcp://localhost:" + port, "file:///tmp/hfcomm-test" + unique_name(""), "job://method" + unique_name("")}) {
    processes::child_processes children(2, [&](int rank) {
      auto options = processes::job_options("", rank, 2);
      options.init_method = method;
      session own = init(options);
      processes::report("sum " + std::to_string(all_reduce(hfcomm::rank(), reduce_op::sum)));
    });
    for (const auto& outcome : children.wait(20s)) {
      INFO(method, ": ", outcome.output);
      CHECK(outcome.output == "sum 1\n");
    }
  }
  CHECK_THROWS_AS((void)init({.init_method = "carrier-pigeon://x", .rank = 0, .world_size = 2}), usage_error);
  CHECK_THROWS_AS((void)init({.init_method = "tcp://localhost:1"}), usage_error);
  CHECK_THROWS_AS((void)init({.init_method = "job://x", .rank = 2, .world_size = 2}), usage_error);
  CHECK_THROWS_AS((void)init({.rank = 1, .world_size = 2}), usage_error);
}

TEST_CASE("init: HFCOMM_* variables start a job, and an incomplete set is an error that lists the missing ones") {
  processes::child_processes children(3, [&](int rank) {
    ::setenv("HFCOMM_RANK", std::to_string(rank).c_str(), 1);
    ::setenv("HFCOMM_WORLD_SIZE", "3", 1);
    try {
      session own = init();
    } catch (const usage_error& problem) {
      processes::report(problem.what());
    }
    ::setenv("HFCOMM_JOB", unique_name("variables").c_str(), 1);
    session own = init({.init_method = "env://"});
    processes::report("sum " + std::to_string(all_reduce(hfcomm::rank(), reduce_op::sum)));
  });
  for (const auto& outcome : children.wait(20s)) {
    INFO(outcome.output);
    CHECK(outcome.output.find("HFCOMM_JOB") != std::string::npos);
    CHECK(outcome.output.find("sum 3\n") != std::string::npos);
  }
}

TEST_CASE("init: env:// without variables is an error that lists the variables") {
  processes::child_processes children(1, [&](int) {
    for (const char* name : {"HFCOMM_RANK", "HFCOMM_WORLD_SIZE", "RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK",
                             "OMPI_COMM_WORLD_SIZE", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}) {
      ::unsetenv(name);
    }
    session own = init({.init_method = "env://"});
  });
  const auto outcome = children.wait(20s).front();
  INFO(outcome.output);
  CHECK(outcome.exited_with(1));
  for (const char* name : {"HFCOMM_RANK", "RANK and WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"}) {
    CHECK(outcome.output.find(name) != std::string::npos);
  }
}

TEST_CASE("init: a job on several machines needs a secret, and says how to give one") {
  processes::child_processes children(1, [&](int) {
    ::setenv("RANK", "0", 1);
    ::setenv("WORLD_SIZE", "4", 1);
    ::setenv("LOCAL_RANK", "0", 1);
    ::setenv("LOCAL_WORLD_SIZE", "2", 1);
    ::setenv("MASTER_ADDR", "node7", 1);
    ::setenv("MASTER_PORT", "29500", 1);
    session own = init();
  });
  const auto outcome = children.wait(20s).front();
  INFO(outcome.output);
  CHECK(outcome.output.find("HFCOMM_SECRET_FILE") != std::string::npos);
}

TEST_CASE("fork: the child of a rank may not use the rank's groups") {
  processes::child_processes children(2, [&](int rank) {
    session own = init(processes::job_options(unique_name("fork"), rank, 2));
    barrier();
    std::fflush(nullptr);
    if (const pid_t child = ::fork(); child == 0) {
      int status = 1;
      try {
        barrier();
      } catch (const usage_error& problem) {
        status = std::string(problem.what()).find("before a fork") != std::string::npos ? 0 : 2;
      }
      own.end();
      ::_exit(status);
    } else {
      int status = 0;
      ::waitpid(child, &status, 0);
      if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        throw std::runtime_error("the child's barrier did not refuse");
      }
    }
    barrier();  // the child's end does not count as this rank's
  });
  for (const auto& outcome : children.wait(20s)) {
    INFO(outcome.output);
    CHECK(outcome.exited_with(0));
  }
}

TEST_CASE("broadcast: a buffer of more than 4 GiB arrives complete") {
  constexpr std::size_t count = (std::size_t{4} << 30) + 4097;
  if (::sysconf(_SC_AVPHYS_PAGES) * ::sysconf(_SC_PAGESIZE) < static_cast<long>(count) * 2) {
    std::puts(
        "[hfcomm] skipped: broadcast: a buffer of more than 4 GiB: the machine has less than 8 GiB of free memory");
    return;
  }
  processes::child_processes children(2, [&](int rank) {
    session own = init(processes::job_options(unique_name("large"), rank, 2));
    void* memory = ::mmap(nullptr, count, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    const std::span<std::uint8_t> data(static_cast<std::uint8_t*>(memory), count);
    if (rank == 0) {
      data[0] = 1;
      data[(std::size_t{1} << 32) - 1] = 2;
      data[std::size_t{1} << 32] = 3;
      data[count - 1] = 4;
    }
    broadcast(data);
    if (data[0] != 1 || data[(std::size_t{1} << 32) - 1] != 2 || data[std::size_t{1} << 32] != 3 ||
        data[count - 1] != 4 || data[77] != 0) {
      throw std::runtime_error("wrong bytes");
    }
  });
  for (const auto& outcome : children.wait(280s)) {
    INFO(outcome.output);
    CHECK(outcome.exited_with(0));
  }
}
