// SPDX-License-Identifier: MIT
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include <doctest/doctest.h>

#include <hfrun/job_part.hpp>
#include <hfrun/options.hpp>

namespace {

using words = std::vector<std::string>;

std::string shares(int processes, const char* hosts) {
  std::string text;
  for (const auto& one : hfrun::share_ranks(processes, hfrun::parse_hosts(hosts))) {
    text += one.name + ' ' + std::to_string(one.first_rank) + '+' + std::to_string(one.ranks) + ' ';
  }
  return text;
}

}  // namespace

TEST_CASE("hfrun: options before the program, and the program's own after it") {
  const auto plain = hfrun::parse({"-n", "3", "./train", "-n", "5", "--hosts"});
  CHECK(plain.processes == 3);
  CHECK(plain.command == words{"./train", "-n", "5", "--hosts"});
  CHECK(plain.prefix);
  CHECK(plain.remote_shell.empty());
  const auto all = hfrun::parse({"--plain", "--rsh", "ssh -p 2222", "--hosts", "a,[fd77::1]:2", "--", "-odd"});
  CHECK_FALSE(all.prefix);
  CHECK(all.remote_shell == words{"ssh", "-p", "2222"});
  CHECK(all.command == words{"-odd"});
  REQUIRE(all.hosts.size() == 2);
  CHECK(all.hosts[0].name == "a");
  CHECK_FALSE(all.hosts[0].slots);
  CHECK(all.hosts[1].name == "fd77::1");
  CHECK(all.hosts[1].slots == 2);
}

TEST_CASE("hfrun: a wrong command line is a usage_error") {
  for (const words& line : std::vector<words>{{},
                                              {"./train"},
                                              {"-n", "2"},
                                              {"-n"},
                                              {"-n", "0", "x"},
                                              {"-n", "2x", "x"},
                                              {"-n", "-1", "x"},
                                              {"--np", "2", "x"},
                                              {"-n4x", "x"},
                                              {"-n0", "x"},
                                              {"-x"},
                                              {"-n", "2", "--hosts", "", "x"},
                                              {"-n", "2", "--hosts", "a,,b", "x"},
                                              {"-n", "2", "--hosts", "a:0", "x"},
                                              {"-n", "2", "--hosts", "a:x", "x"},
                                              {"-n", "2", "--hosts", "[fd77::1]4", "x"},
                                              {"-n", "2", "--hosts", "-oProxyCommand=x", "x"},
                                              {"-n", "2", "--hostfile", "/not/there", "x"},
                                              {"-n", "2", "--rsh", " ", "x"}}) {
    CAPTURE(line.size());
    CHECK_THROWS_AS(static_cast<void>(hfrun::parse(line)), hfrun::usage_error);
  }
}

TEST_CASE("hfrun: the options of mpirun are understood") {
  const auto all = hfrun::parse({"-np", "4", "-x", "MODE", "-x", "SEED=7", "-H", "a,b:2", "./train", "-np", "9"});
  CHECK(all.processes == 4);
  CHECK((all.variables == words{"MODE", "SEED=7"}));
  CHECK(all.hosts.size() == 2);
  CHECK((all.command == words{"./train", "-np", "9"}));
  CHECK(hfrun::parse({"-n4", "x"}).processes == 4);
}

TEST_CASE("hfrun: ranks are dealt to the hosts in blocks") {
  CHECK(shares(4, "a,b") == "a 0+2 b 2+2 ");
  CHECK(shares(5, "a,b,c") == "a 0+2 b 2+2 c 4+1 ");
  CHECK(shares(4, "a:3,b") == "a 0+3 b 3+1 ");
  CHECK(shares(5, "a,b:3") == "a 0+2 b 2+3 ");
  CHECK(shares(0, "a:2,b:3") == "a 0+2 b 2+3 ");
  CHECK(shares(2, "a:2,b:3") == "a 0+2 ");
  CHECK(shares(1, "a,b") == "a 0+1 ");
  CHECK(shares(3, "a:1,a:2") == "a 0+3 ");
  CHECK(shares(2, "a:1,b:1,a:2") == "a 0+1 b 1+1 ");
  CHECK_THROWS_AS(static_cast<void>(shares(4, "a:2,b:1")), hfrun::usage_error);
  CHECK_THROWS_AS(static_cast<void>(shares(0, "a:2,b")), hfrun::usage_error);
}

TEST_CASE("hfrun: a host that is named again after others is a usage_error") {
  CHECK_THROWS_AS(static_cast<void>(shares(4, "a:1,b:1,a:2")), hfrun::usage_error);
  CHECK_THROWS_AS(static_cast<void>(shares(3, "a,b,a")), hfrun::usage_error);
}

TEST_CASE("hfrun: a first host that leads the others to themselves is a usage_error") {
  const auto check = [](const char* hosts) {
    hfrun::check_root_name(hfrun::share_ranks(0, hfrun::parse_hosts(hosts)));
  };
  for (const char* hosts : {"localhost:2,b:2", "127.0.1.1:1,b:1", "[::1]:1,b:1", "me@localhost:1,b:1"}) {
    CAPTURE(hosts);
    CHECK_THROWS_AS(check(hosts), hfrun::usage_error);
  }
  for (const char* hosts : {"localhost:2", "localhost:1,localhost:1", "b:2,localhost:2", "localhost7:1,b:1"}) {
    CAPTURE(hosts);
    CHECK_NOTHROW(check(hosts));
  }
}

TEST_CASE("hfrun: this host is known by the loopback's names and by its own, but not as another user's") {
  for (const char* name : {"localhost", "127.0.0.1", "::1"}) {
    CHECK(hfrun::is_this_host(name));
  }
  for (const char* name : {"me@localhost", "localhost7", "another.host.invalid", ""}) {
    CHECK_FALSE(hfrun::is_this_host(name));
  }
}

TEST_CASE("hfrun: a host file has a host a line") {
  const std::string path = "/tmp/hfrun-hosts-" + std::to_string(::getpid());
  const auto read = [&](const char* text) {
    std::FILE* const file = std::fopen(path.c_str(), "w");
    std::fputs(text, file);
    std::fclose(file);
    return hfrun::read_hosts(path);
  };
  const auto hosts = read("# machines\n\na\nb:4\n  c slots=2 # the slow one\n");
  REQUIRE(hosts.size() == 3);
  CHECK(hosts[0].name == "a");
  CHECK(hosts[1].slots == 4);
  CHECK(hosts[2].name == "c");
  CHECK(hosts[2].slots == 2);
  CHECK_THROWS_AS(static_cast<void>(read("# none\n")), hfrun::usage_error);
  CHECK_THROWS_AS(static_cast<void>(read("a max_slots=2\n")), hfrun::usage_error);
  CHECK_THROWS_AS(static_cast<void>(read("a slots=none\n")), hfrun::usage_error);
  ::unlink(path.c_str());
}

TEST_CASE("hfrun: a job's part arrives as it was sent, and no byte after it is read") {
  hfrun::job_part part;
  part.host = "mlt1";
  part.directory = "/a b";
  part.marker = "hfrun-1";
  part.first_rank = 3;
  part.ranks = 2;
  part.prefix = false;
  part.ignored_signals = {1, 15};
  part.environment = {"HFCOMM_SECRET=x y", "EMPTY="};
  part.command = {"./train", "", "two\nlines"};
  const auto through_pipe = [](const std::string& bytes, char* next) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    REQUIRE(::write(ends[1], bytes.data(), bytes.size()) == static_cast<::ssize_t>(bytes.size()));
    ::close(ends[1]);
    struct closer {
      int fd;
      ~closer() { ::close(fd); }
    } const reading{ends[0]};
    auto found = hfrun::read_part(ends[0]);
    if (next != nullptr) {
      CHECK(::read(ends[0], next, 1) == 1);
    }
    return found;
  };
  char next = 0;
  const auto found = through_pipe(to_bytes(part) + '\x0f', &next);
  CHECK(next == '\x0f');
  CHECK(found.host == part.host);
  CHECK(found.directory == part.directory);
  CHECK(found.marker == part.marker);
  CHECK(found.first_rank == 3);
  CHECK(found.ranks == 2);
  CHECK_FALSE(found.prefix);
  CHECK(found.ignored_signals == part.ignored_signals);
  CHECK(found.environment == part.environment);
  CHECK(found.command == part.command);
  const std::string bytes = to_bytes(part);
  CHECK_THROWS(static_cast<void>(through_pipe("", nullptr)));
  CHECK_THROWS(static_cast<void>(through_pipe(bytes.substr(0, bytes.size() - 1), nullptr)));
  CHECK_THROWS(static_cast<void>(through_pipe("ssh: hello", nullptr)));
  CHECK_THROWS(static_cast<void>(through_pipe("hfrun1" + bytes.substr(6), nullptr)));
}
