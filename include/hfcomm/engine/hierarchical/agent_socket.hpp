// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/core/error.hpp>
#include <hfcomm/core/function_ref.hpp>
#include <hfcomm/engine/hierarchical/connected_port.hpp>
#include <hfcomm/machine/agent_bell.hpp>
#include <hfcomm/machine/shared_segment.hpp>
#include <hfcomm/machine/unix_socket.hpp>

/// How ranks of other processes give their agent the memory of a new group.
namespace hfcomm::engines {

/// A new group, in a packet: its number, and its members as indices into the job's roster.
struct group_packet {
  std::uint64_t id = 0;
  std::vector<std::uint16_t> members;

  [[nodiscard]] std::vector<std::byte> encode() const {
    std::vector<std::byte> bytes(sizeof(id) + members.size() * sizeof(std::uint16_t));
    std::memcpy(bytes.data(), &id, sizeof(id));
    std::memcpy(bytes.data() + sizeof(id), members.data(), bytes.size() - sizeof(id));
    return bytes;
  }

  static std::optional<group_packet> decode(std::span<const std::byte> bytes) {
    if (bytes.size() < sizeof(id) || (bytes.size() - sizeof(id)) % sizeof(std::uint16_t) != 0) {
      return std::nullopt;
    }
    group_packet packet;
    packet.members.resize((bytes.size() - sizeof(id)) / sizeof(std::uint16_t));
    std::memcpy(&packet.id, bytes.data(), sizeof(id));
    std::memcpy(packet.members.data(), bytes.data() + sizeof(id), bytes.size() - sizeof(id));
    return packet;
  }
};

/// The agent's end. Answers with one packet: empty text where the agent has the group, else the reason.
class agent_socket {
 public:
  explicit agent_socket(const std::string& name) : listener_(name) {}

  [[nodiscard]] int fd() const noexcept { return listener_.fd(); }

  /// Takes the groups that have come. A rank of this machine sends its packet right after it has connected.
  void serve(function_ref<void(const group_packet&, rendezvous::unique_fd)> add) {
    while (auto connection = listener_.accept(std::chrono::milliseconds(0))) {
      auto packet = connection->receive(std::chrono::milliseconds(100));
      if (!packet) {
        continue;
      }
      std::string problem = "it was no request for a group";
      const auto group = group_packet::decode(packet->bytes);
      if (group && packet->fds.size() == 1) {
        try {
          add(*group, std::move(packet->fds.front()));
          problem.clear();
        } catch (const std::exception& failure) {
          problem = failure.what();
        }
      }
      problem.resize(std::min(problem.size(), rendezvous::local_connection::max_packet - 1));
      static_cast<void>(connection->send(std::as_bytes(std::span(problem.c_str(), problem.size() + 1))));
    }
  }

 private:
  rendezvous::local_listener listener_;
};

/// The port of ranks in other processes than the agent's.
class socket_agent_port final : public connected_port {
 public:
  socket_agent_port(std::shared_ptr<const rendezvous::agent_bell> bell, std::string name)
      : bell_(std::move(bell)), name_(std::move(name)) {}

  [[nodiscard]] const std::shared_ptr<const rendezvous::agent_bell>& bell() const noexcept override { return bell_; }

  void add_group(std::uint64_t id, const std::vector<int>& members,
                 const std::shared_ptr<rendezvous::shared_segment>& memory) override {
    const auto lost = [] { return engine_error(error_context{}, "the agent of this machine does not answer"); };
    auto connection = rendezvous::connect_to(name_);
    const auto packet = group_packet{id, {members.begin(), members.end()}}.encode();
    const int fd = memory->fd();
    if (!connection || !connection->send(packet, {&fd, 1})) {
      throw lost();
    }
    bell_->ring();
    for (int attempt = 0; attempt < 250; ++attempt) {
      if (const auto answer = connection->receive(std::chrono::milliseconds(20))) {
        if (answer->bytes.empty()) {
          throw lost();
        }
        const std::string problem(reinterpret_cast<const char*>(answer->bytes.data()), answer->bytes.size() - 1);
        if (!problem.empty()) {
          detail::throw_error<engine_error>({"the agent of this machine cannot take the group: ", problem});
        }
        return;
      }
    }
    throw lost();
  }

 private:
  std::shared_ptr<const rendezvous::agent_bell> bell_;
  std::string name_;
};

}  // namespace hfcomm::engines
