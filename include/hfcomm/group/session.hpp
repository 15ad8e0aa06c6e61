// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include <hfcomm/core/call_site.hpp>
#include <hfcomm/core/options.hpp>
#include <hfcomm/group/process_group.hpp>

namespace hfcomm {

namespace detail {
class job_part;
}  // namespace detail

/// The time during which this process is a rank of its job. The destructor ends it: the other ranks learn that, and
/// also whether an exception was the reason. Then world() is a group of one again. Never waits for other ranks, never
/// throws. The end of a group with a device plane takes up to nccl_options::teardown_timeout.
class [[nodiscard("the session ends when it is destroyed: auto session = hfcomm::init();")]] session {
 public:
  session(session&& other) noexcept = default;
  session& operator=(session&&) = delete;
  ~session();

  /// Ends the session before its destructor does. Idempotent.
  [[gnu::cold]] void end() noexcept;

  /// Tells the other ranks why this one is about to end; their errors quote it. With `because_of_another`, it ends
  /// because another rank did, which is then the one to blame.
  void fail(std::string_view why, bool because_of_another = false) noexcept;

 private:
  friend session init(const init_options&, call_site);
  explicit session(std::shared_ptr<detail::job_part> part) noexcept : part_(std::move(part)) {}

  std::shared_ptr<detail::job_part> part_;  // null after the end
};

/// Makes this process a rank of its job, and waits until all ranks have come. Without options, the environment decides
/// (see detect_environment); where it sets nothing, the job is this process alone. The returned session is the time for
/// which it is a rank:
///
///     auto session = hfcomm::init();
///
/// After 30 s (HFCOMM_WARN_AFTER_MS), rank 0 prints which ranks have not come, and the others that rank 0 has not.
///
/// Throws usage_error on a second init, and on options or variables that do not fit together. Where two processes claim
/// one rank, every rank that has come throws usage_error. Throws timeout_error, with the ranks that did not come, after
/// `start_timeout`. Throws engine_error where a machine has no resources for its ranks, or no link that connects it to
/// the others (see init_options::link). Throws usage_error where the job has several machines and no secret, and
/// where a header-only program does not include <hfcomm/machines.hpp> for it; where nothing tells that there are
/// several, ranks on others count as missing then. Not thread-safe.
[[nodiscard("the session ends when it is destroyed: auto session = hfcomm::init();")]] [[gnu::cold]] session init(
    const init_options& options = {}, call_site where = call_site::current());

/// Returns the group of all ranks. Before init() and after the session it is a group of one, in which every operation
/// works. Where a launcher has started several processes, that is a mistake: the first call says so on stderr, or, with
/// HFCOMM_REQUIRE_INIT=1, throws usage_error.
[[nodiscard]] const process_group& world();
/// Returns the group of the ranks on this machine.
[[nodiscard]] const process_group& local_group();

/// Returns the group of the first rank of each machine, in the machines' order; nullopt on all other ranks. For work
/// that one rank of a machine does for the others.
[[nodiscard]] const std::optional<process_group>& leader_group();

/// Returns this process's rank among all ranks; 0 before init(). Where that is a mistake (see world()), the first call
/// says so on stderr.
[[nodiscard]] int rank();
/// Returns the number of all ranks; 1 before init().
[[nodiscard]] int world_size();
/// Returns this process's rank among those of its machine.
[[nodiscard]] int local_rank();
/// Returns the number of ranks on this machine.
[[nodiscard]] int local_size();
/// Returns the number of this machine among the job's machines, from 0.
[[nodiscard]] int node_rank();
/// Returns the number of the job's machines.
[[nodiscard]] int node_count();

/// Returns whether this process is a rank: after init(), and inside launch() and run_ranks().
[[nodiscard]] bool is_initialized();
/// Returns whether this is rank 0 of the group.
[[nodiscard]] inline bool is_main_process(const process_group& group = world()) { return group.rank() == 0; }
/// Returns whether this is rank 0 of its machine.
[[nodiscard]] inline bool is_local_main_process() { return local_rank() == 0; }

}  // namespace hfcomm
