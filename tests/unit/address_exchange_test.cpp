// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include <hfcomm/core/error.hpp>
#include <hfcomm/core/plain_list.hpp>
#include <hfcomm/machine/network_interfaces.hpp>
#include <hfcomm/machine/random_id.hpp>
#include <hfcomm/machine/shared_segment.hpp>
#include <hfcomm/machine/unix_socket.hpp>
#include <hfcomm/rendezvous/address_exchange.hpp>
#include <hfcomm/rendezvous/pmi_client.hpp>

namespace {

using namespace hfcomm::rendezvous;
using hfcomm::engine_error;

const root_address somewhere{{"10.77.0.1", "fd77::1", "mlt0.lan"}, {20001, 20002}, "0123abcd"};

/// A path that is not there; what is there in the end is removed.
class temporary_path {
 public:
  temporary_path() : folder_(std::filesystem::temp_directory_path() / ("hfcomm-test-" + random_id())) {
    std::filesystem::create_directory(folder_);
  }
  ~temporary_path() { std::filesystem::remove_all(folder_); }
  [[nodiscard]] std::string string() const { return (folder_ / "address").string(); }
  [[nodiscard]] std::size_t files_beside() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }

 private:
  std::filesystem::path folder_;
};

void write_file(const std::string& path, std::string_view text) { std::ofstream(path) << text; }

/// A PMI-1 server for some clients, each on a thread, with the lines that MPICH's proxy answers.
class pmi_server {
 public:
  explicit pmi_server(std::size_t clients) : clients_(clients), waiting_(0) {
    for (std::size_t index = 0; index < clients; ++index) {
      std::array<int, 2> ends{};
      REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
      client_ends_.emplace_back(ends[0]);
      server_ends_.emplace_back(ends[1]);
    }
    thread_ = std::thread([this] { serve(); });
  }
  ~pmi_server() { finish(); }
  /// Waits until all clients have ended.
  void finish() {
    client_ends_.clear();
    if (thread_.joinable()) {
      thread_.join();
    }
  }
  [[nodiscard]] int client_end(std::size_t index) const { return client_ends_[index].get(); }
  /// Returns how many clients said `finalize`. After finish().
  [[nodiscard]] int finalized() const { return finalized_; }

 private:
  void serve() {
    hfcomm::detail::plain_list<pollfd> events;
    for (const auto& end : server_ends_) {
      events.push_back({end.get(), POLLIN, 0});
    }
    for (std::size_t open = events.size(); open > 0;) {
      ::poll(events.data(), events.size(), -1);
      for (auto& event : events) {
        if (event.revents == 0) {
          continue;
        }
        std::string line;
        char letter = 0;
        while (::read(event.fd, &letter, 1) == 1 && letter != '\n') {
          line += letter;
        }
        if (line.empty()) {
          event.fd = -1;
          --open;
        } else {
          answer(event.fd, line);
        }
      }
    }
  }

  void answer(int client, const std::string& line) {
    const auto say = [](int to, const std::string& text) {
      const std::string bytes = text + '\n';
      (void)::write(to, bytes.data(), bytes.size() / 2);  // in two pieces
      (void)::write(to, bytes.data() + bytes.size() / 2, bytes.size() - bytes.size() / 2);
    };
    const auto field = [&](const char* key) { return std::string(pmi_client::field(line, key).value_or("")); };
    const auto command = field("cmd");
    if (command == "init") {
      say(client, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0");
    } else if (command == "get_my_kvsname") {
      say(client, "cmd=my_kvsname kvsname=kvs_1_0_mlt0");
    } else if (command == "put") {
      const bool is_new = field("kvsname") == "kvs_1_0_mlt0" && values_.emplace(field("key"), field("value")).second;
      say(client, is_new ? "cmd=put_result rc=0 msg=success" : "cmd=put_result rc=-1 msg=duplicate_key");
    } else if (command == "get") {
      const auto found = values_.find(field("key"));
      say(client, found != values_.end() ? "cmd=get_result rc=0 msg=success value=" + found->second
                                         : "cmd=get_result rc=-1 msg=key_not_found value=unknown");
    } else if (command == "barrier_in") {
      if (++waiting_ == clients_) {
        waiting_ = 0;
        for (const auto& one : server_ends_) {
          say(one.get(), "cmd=barrier_out");
        }
      }
    } else if (command == "finalize") {
      ++finalized_;
      say(client, "cmd=finalize_ack");
    }
  }

  std::size_t clients_;
  std::size_t waiting_;
  std::vector<unique_fd> client_ends_, server_ends_;
  std::map<std::string, std::string> values_;
  int finalized_ = 0;
  std::thread thread_;
};

}  // namespace

TEST_CASE("address exchange: an address becomes a text and the same address again") {
  CHECK(to_text(somewhere) == "hfcomm1/0123abcd/10.77.0.1,fd77::1,mlt0.lan/20001,20002");
  const auto found = parse_root_address(to_text(somewhere));
  REQUIRE(found);
  CHECK(found->hosts == somewhere.hosts);
  CHECK(found->ports == somewhere.ports);
  CHECK(found->nonce == somewhere.nonce);
  CHECK(to_text({{"h"}, {1}, ""}) == "hfcomm1//h/1");
  for (const std::string text :
       {"", "hfcomm1", "hfcomm1///", "hfcomm1/n/h/", "hfcomm1/n//1", "hfcomm2/n/h/1", "hfcomm1/n/h/0",
        "hfcomm1/n/h/65536", "hfcomm1/n/h/1,", "hfcomm1/n/h,/1", "hfcomm1/n/,h/1", "hfcomm1/n/h h/1", "hfcomm1/n n/h/1",
        "hfcomm1/n/h/1 ", "hfcomm1/n/h/1/2", "hfcomm1/n/h/x"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_root_address(text));
  }
  CHECK_FALSE(parse_root_address("hfcomm1/" + std::string(1000, 'n') + "/h/1"));
  CHECK_THROWS_AS(static_cast<void>(to_text({{"a b"}, {1}, ""})), engine_error);
  CHECK_THROWS_AS(static_cast<void>(to_text({{}, {1}, ""})), engine_error);
  CHECK_THROWS_AS(static_cast<void>(to_text({{"h"}, {}, ""})), engine_error);
  CHECK_THROWS_AS(static_cast<void>(to_text({std::vector<std::string>(17, "h"), {1}, ""})), engine_error);
}

TEST_CASE("address exchange: a known address is there at once") {
  const auto exchange = std::make_unique<hfcomm::rendezvous::address_exchange>(somewhere);
  exchange->look_up();
  CHECK(exchange->is_done());
  CHECK(exchange->found().hosts == somewhere.hosts);
  exchange->refresh();
  CHECK(exchange->found().hosts == somewhere.hosts);
  CHECK_FALSE(exchange->needs_all_ranks());
}

TEST_CASE("address exchange: a file carries the address, and the root removes it") {
  const temporary_path path;
  auto root = exchange_in_file(path.string());
  const auto leader = exchange_in_file(path.string());
  leader->look_up();
  CHECK_FALSE(leader->is_done());
  root->publish(somewhere);
  CHECK(root->is_done());
  struct stat state{};
  REQUIRE(::stat(path.string().c_str(), &state) == 0);
  CHECK((state.st_mode & 0777) == 0600);
  CHECK(path.files_beside() == 1);
  finish_exchange(*leader, deadline::in(std::chrono::seconds(5)), "a test");
  CHECK(leader->found().nonce == "0123abcd");
  root.reset();
  CHECK(path.files_beside() == 0);
}

TEST_CASE("address exchange: the file of an earlier job is replaced by the next root") {
  const temporary_path path;
  write_file(path.string(), "hfcomm1/old/10.77.0.9/20009\n");
  const auto leader = exchange_in_file(path.string());
  leader->look_up();
  finish_exchange(*leader, deadline::in(std::chrono::seconds(5)), "a test");
  CHECK(leader->found().nonce == "old");
  leader->refresh();
  CHECK(leader->found().nonce == "old");
  auto root = exchange_in_file(path.string());
  root->publish(somewhere);
  leader->refresh();
  CHECK(leader->found().nonce == "0123abcd");
  root.reset();
  leader->refresh();
  CHECK(leader->found().nonce == "0123abcd");
}

TEST_CASE("address exchange: a root does not remove the file of another") {
  const temporary_path path;
  auto first = exchange_in_file(path.string());
  first->publish(somewhere);
  const auto second = exchange_in_file(path.string());
  second->publish({{"10.77.0.2"}, {1}, "second"});
  first.reset();
  CHECK(path.files_beside() == 1);
}

TEST_CASE("address exchange: an empty file is waited for; one with other content or for others to write is an error") {
  const temporary_path path;
  const auto leader = exchange_in_file(path.string());
  write_file(path.string(), "");
  leader->look_up();
  CHECK_FALSE(leader->is_done());
  const auto refused = [&] {
    CHECK_THROWS_AS(
        {
          const auto other = exchange_in_file(path.string());
          other->look_up();
          static_cast<void>(other->is_done());
        },
        engine_error);
    CHECK_THROWS_AS(exchange_in_file(path.string())->publish(somewhere), engine_error);
  };
  write_file(path.string(), "my thesis");
  refused();
  std::ifstream file(path.string());
  CHECK(std::string(std::istreambuf_iterator<char>(file), {}) == "my thesis");
  write_file(path.string(), std::string(5000, 'x'));
  refused();
  write_file(path.string(), "hfcomm1/n/h/1\n");
  REQUIRE(::chmod(path.string().c_str(), 0666) == 0);
  refused();
  std::filesystem::remove(path.string());
  std::filesystem::create_symlink("/etc/hostname", path.string());
  refused();
  std::filesystem::remove(path.string());
  REQUIRE(::mkfifo(path.string().c_str(), 0600) == 0);  // must not block either
  refused();
  CHECK_THROWS_AS(exchange_in_file(path.string() + "/not/there")->publish(somewhere), engine_error);
}

TEST_CASE("address exchange: PMI-1 carries the address once all ranks have started") {
  for (int start = 1; start <= 2; ++start) {
    pmi_server server(3);
    {
      std::vector<std::shared_ptr<pmi_client>> clients;
      for (std::size_t index = 0; index < 3; ++index) {
        clients.push_back(std::make_shared<pmi_client>(server.client_end(index)));
      }
      const auto root = exchange_by_pmi(clients[0], start);
      const auto leader = exchange_by_pmi(clients[1], start);
      const auto member = exchange_by_pmi(clients[2], start);
      CHECK(root->needs_all_ranks());
      root->publish(somewhere);
      leader->look_up();
      CHECK_FALSE(root->is_done());
      CHECK_FALSE(leader->is_done());
      CHECK_THROWS_AS(finish_exchange(*leader, deadline::in(std::chrono::milliseconds(50)), "the PMI server"),
                      hfcomm::timeout_error);
      member->attend();
      for (const auto* one : {&root, &leader, &member}) {
        finish_exchange(**one, deadline::in(std::chrono::seconds(5)), "the PMI server");
      }
      CHECK(to_text(leader->found()) == to_text(somewhere));
      CHECK_THROWS_AS(exchange_by_pmi(clients[0], start)->publish(somewhere), engine_error);  // the key is taken
    }
    server.finish();
    CHECK(server.finalized() == 3);
  }
}

TEST_CASE("address exchange: a PMI server that is gone, silent about the key or no server is an error") {
  CHECK_THROWS_AS(pmi_client(-1), engine_error);
  const unique_fd file(::open("/dev/null", O_RDWR));
  CHECK_THROWS_AS(static_cast<void>(pmi_client(file.get())), engine_error);
  {
    pmi_server server(1);
    const auto client = std::make_shared<pmi_client>(server.client_end(0));
    const auto leader = exchange_by_pmi(client, 1);
    leader->look_up();
    CHECK_THROWS_AS(finish_exchange(*leader, deadline::in(std::chrono::seconds(5)), "the PMI server"), engine_error);
  }
  std::array<int, 2> ends{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
  const unique_fd ours(ends[0]);
  ::close(ends[1]);
  CHECK_THROWS_AS(static_cast<void>(pmi_client(ours.get())), engine_error);
}

TEST_CASE("address exchange: a field of a PMI line is found by its whole name") {
  CHECK(pmi_client::field("cmd=get_result rc=0 value=a/b=c", "value") == "a/b=c");
  CHECK(pmi_client::field("cmd=x rc=0", "rc") == "0");
  CHECK(pmi_client::field("xrc=1 rc=0", "rc") == "0");
  CHECK(pmi_client::field("rc= cmd=x", "rc") == "");
  CHECK_FALSE(pmi_client::field("cmd=x rcx=0", "rc"));
  CHECK_FALSE(pmi_client::field("", "rc"));
  CHECK_FALSE(pmi_client::field("   ", "rc"));
}

TEST_CASE("network interfaces: what other machines reach, or what HFCOMM_INTERFACE names") {
  const auto one = [](const char* name, const char* address, bool up, bool v6, bool loopback, bool link_local) {
    return interface_address{name, address, up, v6, loopback, link_local};
  };
  const std::vector<interface_address> all = {
      one("lo", "127.0.0.1", true, false, true, false),     one("lo", "::1", true, true, true, false),
      one("eth0", "fd77::1", true, true, false, false),     one("eth0", "fe80::1%eth0", true, true, false, true),
      one("eth0", "10.77.0.1", true, false, false, false),  one("eth1", "10.78.0.1", false, false, false, false),
      one("ib0", "192.168.7.1", true, false, false, false), one("usb0", "169.254.3.4", true, false, false, true)};
  const auto addresses = [&](const char* chosen) {
    std::string text;
    for (const auto& found : reachable_addresses(all, chosen)) {
      text += found.address + ' ';
    }
    return text;
  };
  CHECK(addresses("") == "10.77.0.1 192.168.7.1 fd77::1 ");
  CHECK(addresses("ib0") == "192.168.7.1 ");
  CHECK(addresses("ib0,eth0") == "192.168.7.1 10.77.0.1 fd77::1 ");
  CHECK(addresses("fd77::1") == "fd77::1 ");
  CHECK(addresses("lo") == "127.0.0.1 ::1 ");
  CHECK(addresses("fe80::1%eth0") == "fe80::1%eth0 ");
  CHECK(addresses("eth1").empty());
  CHECK(addresses("eth").empty());
  CHECK(addresses(",").empty());
  const auto here = network_addresses();
  CHECK(std::any_of(here.begin(), here.end(), [](const auto& found) { return found.is_loopback; }));
}
