// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace hfcomm {

/// Options for joining a job. The environment gives the defaults; an option that is set here takes precedence.
struct init_options {
  /// The place at which the ranks find each other.
  ///   ""                 the launcher's variables; without any, a job of one
  ///   "env://"           the launcher's variables, and an error without them
  ///   "tcp://host:port"  address of rank 0's machine, and a free port of it, that all ranks name alike; an IPv6
  ///                      address in brackets; without a port, several are tried
  ///   "file:///path"     a file on a file system that all machines share, in which the root leaves its address; its
  ///                      folder is there, and the file is no one else's
  ///   "job://name"       any name that all ranks of one machine share
  /// On one machine all of these only name the job: no port is opened and no file is written. The last three need
  /// `rank` and `world_size`.
  std::string init_method{};

  int rank = -1;        ///< This process's rank; -1: from the environment.
  int world_size = -1;  ///< The number of processes; -1: from the environment.

  /// The time that an operation of the world group waits for other ranks; zero or less: for ever.
  std::chrono::nanoseconds timeout = std::chrono::minutes(10);
  /// The time that init() waits for the other ranks to start.
  std::chrono::nanoseconds start_timeout = std::chrono::minutes(5);

  /// The link that carries data between machines: "tcp", "ucx", "mpi" or "gloo", the same on all ranks. Empty: what
  /// HFCOMM_LINK says, else the first that works.
  std::string link{};
  /// The job's secret, at least 16 characters, the same on all ranks. Empty: see HFCOMM_SECRET_FILE and HFCOMM_SECRET.
  std::string secret{};
  /// The time after which a machine that says nothing counts as lost, with all of its ranks. Equal on all ranks.
  std::chrono::milliseconds silence_limit = std::chrono::seconds(5);

  /// How deep objects of classes may be nested within each other, in all groups of this process: a limit for the stack
  /// that a message can make its receiver use. Equal on all ranks. 0: as it was, 256 at first. A deeper object is a
  /// usage_error where it is sent, and a decode_error where it is received.
  std::size_t max_depth = 0;
};

}  // namespace hfcomm
