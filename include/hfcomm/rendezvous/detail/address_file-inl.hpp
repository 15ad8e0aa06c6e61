// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/machine/random_id.hpp>
#include <hfcomm/machine/shared_segment.hpp>
#include <hfcomm/machine/unix_socket.hpp>
#include <hfcomm/rendezvous/address_exchange.hpp>

namespace hfcomm::rendezvous {

namespace exchanges {

class in_file final : public address_exchange {
 public:
  explicit in_file(std::string path) : path_(std::move(path)) {}
  ~in_file() override { withdraw(); }

  void publish(const root_address& address) override {
    static_cast<void>(read());  // does not replace a file that is something else
    const std::string text = detail::concat({to_text(address), '\n'});
    const std::string temporary = detail::concat({path_, '.', random_id()});
    write(temporary, text);
    if (std::rename(temporary.c_str(), path_.c_str()) != 0) {
      const int problem = errno;
      ::unlink(temporary.c_str());
      throw_system(detail::concat({"moving the root's address to ", path_}), problem);
    }
    published_ = address.nonce;
    is_done_ = true;
  }

  void look_up() override { is_done_ = false; }
  void attend() override { is_done_ = true; }

  bool is_done() override {
    if (is_done_ || clock::now() < next_) {
      return is_done_;
    }
    next_ = clock::now() + std::chrono::milliseconds(20);  // a shared file system is no place to read all the time
    refresh();
    is_done_ = !found_.hosts.empty();
    return is_done_;
  }

  void refresh() override {
    if (auto address = read()) {
      found_ = std::move(*address);
    }
  }

 private:
  /// Returns the address in the file; nullopt where there is no file, or an empty one, yet.
  [[nodiscard]] std::optional<root_address> read() const {
    const unique_fd file(::open(path_.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    struct stat state{};
    if (!file || ::fstat(file.get(), &state) != 0) {
      // A network file system may say so for a moment while another machine replaces the file.
      if (errno == ENOENT || errno == ESTALE || errno == EIO || errno == EINTR) {
        return std::nullopt;
      }
      throw_system(detail::concat({"opening ", path_, " for the root's address"}));
    }
    if (!S_ISREG(state.st_mode) || state.st_uid != ::geteuid() || (state.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
      detail::throw_error<engine_error>({path_,
                                         " is not trusted with the root's address: it is no file, or another "
                                         "user's, or others may write into it; remove it or name another"});
    }
    std::array<char, longest_root_address + 2> bytes{};
    const ::ssize_t count = ::read(file.get(), bytes.data(), bytes.size());
    if (count <= 0) {
      return std::nullopt;
    }
    std::string_view text(bytes.data(), static_cast<std::size_t>(count));
    text.remove_suffix(text.ends_with('\n') ? 1 : 0);
    auto address = parse_root_address(text);
    if (!address) {
      detail::throw_error<engine_error>(
          {path_, " holds something else than the root's address; remove it or name another"});
    }
    return address;
  }

  /// Writes a new file, whole or not at all.
  static void write(const std::string& path, std::string_view text) {
    unique_fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!file) {
      throw_system(detail::concat({"making ", path, " for the root's address"}));
    }
    const ::ssize_t count = ::write(file.get(), text.data(), text.size());
    if (count != static_cast<::ssize_t>(text.size()) || ::fsync(file.get()) != 0) {
      const int problem = count >= 0 && count != static_cast<::ssize_t>(text.size()) ? ENOSPC : errno;
      ::unlink(path.c_str());
      throw_system(detail::concat({"writing the root's address into ", path}), problem);
    }
  }

  /// Removes the file where this process has published it, and no other root has replaced it.
  void withdraw() const noexcept {
    try {
      if (const auto address = read(); published_ && address && address->nonce == *published_) {
        ::unlink(path_.c_str());
      }
    } catch (...) {
      // Then it is not this process's file.
    }
  }

  std::string path_;
  std::optional<std::string> published_;  ///< The nonce in the file.
  clock::time_point next_{};
  bool is_done_ = false;
};

}  // namespace exchanges

HFCOMM_INLINE std::unique_ptr<address_exchange> exchange_in_file(std::string path) {
  return std::make_unique<exchanges::in_file>(std::move(path));
}

}  // namespace hfcomm::rendezvous
