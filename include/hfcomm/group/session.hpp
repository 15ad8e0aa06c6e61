// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <utility>

#include <hfcomm/core/options.hpp>
#include <hfcomm/group/environment.hpp>
#include <hfcomm/group/split.hpp>
#include <hfcomm/rendezvous/local_rendezvous.hpp>

namespace hfcomm {

namespace detail {

/// Who this process (or, among ranks as threads, this thread) is. Before init() and after the session: a job of one.
struct identity {
  process_group world;
  process_group local = world;
  std::optional<process_group> leaders = world;
  int node = 0;
  int nodes = 1;
  bool initialized = false;
};

inline identity& process_identity() {
  static identity process;
  return process;
}

inline identity*& thread_identity() noexcept {
  thread_local identity* own = nullptr;
  return own;
}

inline const identity& current_identity() {
  const identity* own = thread_identity();
  return own != nullptr ? *own : process_identity();
}

/// Whether the running exception reports another rank's failure; for handlers.
inline bool current_exception_is_consequence() {
  try {
    throw;
  } catch (const peer_error&) {
    return true;
  } catch (...) {
    return false;
  }
}

/// Tells the peers what is about to end this process: an exception that nobody caught reaches std::terminate without
/// unwinding, so no destructor could.
class terminate_teller {
 public:
  static void tell(const std::shared_ptr<rendezvous::roster>& people) {
    static const std::terminate_handler previous = std::get_terminate();
    static std::atomic<bool> installed{false};
    last_resort().store(people.get());
    if (!installed.exchange(true)) {
      std::set_terminate([] {
        if (auto* listeners = last_resort().load(); listeners != nullptr) {
          const bool thrown = std::current_exception() != nullptr;
          listeners->fail(thrown ? current_exception_text() : "std::terminate was called",
                          thrown && current_exception_is_consequence());
        }
        previous();
      });
    }
  }
  static void forget() noexcept { last_resort().store(nullptr); }

 private:
  static std::atomic<rendezvous::roster*>& last_resort() noexcept {
    static std::atomic<rendezvous::roster*> people{nullptr};
    return people;
  }
};

}  // namespace detail

/// The time during which this process is a rank of its job. Destroying it ends that: the other ranks are told, and
/// world() is a group of one again. Where an exception ends it, the others are told that too. Never blocks, never
/// throws.
class session {
 public:
  session(session&& other) noexcept
      : people_(std::exchange(other.people_, nullptr)), active_(std::exchange(other.active_, false)) {}
  session& operator=(session&&) = delete;
  ~session() {
    if (std::uncaught_exceptions() > 0) {
      fail("an exception ended its session", true);
    }
    end();
  }

  /// Ends the session before its destructor does. Idempotent.
  void end() noexcept {
    if (std::exchange(active_, false)) {
      if (people_) {
        detail::terminate_teller::forget();
        people_->leave();
        people_.reset();
      }
      auto& process = detail::process_identity();
      process.initialized = false;
      process.world = process_group();
      process.local = process.world;
      process.leaders = process.world;
    }
  }

  /// Tells the other ranks why this one is about to end: their errors quote it.
  /// `because_of_another`: it ends because another rank did, which is then the one to blame.
  void fail(std::string_view why, bool because_of_another = false) noexcept {
    if (people_) {
      people_->fail(why, because_of_another);
    }
  }

 private:
  friend session init(const init_options&, std::source_location);
  explicit session(std::shared_ptr<rendezvous::roster> people) : people_(std::move(people)), active_(true) {}

  std::shared_ptr<rendezvous::roster> people_;
  bool active_;
};

namespace detail {

/// Options over environment: who this process is, and the key of its job.
inline launch_environment resolve(const init_options& options, const error_context& context) {
  const std::string& method = options.init_method;
  const auto starts_with = [&](std::string_view prefix) { return method.rfind(prefix, 0) == 0; };
  const bool named = starts_with("tcp://") || starts_with("file://") || starts_with("job://");
  if (!named && !method.empty() && method != "env://") {
    throw usage_error(
        context, "init_method \"" + method + "\" is none of \"\", env://, tcp://host:port, file:///path, job://name");
  }
  if (named != (options.rank >= 0) || named != (options.world_size >= 0)) {
    throw usage_error(context,
                      named ? "init_method \"" + method + "\" needs rank and world_size as well"
                            : std::string("rank and world_size are given, but no init_method that says where the ranks "
                                          "meet (tcp://host:port, file:///path or job://name)"));
  }
  if (named) {
    if (options.world_size < 1 || options.rank >= options.world_size) {
      throw usage_error(context, "rank " + std::to_string(options.rank) + " of " + std::to_string(options.world_size) +
                                     " is not possible");
    }
    return {options.rank, options.world_size, options.rank, options.world_size, method, "init_options"};
  }
  launch_environment found = detect_environment();
  if (method == "env://" && found.source == "none") {
    throw usage_error(
        context,
        "init_method is env://, but none of these pairs is set: HFCOMM_RANK and HFCOMM_WORLD_SIZE; RANK and "
        "WORLD_SIZE; "
        "OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE (Open MPI); SLURM_PROCID and SLURM_STEP_NUM_TASKS (Slurm)");
  }
  return found;
}

}  // namespace detail

/// Makes this process a rank of its job, and waits until all ranks have come. Without options the environment tells
/// (see environment.hpp); where it says nothing, the job is this process alone.
///
/// Throws usage_error on a second init, on options or variables that do not fit together, and on every rank that has
/// come where two processes claim one rank; timeout_error, naming the ranks that did not come, after `start_timeout`;
/// engine_error where the ranks are not all on this machine or the machine refuses. Not thread-safe.
inline session init(const init_options& options = {}, std::source_location where = std::source_location::current()) {
  auto& process = detail::process_identity();
  error_context context{-1, 0, "init", 0, where};
  if (process.initialized || detail::thread_identity() != nullptr) {
    throw usage_error(context, "this process is a rank already (is init called twice, or inside launch or run_ranks?)");
  }
  const launch_environment who = [&] {
    try {
      return detail::resolve(options, context);
    } catch (const usage_error& problem) {
      throw usage_error(context, problem.detail());
    }
  }();
  context.rank = who.rank;
  context.size = who.world_size;
  if (who.world_size > engines::layout::max_ranks) {
    throw usage_error(context, "the job has " + std::to_string(who.world_size) +
                                   " ranks; one machine can have at most " +
                                   std::to_string(engines::layout::max_ranks));
  }
  if (who.local_size != who.world_size) {
    throw engine_error(context, "the job has " + std::to_string(who.world_size) + " ranks, but only " +
                                    std::to_string(who.local_size) +
                                    " on this machine; this version of hfcomm connects ranks of one machine only");
  }
  std::shared_ptr<rendezvous::roster> people;
  if (who.world_size > 1) {
    try {
      auto joined = rendezvous::meet_on_this_machine(who.rendezvous, who.rank, who.world_size, options.start_timeout);
      people = std::move(joined.people);
      process.world = detail::group_access::make(std::move(joined.engine), options.timeout);
    } catch (const usage_error& problem) {
      throw usage_error(context, problem.detail());
    } catch (const timeout_error& problem) {
      throw timeout_error(context, problem.detail(), problem.missing());
    } catch (const engine_error& problem) {
      throw engine_error(context, problem.detail());
    }
    detail::terminate_teller::tell(people);
  } else {
    process.world = process_group().with_timeout(options.timeout);
  }
  process.local = process.world;
  process.leaders = who.rank == 0 ? std::optional(process_group().with_timeout(options.timeout)) : std::nullopt;
  process.initialized = true;
  return session(std::move(people));
}

/// All ranks. Before init() and after the session: a group of one, on which every operation works.
[[nodiscard]] inline const process_group& world() { return detail::current_identity().world; }
/// The ranks on this machine.
[[nodiscard]] inline const process_group& local_group() { return detail::current_identity().local; }

/// The first rank of each machine, in the machines' order, for what one rank of a machine does for the others; nullopt
/// on all other ranks.
[[nodiscard]] inline const std::optional<process_group>& leader_group() { return detail::current_identity().leaders; }

[[nodiscard]] inline int rank() { return world().rank(); }
[[nodiscard]] inline int world_size() { return world().size(); }
[[nodiscard]] inline int local_rank() { return local_group().rank(); }
[[nodiscard]] inline int local_size() { return local_group().size(); }
/// The number of this machine among the job's machines, and how many there are.
[[nodiscard]] inline int node_rank() { return detail::current_identity().node; }
[[nodiscard]] inline int node_count() { return detail::current_identity().nodes; }

[[nodiscard]] inline bool is_initialized() { return detail::current_identity().initialized; }
/// Whether this is rank 0 of the group.
[[nodiscard]] inline bool is_main_process(const process_group& group = world()) { return group.rank() == 0; }
/// Whether this is rank 0 of its machine.
[[nodiscard]] inline bool is_local_main_process() { return local_rank() == 0; }

}  // namespace hfcomm
