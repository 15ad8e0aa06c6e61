// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <optional>
#include <source_location>
#include <string_view>

#include <hfcomm/core/options.hpp>
#include <hfcomm/group/process_group.hpp>

namespace hfcomm {

namespace rendezvous {
class roster;
}  // namespace rendezvous

/// The time during which this process is a rank of its job. Destroying it ends that: the other ranks are told, and
/// world() is a group of one again. Where an exception ends it, the others are told that too. Never blocks, never
/// throws.
class session {
 public:
  session(session&& other) noexcept;
  session& operator=(session&&) = delete;
  ~session();

  /// Ends the session before its destructor does. Idempotent.
  void end() noexcept;

  /// Tells the other ranks why this one is about to end: their errors quote it.
  /// `because_of_another`: it ends because another rank did, which is then the one to blame.
  void fail(std::string_view why, bool because_of_another = false) noexcept;

 private:
  friend session init(const init_options&, std::source_location);
  explicit session(std::shared_ptr<rendezvous::roster> roster);

  std::shared_ptr<rendezvous::roster> roster_;
  bool active_;
};

/// Makes this process a rank of its job, and waits until all ranks have come. Without options the environment tells
/// (see detect_environment); where it says nothing, the job is this process alone.
///
/// Throws usage_error on a second init, on options or variables that do not fit together, and on every rank that has
/// come where two processes claim one rank; timeout_error, naming the ranks that did not come, after `start_timeout`;
/// engine_error where the ranks are not all on this machine or the machine refuses. Not thread-safe.
session init(const init_options& options = {}, std::source_location where = std::source_location::current());

/// All ranks. Before init() and after the session: a group of one, on which every operation works.
[[nodiscard]] const process_group& world();
/// The ranks on this machine.
[[nodiscard]] const process_group& local_group();

/// The first rank of each machine, in the machines' order, for what one rank of a machine does for the others; nullopt
/// on all other ranks.
[[nodiscard]] const std::optional<process_group>& leader_group();

/// This process's rank among all ranks; 0 before init().
[[nodiscard]] int rank();
/// The number of all ranks; 1 before init().
[[nodiscard]] int world_size();
/// This process's rank among those of its machine, and how many those are.
[[nodiscard]] int local_rank();
[[nodiscard]] int local_size();
/// The number of this machine among the job's machines, and how many there are.
[[nodiscard]] int node_rank();
[[nodiscard]] int node_count();

[[nodiscard]] bool is_initialized();
/// Whether this is rank 0 of the group.
[[nodiscard]] inline bool is_main_process(const process_group& group = world()) { return group.rank() == 0; }
/// Whether this is rank 0 of its machine.
[[nodiscard]] inline bool is_local_main_process() { return local_rank() == 0; }

}  // namespace hfcomm
