// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <hfcomm/core/config.hpp>
#include <hfcomm/machine/shared_segment.hpp>

namespace hfcomm::rendezvous {

/// A client of the PMI-1 server that MPICH's, Intel's and Flux's launchers offer on a descriptor. Its lines are
/// `cmd=NAME KEY=VALUE ...`. Each function throws engine_error where the server is gone, refuses, or does not answer.
///
/// MPI in the same process may use the server before and after, because the server takes a second `init` for one. But
/// it takes no command after `finalize`, and a process that ends without it has failed. So the client says `finalize`
/// in its destructor. Then MPI_Finalize may have said so before; that answer is not waited for.
class pmi_client {
 public:
  /// Takes a duplicate of the descriptor, which MPI closes when it ends. Says `init`.
  explicit pmi_client(int descriptor);
  pmi_client(const pmi_client&) = delete;
  pmi_client& operator=(const pmi_client&) = delete;
  ~pmi_client();

  /// Returns the client of this process's PMI_FD, which lives until the process ends.
  HFCOMM_PROCESS_STATE static std::shared_ptr<pmi_client> of_process();

  /// Stores a value, which has no spaces. Other ranks can get it after a barrier.
  void put(std::string_view key, std::string_view value);
  /// Enters the barrier of all ranks. No other command may follow before it has ended.
  void enter_barrier();
  /// Returns whether all ranks have entered the barrier. Does not wait.
  bool has_barrier_ended();
  /// Returns a value; nullopt where there is none.
  std::optional<std::string> get(std::string_view key);

  /// Returns the value of a line's key; nullopt where it has none.
  static std::optional<std::string_view> field(std::string_view line, std::string_view key);

 private:
  void send(const std::string& line);
  /// Returns the next line; nullopt where none has come within the limit.
  std::optional<std::string> receive(std::chrono::milliseconds limit);
  /// Sends a command and returns the answer, whose name must be `answer`.
  std::string ask(const std::string& command, std::string_view answer);

  unique_fd server_;
  std::string received_;  ///< Bytes after the last whole line.
  std::string space_;     ///< The name of the job's key-value space.
  pid_t process_;         ///< The process that has made this, not a fork of it.
};

}  // namespace hfcomm::rendezvous
