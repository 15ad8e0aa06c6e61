// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <unistd.h>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/detail/numbers.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/core/std_algorithm.hpp>
#include <hfcomm/core/version.hpp>
#include <hfcomm/engine/call_text.hpp>
#include <hfcomm/engine/host_engine.hpp>
#include <hfcomm/engine/machine_connection.hpp>
#include <hfcomm/engine/shared_memory/memory.hpp>
#include <hfcomm/machine/roster.hpp>
#include <hfcomm/machine/unix_socket.hpp>
#include <hfcomm/machine/waiting.hpp>

/// Packets of the rendezvous, and the state that it ends with.
namespace hfcomm::rendezvous {

/// A process's part of its job: the world group's engine and the job's roster.
struct membership {
  std::shared_ptr<engines::host_engine> engine;
  std::shared_ptr<rendezvous::roster> roster;
  std::shared_ptr<engines::host_engine> local{};    ///< Of this machine's ranks; null where they are one, or all ranks.
  std::shared_ptr<engines::host_engine> leaders{};  ///< Of the machines' first ranks; null on the other ranks.
  int node = 0;
  int nodes = 1;
  std::shared_ptr<engines::machine_connection>
      connection{};  ///< Of this process, where it connects its machine to others.
};

namespace local {

/// The first packet of a rank, by which it introduces itself to the leader of its machine.
struct hello {
  char magic[8] = {'h', 'f', 'c', 'o', 'm', 'm', '-', '1'};
  std::uint32_t version = wire_version;
  std::uint32_t block_bytes = sizeof(engines::layout::rank_block);  // another compiler's layout is another version
  std::int32_t rank = 0;
  std::int32_t world_size = 0;
  std::int32_t pid = 0;
  std::int32_t milliseconds_left = -1;  // until it gives up; negative: it waits for ever

  [[nodiscard]] static hello of(int rank, int world_size, deadline give_up) {
    hello introduction;
    introduction.rank = rank;
    introduction.world_size = world_size;
    introduction.pid = static_cast<std::int32_t>(::getpid());
    introduction.milliseconds_left = give_up.milliseconds_left();
    return introduction;
  }

  /// Returns the introduction in a packet; nullopt where it is none of hfcomm's.
  [[nodiscard]] static std::optional<hello> from(std::span<const std::byte> packet) {
    hello introduction;
    if (packet.size() != sizeof(hello)) {
      return std::nullopt;
    }
    std::memcpy(&introduction, packet.data(), sizeof(hello));
    const bool comes_from_hfcomm = std::memcmp(introduction.magic, hello{}.magic, sizeof(magic)) == 0;
    return comes_from_hfcomm ? std::optional<hello>(introduction) : std::nullopt;
  }
};

/// The first byte of every other packet. The leader sends `admitted` at once, and `welcome` with the job's memory when
/// all ranks have come. The other ranks answer `ready`, and the leader lets them `go`. A leader that is not rank 0
/// sends rank 0 the `root`'s address, for it to publish. The last three are errors with a text, and the leaders of
/// several machines have the same ones: usage_error, engine_error and timeout_error.
inline constexpr std::byte admitted{'s'}, root{'a'}, welcome{'w'}, ready{'r'}, go{'g'}, refused{6}, failed{7},
    timed_out{8};

/// Prints one line about the ranks that have not come, after the usual time.
class start_warning {
 public:
  template <class Missing>
  void check(Missing&& missing) {
    if (!has_warned_ && clock::now() - start_ >= after_) {
      has_warned_ = true;
      std::fprintf(stderr, "[hfcomm] init: still waiting after %s for %s to start\n",
                   engines::format_duration(after_).c_str(), missing().c_str());
    }
  }

 private:
  clock::time_point start_ = clock::now();
  std::chrono::milliseconds after_ = hfcomm::detail::warning_time();
  bool has_warned_ = false;
};

/// Sends a packet of that kind, cut to the longest packet.
[[gnu::cold]] inline void send_text(local_connection& connection, std::byte kind, const std::string& text) {
  std::string bytes = static_cast<char>(kind) + text;
  bytes.resize(std::min(bytes.size(), local_connection::max_packet));
  connection.send(std::as_bytes(std::span(bytes)));
}

/// Returns the text of a `timed_out` packet, which begins with the missing ranks: "1 4\nthe error".
[[gnu::cold]] inline std::string timed_out_text(const std::vector<int>& missing, const std::string& error) {
  std::string text;
  for (const int rank : missing) {
    detail::append(text, {rank, ' '});
  }
  return detail::concat({text, '\n', error});
}

/// Throws timeout_error from the text of a `timed_out` packet.
[[noreturn, gnu::cold]] inline void throw_timed_out(const std::string& text) {
  const auto end = text.find('\n');
  std::string_view ranks = std::string_view(text).substr(0, end);
  std::vector<int> missing;
  while (const auto rank = detail::take_number(ranks)) {
    missing.push_back(*rank);
    ranks.remove_prefix(std::min<std::size_t>(ranks.size(), 1));
  }
  const auto reason = end != std::string::npos ? std::string_view(text).substr(end + 1) : std::string_view();
  detail::throw_error<timeout_error>({reason}, missing);
}

inline std::string text_of(const packet& message) {
  return {reinterpret_cast<const char*>(message.bytes.data()) + 1, message.bytes.size() - 1};
}

/// Throws the error of a packet of that kind; returns where the kind is none of an error.
[[gnu::cold]] inline void throw_if_error(std::byte kind, const std::string& text) {
  if (kind == refused) {
    detail::throw_error<usage_error>({text});
  }
  if (kind == failed) {
    detail::throw_error<engine_error>({text});
  }
  if (kind == timed_out) {
    throw_timed_out(text);
  }
}

/// Returns `start()`. Where that throws, all who take part in the start get the reason first, by `tell(kind, text)`.
template <class Start, class Tell>
membership start_or_tell(Start&& start, Tell&& tell) {
  try {
    return std::forward<Start>(start)();
  } catch (const timeout_error& problem) {
    tell(timed_out, timed_out_text(problem.missing(), problem.detail()));
    throw;
  } catch (const usage_error& problem) {
    tell(refused, problem.detail());
    throw;
  } catch (const error& problem) {
    tell(failed, problem.detail());
    throw;
  }
}

/// Returns the name of the machine's leader, whose rank may be unknown to the others.
inline std::string leader_name(std::optional<int> leader) {
  return leader ? engines::list_ranks({&*leader, 1}) : "the process that leads the start on this machine";
}

/// Throws timeout_error: the leader has not answered.
[[noreturn, gnu::cold]] inline void throw_silent(std::optional<int> leader) {
  detail::throw_error<timeout_error>(
      {"timed out: the job did not start in time: ", leader_name(leader), " is there, but does not answer"},
      leader ? std::vector{*leader} : std::vector<int>{});
}

/// Throws the error that the leader sent, if the packet is one, and engine_error where the leader has closed the
/// connection.
[[gnu::cold]] inline void throw_if_refused(const packet& answer, std::optional<int> leader) {
  if (answer.bytes.empty()) {
    detail::throw_error<engine_error>({leader_name(leader), " went away while the job was starting"});
  }
  throw_if_error(answer.bytes.front(), text_of(answer));
}

}  // namespace local

}  // namespace hfcomm::rendezvous
