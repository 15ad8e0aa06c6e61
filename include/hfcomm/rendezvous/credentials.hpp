// SPDX-License-Identifier: MIT
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/core/function_ref.hpp>
#include <hfcomm/machine/shared_segment.hpp>
#include <hfcomm/rendezvous/crypto.hpp>
#include <hfcomm/rendezvous/crypto_libraries.hpp>

namespace hfcomm::rendezvous {

/// The knowledge that the processes of a job prove to each other across machines: the job's secret, or nothing, where
/// the user has said so.
class credentials {
 public:
  /// Short secrets can be guessed by trying, from a proof that was overheard.
  static constexpr std::size_t least_bytes = 16;

  /// Nothing is proven: HFCOMM_AUTH=none.
  static credentials none() { return {}; }

  /// Throws usage_error where the secret is too short; `source` names where it comes from.
  credentials(std::string secret, const std::string& source, const crypto& functions)
      : secret_(std::move(secret)), functions_(&functions) {
    if (secret_.size() < least_bytes) {
      detail::throw_error<usage_error>({source, " has ", secret_.size(), " bytes; a job's secret needs at least ",
                                        least_bytes, ": make one with `openssl rand -hex 32`"});
    }
  }

  [[nodiscard]] bool has_secret() const noexcept { return functions_ != nullptr; }
  [[nodiscard]] byte_view secret() const { return std::as_bytes(std::span(secret_)); }
  /// The functions that prove it. Only where there is a secret.
  [[nodiscard]] const crypto& functions() const noexcept { return *functions_; }

 private:
  credentials() = default;

  std::string secret_;
  const crypto* functions_ = nullptr;
};

/// Reads a file that only this user may read, without the blanks and ends of lines at its end. Throws usage_error where
/// it cannot be read, is no regular file, belongs to another user, or lets others read or write it.
inline std::string read_secret_file(const std::string& path) {
  const std::string who = detail::concat({"HFCOMM_SECRET_FILE: ", path});
  const unique_fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // a pipe must not block
  struct stat state{};
  if (!file || ::fstat(file.get(), &state) != 0) {
    detail::throw_error<usage_error>({who, " cannot be opened: ", std::strerror(errno)});
  }
  if (!S_ISREG(state.st_mode)) {
    detail::throw_error<usage_error>({who, " is no regular file"});
  }
  if (state.st_uid != ::geteuid()) {
    detail::throw_error<usage_error>({who, " belongs to the user with number ", state.st_uid,
                                      "; it must belong to the one who runs this process, ", ::geteuid()});
  }
  if ((state.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    detail::throw_error<usage_error>({who, " may be used by other users: chmod 600 ", path});
  }
  std::string text(4097, '\0');
  const auto count = ::read(file.get(), text.data(), text.size());
  if (count < 0 || static_cast<std::size_t>(count) == text.size()) {
    detail::throw_error<usage_error>({who, count < 0 ? detail::concat({" cannot be read: ", std::strerror(errno)})
                                                     : std::string(" has more than 4096 bytes")});
  }
  text.resize(static_cast<std::size_t>(count));
  text.resize(text.find_last_not_of(" \t\r\n") + 1);
  return text;
}

/// Returns what this process proves to other machines; nullopt where the user has given neither a secret nor the word
/// that there is none. The first of these counts: `option`, HFCOMM_AUTH=none, HFCOMM_SECRET_FILE, HFCOMM_SECRET. `read`
/// returns a variable, or nullopt. Throws usage_error where one has a value that cannot be used, and engine_error where
/// this machine has no library for the proof.
inline std::optional<credentials> find_credentials(std::string_view option,
                                                   function_ref<std::optional<std::string>(const char*)> read) {
  const auto value = [&](const char* name) { return read(name).value_or(std::string()); };
  if (!option.empty()) {
    return credentials(std::string(option), "the secret in the options", find_crypto());
  }
  const std::string auth = value("HFCOMM_AUTH");
  if (auth == "none") {
    return credentials::none();
  }
  if (!auth.empty() && auth != "secret") {
    detail::throw_error<usage_error>({"HFCOMM_AUTH=", auth, ": the values are none and secret (the default)"});
  }
  if (const std::string path = value("HFCOMM_SECRET_FILE"); !path.empty()) {
    return credentials(read_secret_file(path), detail::concat({"HFCOMM_SECRET_FILE: ", path}), find_crypto());
  }
  if (std::string text = value("HFCOMM_SECRET"); !text.empty()) {
    return credentials(std::move(text), "HFCOMM_SECRET", find_crypto());
  }
  return std::nullopt;
}

/// Returns the same, where the job spans machines. Throws usage_error where there are no credentials, with what is
/// known of the machines.
inline credentials require_credentials(std::optional<credentials> found,
                                       const std::string& machines = "this job has ranks on several machines") {
  if (!found) {
    detail::throw_error<usage_error>(
        {machines,
         ", which prove to each other that they know the job's secret, and none was given. Start the "
         "ranks with hfrun, which makes one; or set "
         "HFCOMM_SECRET_FILE, on each machine, to a file with the same text that only you may read "
         "(`openssl rand -hex 32 >file; chmod 600 file`), or HFCOMM_SECRET to the text; or set "
         "HFCOMM_AUTH=none where everybody on the network is trusted"});
  }
  return std::move(*found);
}

}  // namespace hfcomm::rendezvous
