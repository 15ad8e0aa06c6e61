// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/machine/shared_segment.hpp>
#include <hfcomm/machine/unix_socket.hpp>
#include <hfcomm/rendezvous/address_exchange.hpp>
#include <hfcomm/rendezvous/detail/address_exchange-inl.hpp>
#include <hfcomm/rendezvous/pmi_client.hpp>

namespace hfcomm::rendezvous {

HFCOMM_INLINE pmi_client::pmi_client(int descriptor)
    : server_(::fcntl(descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1)), process_(::getpid()) {
  int type = 0;
  ::socklen_t length = sizeof(type);
  if (!server_ || ::getsockopt(server_.get(), SOL_SOCKET, SO_TYPE, &type, &length) != 0) {
    throw_system(detail::concat({"using the launcher's PMI server, descriptor ", descriptor}));
  }
  ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init");
  space_ = field(ask("cmd=get_my_kvsname", "my_kvsname"), "kvsname").value_or("");
}

HFCOMM_INLINE pmi_client::~pmi_client() {
  if (::getpid() == process_) {
    try {
      send("cmd=finalize");
      static_cast<void>(receive(std::chrono::seconds(1)));
    } catch (const engine_error&) {
      // MPI_Finalize has said it before.
    }
  }
}

HFCOMM_INLINE std::shared_ptr<pmi_client> pmi_client::of_process() {
  const char* const text = std::getenv("PMI_FD");
  static const auto client = std::make_shared<pmi_client>(text != nullptr ? std::atoi(text) : -1);
  return client;
}

HFCOMM_INLINE void pmi_client::put(std::string_view key, std::string_view value) {
  ask(detail::concat({"cmd=put kvsname=", space_, " key=", key, " value=", value}), "put_result");
}

HFCOMM_INLINE void pmi_client::enter_barrier() { send("cmd=barrier_in"); }

HFCOMM_INLINE bool pmi_client::has_barrier_ended() {
  const auto line = receive(std::chrono::milliseconds(0));
  if (line && (field(*line, "cmd") != "barrier_out" || field(*line, "rc").value_or("0") != "0")) {
    detail::throw_error<engine_error>({"the launcher's PMI server ended a barrier with \"", *line, '"'});
  }
  return line.has_value();
}

HFCOMM_INLINE std::optional<std::string> pmi_client::get(std::string_view key) {
  send(detail::concat({"cmd=get kvsname=", space_, " key=", key}));
  const auto line = receive(std::chrono::seconds(10));
  if (!line || field(*line, "cmd") != "get_result") {
    detail::throw_error<engine_error>({"the launcher's PMI server answered a get with \"", line.value_or(""), '"'});
  }
  const auto value = field(*line, "value");
  return field(*line, "rc") == "0" && value ? std::optional<std::string>(*value) : std::nullopt;
}

HFCOMM_INLINE std::optional<std::string_view> pmi_client::field(std::string_view line, std::string_view key) {
  while (!line.empty()) {
    const auto word = line.substr(0, line.find(' '));
    if (word.size() > key.size() && word.starts_with(key) && word[key.size()] == '=') {
      return word.substr(key.size() + 1);
    }
    line.remove_prefix(word.size() < line.size() ? word.size() + 1 : word.size());
  }
  return std::nullopt;
}

HFCOMM_INLINE void pmi_client::send(const std::string& line) {
  const std::string bytes = detail::concat({line, '\n'});
  for (std::size_t sent = 0; sent < bytes.size();) {
    const ::ssize_t count = ::send(server_.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno != EINTR) {
      throw_system("writing to the launcher's PMI server");
    }
    sent += static_cast<std::size_t>(count > 0 ? count : 0);
  }
}

HFCOMM_INLINE std::optional<std::string> pmi_client::receive(std::chrono::milliseconds limit) {
  constexpr std::size_t longest_line = 4096;
  const auto give_up = clock::now() + limit;
  while (true) {
    if (const auto end = received_.find('\n'); end != std::string::npos) {
      std::string line = received_.substr(0, end);
      received_.erase(0, end + 1);
      return line;
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(give_up - clock::now()).count();
    pollfd event{server_.get(), POLLIN, 0};
    const int ready = ::poll(&event, 1, static_cast<int>(left > 0 ? left : 0));
    if (ready <= 0) {
      if (left <= 0) {
        return std::nullopt;
      }
      continue;
    }
    std::array<char, 1024> piece{};
    const ::ssize_t count = ::recv(server_.get(), piece.data(), piece.size(), MSG_DONTWAIT);
    if (count == 0) {
      detail::throw_error<engine_error>({"the launcher's PMI server closed the connection"});
    }
    if (received_.size() > longest_line) {
      detail::throw_error<engine_error>({"the launcher's PMI server has sent a line of more than 4 KiB"});
    }
    if (count < 0 && errno != EINTR && errno != EAGAIN) {
      throw_system("reading from the launcher's PMI server");
    }
    received_.append(piece.data(), static_cast<std::size_t>(count > 0 ? count : 0));
  }
}

HFCOMM_INLINE std::string pmi_client::ask(const std::string& command, std::string_view answer) {
  send(command);
  const auto line = receive(std::chrono::seconds(10));
  if (!line || field(*line, "cmd") != answer || field(*line, "rc").value_or("0") != "0") {
    detail::throw_error<engine_error>({"the launcher's PMI server answered \"", line.value_or(""), "\" to \"", command,
                                       "\"; set HFCOMM_ADDRESS to do without it"});
  }
  return *line;
}

namespace exchanges {

class by_pmi final : public by_fence {
 public:
  by_pmi(std::shared_ptr<pmi_client> client, int number)
      : by_fence("PMI", detail::concat({"hfcomm-root-", number})), client_(std::move(client)) {}

 private:
  void enter_fence(const std::string& address) override {
    if (!address.empty()) {
      client_->put(key(), address);
    }
    client_->enter_barrier();
  }
  bool has_fence_ended() override { return client_->has_barrier_ended(); }
  std::optional<std::string> get(const std::string& key) override { return client_->get(key); }

  std::shared_ptr<pmi_client> client_;
};

}  // namespace exchanges

HFCOMM_INLINE std::unique_ptr<address_exchange> exchange_by_pmi(std::shared_ptr<pmi_client> client, int number) {
  return std::make_unique<exchanges::by_pmi>(std::move(client), number);
}

}  // namespace hfcomm::rendezvous
