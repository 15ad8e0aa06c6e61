// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>

#include <unistd.h>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/core/nesting_limit.hpp>
#include <hfcomm/core/plain_list.hpp>
#include <hfcomm/engine/machine_connection.hpp>
#include <hfcomm/group/detail/connect_by.hpp>
#include <hfcomm/group/detail/group_state.hpp>
#include <hfcomm/group/detail/identity.hpp>
#include <hfcomm/group/detail/missing_session-inl.hpp>
#include <hfcomm/group/detail/several_machines.hpp>
#include <hfcomm/group/environment.hpp>
#include <hfcomm/group/session.hpp>
#include <hfcomm/rendezvous/address_exchange.hpp>
#include <hfcomm/rendezvous/local_rendezvous.hpp>

namespace hfcomm {

namespace detail {

/// Returns whether the exception being handled reports another rank's failure.
HFCOMM_INLINE bool current_exception_is_consequence() {
  try {
    throw;
  } catch (const peer_error&) {
    return true;
  } catch (...) {
    return false;
  }
}

/// Tells the other ranks why std::terminate ends this process. An uncaught exception reaches it without unwinding, so
/// no destructor can.
class terminate_reporter {
 public:
  /// Both must live until `forget`. `connection` is null where another process, or none, connects this machine.
  [[gnu::cold]] static void report_to(rendezvous::roster* roster, engines::machine_connection* connection) {
    {
      const std::scoped_lock lock(reported().mutex);
      reported().jobs.push_back({roster, connection});
    }
    static const std::terminate_handler previous = std::get_terminate();
    [[maybe_unused]] static const std::terminate_handler replaced = std::set_terminate([] {
      const bool thrown = std::current_exception() != nullptr;
      const bool is_consequence = thrown && current_exception_is_consequence();
      const bool has_reported = report(thrown ? current_exception_text() : "std::terminate was called", is_consequence);
      if (has_reported && is_consequence && is_default(previous)) {
        end_survivor();
      }
      previous();
    });
  }
  static void forget(const rendezvous::roster& roster) noexcept {
    const std::scoped_lock lock(reported().mutex);
    auto& jobs = reported().jobs;
    for (std::size_t index = jobs.size(); index > 0; --index) {
      if (jobs[index - 1].roster == &roster) {
        jobs.erase(index - 1);
      }
    }
  }

 private:
  static constexpr std::chrono::milliseconds time_to_tell{200};

  struct reported_job {
    rendezvous::roster* roster;
    engines::machine_connection* connection;
  };
  struct reported_jobs {
    std::mutex mutex;
    plain_list<reported_job> jobs;
  };

  /// Never destroyed: a session may be a global.
  HFCOMM_PROCESS_STATE static reported_jobs& reported() {
    static reported_jobs& jobs = *new reported_jobs;  // NOLINT(*owning-memory*)
    return jobs;
  }

  /// Tells the other ranks of every job; returns whether there is any. Gives up where another thread holds the lock.
  static bool report(const std::string& text, bool is_consequence) {
    const std::unique_lock lock(reported().mutex, std::try_to_lock);
    if (!lock || reported().jobs.empty()) {
      return false;
    }
    for (const reported_job& job : reported().jobs) {
      job.roster->fail(text, is_consequence);
      if (job.connection != nullptr) {
        job.connection->report_endings(time_to_tell);
      }
    }
    return true;
  }

  static bool is_default(std::terminate_handler handler) noexcept {
#if defined(__GLIBCXX__)
    if (handler == __gnu_cxx::__verbose_terminate_handler) {
      return true;
    }
#endif
    return handler == std::abort;
  }

  /// Ends a rank because another one has failed, with one line and no core file: the other rank has the cause. Where
  /// HFCOMM_MERGED_OUTPUT=1 says that all lines come to one place, one rank of a machine prints what several would.
  [[noreturn]] static void end_survivor() noexcept {
    const std::string text = current_exception_text();
    const char* const merged = std::getenv("HFCOMM_MERGED_OUTPUT");
    const std::unique_lock lock(reported().mutex, std::try_to_lock);
    const std::string_view behind_rank =
        std::string_view(text).substr(text.starts_with("rank ") ? std::min(text.find(": "), text.size()) : 0);
    if (merged == nullptr || merged != std::string_view("1") || !lock || reported().jobs.empty() ||
        reported().jobs[0].roster->is_news(behind_rank)) {
      std::fprintf(stderr, "[hfcomm] %s\n", text.c_str());
    }
    std::fflush(stdout);  // not all streams: another thread may wait inside one
    ::_exit(1);
  }
};

/// Says that ranks of a job of several machines are lost.
HFCOMM_INLINE void abandon_machines() noexcept {
  if (const several_machines* const several = find_several_machines()) {
    several->abandon();
  }
}

/// Ends this process's part in the connection of its machine, which the other ranks of the machine, and what it has
/// sent, still need. Waits for them.
HFCOMM_INLINE void finish_connection(engines::machine_connection& connection) noexcept {
  constexpr std::chrono::seconds patience{10};
  if (!connection.finish(patience)) {
    std::fprintf(stderr,
                 "[hfcomm] this process connects its machine to others, and ends although ranks there still run, "
                 "%lld s after it was ready to: they lose the other machines\n",
                 static_cast<long long>(patience.count()));
  }
}

/// This process's part of a job that it has joined; of a job of one without a membership. It ends with this object, and
/// the other ranks learn whether an exception was the reason.
class job_part {
 public:
  job_part() = default;
  explicit job_part(const rendezvous::membership& joined)
      : roster_(joined.roster), connection_(joined.connection), spans_machines_(joined.nodes > 1) {
    terminate_reporter::report_to(roster_.get(), connection_.get());
  }
  job_part(const job_part&) = delete;
  job_part& operator=(const job_part&) = delete;
  ~job_part() {
    if (roster_ && std::uncaught_exceptions() > exceptions_) {
      roster_->fail("an exception ended its group", true);
    }
    leave();
    if (connection_) {
      finish_connection(*connection_);
    }
  }

  /// See session::fail.
  void fail(std::string_view why, bool because_of_another) noexcept {
    if (roster_) {
      roster_->fail(why, because_of_another);
      if (spans_machines_) {
        abandon_machines();
      }
    }
    if (connection_) {
      connection_->report_endings(std::chrono::milliseconds(100));
    }
  }

  /// Removes this rank from the job, whose groups may still be there. Idempotent.
  void leave() noexcept {
    if (roster_) {
      terminate_reporter::forget(*roster_);
      if (spans_machines_ && roster_->has_losses()) {
        abandon_machines();
      }
      roster_->leave();
      roster_.reset();
    }
  }

 private:
  std::shared_ptr<rendezvous::roster> roster_;
  std::shared_ptr<engines::machine_connection> connection_;
  bool spans_machines_ = false;
  int exceptions_ = std::uncaught_exceptions();
};

}  // namespace detail

HFCOMM_INLINE session::~session() {
  if (std::uncaught_exceptions() > 0) {
    fail("an exception ended its session", true);
  }
  end();
}

HFCOMM_INLINE void session::end() noexcept {
  if (const auto ending = std::exchange(part_, nullptr)) {
    auto& process = detail::process_identity();
    process.numbers.initialized = false;
    detail::mark_session(false);
    ending->leave();
    process = detail::identity();
  }
}

HFCOMM_INLINE void session::fail(std::string_view why, bool because_of_another) noexcept {
  if (part_) {
    part_->fail(why, because_of_another);
  }
}

namespace detail {

[[gnu::cold]] HFCOMM_INLINE identity identity_of(rendezvous::membership joined, std::chrono::nanoseconds timeout) {
  const auto group_of_one = [timeout] { return process_group().with_timeout(timeout); };
  identity own;
  own.world = group_access::make(std::move(joined.engine), timeout);
  if (joined.nodes == 1) {
    own.local = own.world;
    own.leaders = own.world.rank() == 0 ? std::optional(group_of_one()) : std::nullopt;
  } else {
    own.local = joined.local ? group_access::make(std::move(joined.local), timeout) : group_of_one();
    own.leaders = joined.leaders ? std::optional(group_access::make(std::move(joined.leaders), timeout)) : std::nullopt;
  }
  own.numbers = {.rank = own.world.rank(),
                 .world_size = own.world.size(),
                 .local_rank = own.local.rank(),
                 .local_size = own.local.size(),
                 .node = joined.node,
                 .nodes = joined.nodes,
                 .initialized = true};
  return own;
}

/// Joins the job, which may have several machines. Its ranks find the root by `exchange`; where that is null, as `who`
/// says.
[[gnu::cold]] HFCOMM_INLINE rendezvous::membership join(const launch_environment& who, const init_options& options,
                                                        std::unique_ptr<rendezvous::address_exchange> exchange,
                                                        const error_context& context) {
  const auto join_here = [&](const std::string& hint) {
    return rendezvous::join_local_job(who.rendezvous, who.rank, who.world_size, options.start_timeout, hint);
  };
  if (!exchange && who.is_one_machine()) {
    return join_here({});
  }
  if (const several_machines* const several = find_several_machines()) {
    return several->join(who, options, std::move(exchange), context);
  }
  if (who.has_several_machines()) {
    detail::throw_error<usage_error>(context, {"this job has ranks on several machines: ", include_machines});
  }
  return join_here(detail::concat({" For ranks on other machines, ", include_machines}));
}

/// Returns this process's place in its job, and sets the limit of nesting that the options name. Throws usage_error
/// with `context`.
[[gnu::cold]] HFCOMM_INLINE launch_environment find_job(const init_options& options, const error_context& context) {
  launch_environment who = [&] {
    try {
      return resolve(options, context);
    } catch (const usage_error& problem) {
      detail::throw_error<usage_error>(context, {problem.detail()});
    }
  }();
  if (who.world_size > engines::layout::max_ranks) {
    detail::throw_error<usage_error>(
        {who.rank, who.world_size, context.operation, 0, context.where},
        {"the job has ", who.world_size, " ranks; it can have at most ", engines::layout::max_ranks});
  }
  if (options.max_depth != 0) {
    nesting_limit() = options.max_depth;
  }
  return who;
}

/// Joins the job. Its errors have `context` and this rank.
[[gnu::cold]] HFCOMM_INLINE rendezvous::membership join_as(
    const launch_environment& who, const init_options& options, error_context context,
    std::unique_ptr<rendezvous::address_exchange> exchange = nullptr) {
  context.rank = who.rank;
  context.size = who.world_size;
  try {
    return join(who, options, std::move(exchange), context);
  } catch (const usage_error& problem) {
    detail::throw_error<usage_error>(context, {problem.detail()});
  } catch (const timeout_error& problem) {
    detail::throw_error<timeout_error>(context, {problem.detail()}, problem.missing());
  } catch (const engine_error& problem) {
    detail::throw_error<engine_error>(context, {problem.detail()});
  }
}

}  // namespace detail

[[gnu::cold]] HFCOMM_INLINE session init(const init_options& options, std::source_location where) {
  auto& process = detail::process_identity();
  const error_context context{-1, 0, "init", 0, where};
  if (process.numbers.initialized || detail::thread_identity() != nullptr) {
    detail::throw_error<usage_error>(
        context, {"this process is a rank already (is init called twice, or inside launch or run_ranks?)"});
  }
  const launch_environment who = detail::find_job(options, context);
  if (who.world_size == 1) {
    process = detail::identity{process_group().with_timeout(options.timeout)};
    process.numbers.initialized = true;
    detail::mark_session(true);
    return session(std::make_shared<detail::job_part>());
  }
  auto joined = detail::join_as(who, options, context);
  auto part = std::make_shared<detail::job_part>(joined);
  process = detail::identity_of(std::move(joined), options.timeout);
  detail::mark_session(true);
  return session(std::move(part));
}

}  // namespace hfcomm
