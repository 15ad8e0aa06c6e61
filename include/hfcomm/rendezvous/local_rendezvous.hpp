// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <poll.h>

#include <hfcomm/core/version.hpp>
#include <hfcomm/engine/shared_memory/job.hpp>
#include <hfcomm/engine/shared_memory/shared_memory.hpp>
#include <hfcomm/machine/random_id.hpp>
#include <hfcomm/machine/roster.hpp>
#include <hfcomm/machine/segment_broker.hpp>
#include <hfcomm/machine/unix_socket.hpp>

/// How the processes of one machine become a job.
///
/// Rank 0 listens on a socket named after the job's key; every other rank connects and says who it is. When all have
/// come, rank 0 hands each the roster and the world group's memory; each signs in and says so; when all have, rank 0
/// lets them go and the sockets close. Nothing of it stays: no file, no port, no connection.
namespace hfcomm::rendezvous {

/// What a process has once it has joined: the world group's engine and the job's roster.
struct membership {
  std::shared_ptr<host_engine> engine;
  std::shared_ptr<roster> people;
};

namespace local {

struct hello {
  char magic[8] = {'h', 'f', 'c', 'o', 'm', 'm', '-', '1'};
  std::uint32_t version = wire_version;
  std::uint32_t block_bytes = sizeof(engines::layout::rank_block);  // another compiler's layout is another version
  std::int32_t rank = 0;
  std::int32_t world_size = 0;
  std::int32_t pid = 0;

  [[nodiscard]] bool comes_from_hfcomm() const { return std::memcmp(magic, hello{}.magic, sizeof(magic)) == 0; }
};

inline constexpr std::byte welcome{'w'}, ready{'r'}, go{'g'}, refused{'x'}, failed{'e'}, too_late{'t'};

inline void send_words(local_connection& connection, std::byte kind, const std::string& words) {
  std::string text = static_cast<char>(kind) + words;
  text.resize(std::min(text.size(), local_connection::max_packet));
  connection.send(std::as_bytes(std::span(text)));
}

/// The error that rank 0 sent, if the packet is one.
inline void throw_if_refused(const packet& answer) {
  if (answer.bytes.empty()) {
    throw engine_error(error_context{}, "rank 0 went away while the job was starting");
  }
  const std::string words(reinterpret_cast<const char*>(answer.bytes.data()) + 1, answer.bytes.size() - 1);
  if (answer.bytes.front() == refused) {
    throw usage_error(error_context{}, words);
  }
  if (answer.bytes.front() == failed) {
    throw engine_error(error_context{}, words);
  }
  if (answer.bytes.front() == too_late) {
    // "1 4\nthe text"
    const auto end = std::min(words.find('\n'), words.size());
    std::istringstream list(words.substr(0, end));
    std::vector<int> missing;
    for (int rank = 0; list >> rank;) {
      missing.push_back(rank);
    }
    throw timeout_error(error_context{}, words.substr(std::min(end + 1, words.size())), std::move(missing));
  }
}

inline membership enter_world(std::shared_ptr<shared_segment> people, std::shared_ptr<shared_segment> world,
                              const std::string& id, int rank, int world_size, std::shared_ptr<segment_broker> broker) {
  auto job = std::make_shared<engines::local_job>();
  job->id = id;
  job->people = std::make_shared<roster>(std::move(people), world_size, rank);
  job->broker = std::move(broker);
  job->people->enter();
  std::vector<int> members(static_cast<std::size_t>(world_size));
  for (int member = 0; member < world_size; ++member) {
    members[static_cast<std::size_t>(member)] = member;
  }
  auto people_of_job = job->people;
  return {std::make_shared<engines::shared_memory>(id, std::move(world), std::move(job), std::move(members), rank),
          std::move(people_of_job)};
}

/// Rank 0's side.
class gathering {
 public:
  gathering(const std::string& key, int world_size, deadline give_up)
      : listener_(socket_name(key)),
        guests_(static_cast<std::size_t>(world_size)),
        world_size_(world_size),
        give_up_(give_up) {}

  membership run() {
    while (!absent_ranks().empty()) {
      if (auto connection = listener_.accept(std::chrono::milliseconds(20))) {
        strangers_.push_back(std::move(*connection));
      }
      listen_to_strangers();
      notice_departures();
      if (give_up_.passed()) {
        const auto absent = absent_ranks();
        give_up_on(absent, "the job did not start in time: " + engines::list_ranks(absent) + " did not come");
      }
    }
    const std::string id = random_id();
    auto people = shared_segment::create(roster::bytes_for(world_size_));
    roster::create_in(*people, world_size_);
    const auto sizes = engines::layout::dimensions::for_ranks(world_size_);
    auto world = shared_segment::create(sizes.total_bytes(), sizes.heap_bytes());
    engines::layout::create_in(*world, sizes);
    std::string greeting = "w" + id;
    const int fds[] = {people->fd(), world->fd()};
    for (auto& guest : guests_) {
      if (guest) {
        guest->send(std::as_bytes(std::span(greeting)), fds);
      }
    }
    membership result = enter_world(people, world, id, 0, world_size_, std::make_shared<process_broker>());
    for (std::size_t rank = 1; rank < guests_.size(); ++rank) {
      std::optional<packet> answer;
      while (!(answer = guests_[rank]->receive(std::chrono::milliseconds(20)))) {
        if (give_up_.passed()) {
          give_up_on({static_cast<int>(rank)},
                     "the job did not start in time: rank " + std::to_string(rank) + " came but did not sign in");
        }
      }
      if (answer->bytes.empty() || answer->bytes.front() != ready) {
        fail_all("rank " + std::to_string(rank) + " went away while the job was starting");
      }
    }
    for (auto& guest : guests_) {
      if (guest) {
        guest->send({&go, 1});
      }
    }
    return result;
  }

 private:
  [[nodiscard]] std::vector<int> absent_ranks() const {
    std::vector<int> absent;
    for (std::size_t rank = 1; rank < guests_.size(); ++rank) {
      if (!guests_[rank]) {
        absent.push_back(static_cast<int>(rank));
      }
    }
    return absent;
  }

  /// Nobody is waited for here: a process that connects and says nothing holds up no one.
  void listen_to_strangers() {
    for (std::size_t index = 0; index < strangers_.size();) {
      auto message = strangers_[index].receive(std::chrono::milliseconds(0));
      if (!message) {
        ++index;
        continue;
      }
      local_connection connection = std::move(strangers_[index]);
      strangers_.erase(strangers_.begin() + static_cast<std::ptrdiff_t>(index));
      hello introduction;
      if (message->bytes.size() != sizeof(hello)) {
        continue;
      }
      std::memcpy(&introduction, message->bytes.data(), sizeof(hello));
      if (introduction.comes_from_hfcomm()) {
        seat(introduction, std::move(connection));
      }
    }
  }

  void seat(const hello& guest, local_connection connection) {
    const std::string who = "the process with pid " + std::to_string(guest.pid) + ", which calls itself rank " +
                            std::to_string(guest.rank) + " of " + std::to_string(guest.world_size) + ',';
    std::string problem;
    if (guest.version != wire_version || guest.block_bytes != hello{}.block_bytes) {
      problem = who + " was built with another version of hfcomm";
    } else if (guest.world_size != world_size_) {
      problem =
          who + " disagrees about the size of the job: rank 0 was started as one of " + std::to_string(world_size_);
    } else if (guest.rank < 1 || guest.rank >= world_size_) {
      problem = who + " claims a rank that the job does not have or that is taken by rank 0";
    } else if (guests_[static_cast<std::size_t>(guest.rank)]) {
      problem = who + " claims a rank that another process has taken";
    }
    if (!problem.empty()) {
      send_words(connection, refused, problem);
      refuse_all(problem);
    }
    guests_[static_cast<std::size_t>(guest.rank)].emplace(std::move(connection));
  }

  void notice_departures() {
    for (std::size_t rank = 1; rank < guests_.size(); ++rank) {
      if (guests_[rank]) {
        if (const auto message = guests_[rank]->receive(std::chrono::milliseconds(0));
            message && message->bytes.empty()) {
          fail_all("rank " + std::to_string(rank) + " went away while the job was starting");
        }
      }
    }
  }

  void tell_all(std::byte kind, const std::string& words) {
    for (auto& guest : guests_) {
      if (guest) {
        send_words(*guest, kind, words);
      }
    }
  }
  [[noreturn]] void refuse_all(const std::string& why) {
    tell_all(refused, why);
    throw usage_error(error_context{}, why);
  }
  [[noreturn]] void fail_all(const std::string& why) {
    tell_all(failed, why);
    throw engine_error(error_context{}, why);
  }
  [[noreturn]] void give_up_on(const std::vector<int>& ranks, const std::string& why) {
    std::string words;
    for (const int rank : ranks) {
      words += std::to_string(rank) + ' ';
    }
    tell_all(too_late, words + '\n' + why);
    throw timeout_error(error_context{}, why, ranks);
  }

  local_listener listener_;
  std::vector<std::optional<local_connection>> guests_;  // by rank; [0] stays empty
  std::vector<local_connection> strangers_;              // connected, not yet introduced
  int world_size_;
  deadline give_up_;
};

/// Every other rank's side.
inline membership join(const std::string& key, int rank, int world_size, deadline give_up) {
  const std::string name = socket_name(key);
  std::optional<local_connection> connection;
  for (auto pause = std::chrono::microseconds(500); !(connection = connect_to(name));) {
    if (give_up.passed()) {
      throw timeout_error(error_context{}, "the job did not start in time: rank 0 did not come (socket @" + name + ")",
                          {0});
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds(20'000));
  }
  const auto answer_of_root = [&] {
    while (true) {
      if (auto answer = connection->receive(std::chrono::milliseconds(20))) {
        throw_if_refused(*answer);
        return std::move(*answer);
      }
      // Rank 0 knows who is missing and says so when its time is up; this rank's own time is only for want of that.
      if (give_up.passed_by(std::chrono::seconds(5))) {
        throw timeout_error(error_context{}, "the job did not start in time: rank 0 is there, but does not answer",
                            {0});
      }
    }
  };
  hello introduction;
  introduction.rank = rank;
  introduction.world_size = world_size;
  introduction.pid = static_cast<std::int32_t>(::getpid());
  connection->send(std::as_bytes(std::span(&introduction, 1)));
  packet answer = answer_of_root();
  if (answer.bytes.front() != welcome || answer.fds.size() != 2) {
    throw engine_error(error_context{}, "rank 0 did not hand over the job's memory");
  }
  const std::string id(reinterpret_cast<const char*>(answer.bytes.data()) + 1, answer.bytes.size() - 1);
  auto people = shared_segment::adopt(std::move(answer.fds[0]), roster::bytes_for(world_size));
  auto world =
      shared_segment::adopt(std::move(answer.fds[1]), engines::layout::dimensions::for_ranks(world_size).total_bytes());
  membership result = enter_world(people, world, id, rank, world_size, std::make_shared<process_broker>());
  connection->send({&ready, 1});
  if (answer_of_root().bytes.front() != go) {
    throw engine_error(error_context{}, "rank 0 did not start the job");
  }
  return result;
}

}  // namespace local

/// Meets the other ranks of the job called `key` on this machine.
/// Throws timeout_error naming the ranks that did not come, usage_error or engine_error where the ranks do not fit
/// together, on every rank that has come.
inline membership meet_on_this_machine(const std::string& key, int rank, int world_size,
                                       std::chrono::nanoseconds timeout) {
  const auto give_up = deadline::in(timeout);
  return rank == 0 ? local::gathering(key, world_size, give_up).run() : local::join(key, rank, world_size, give_up);
}

}  // namespace hfcomm::rendezvous
