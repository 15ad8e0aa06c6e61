// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <utility>

#include <unistd.h>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/group/detail/group_state.hpp>
#include <hfcomm/group/detail/identity.hpp>
#include <hfcomm/group/detail/resolve.hpp>
#include <hfcomm/group/environment.hpp>
#include <hfcomm/group/session.hpp>
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
  static void report_to(const std::shared_ptr<rendezvous::roster>& roster) {
    static const std::terminate_handler previous = std::get_terminate();
    static std::atomic<bool> installed{false};
    reported_roster().store(roster.get());
    if (!installed.exchange(true)) {
      std::set_terminate([] {
        if (auto* receiver = reported_roster().load(); receiver != nullptr) {
          const bool thrown = std::current_exception() != nullptr;
          const bool is_consequence = thrown && current_exception_is_consequence();
          receiver->fail(thrown ? current_exception_text() : "std::terminate was called", is_consequence);
          if (is_consequence && is_default(previous)) {
            end_survivor();
          }
        }
        previous();
      });
    }
  }
  static void forget() noexcept { reported_roster().store(nullptr); }

 private:
  static bool is_default(std::terminate_handler handler) noexcept {
#if defined(__GLIBCXX__)
    if (handler == __gnu_cxx::__verbose_terminate_handler) {
      return true;
    }
#endif
    return handler == std::abort;
  }

  /// Ends a rank because another one has failed, with one line and no core file: the other rank has the cause.
  [[noreturn]] static void end_survivor() noexcept {
    std::fprintf(stderr, "[hfcomm] %s\n", current_exception_text().c_str());
    std::fflush(stdout);  // not all streams: another thread may wait inside one
    ::_exit(1);
  }

  static std::atomic<rendezvous::roster*>& reported_roster() noexcept {
    static std::atomic<rendezvous::roster*> roster{nullptr};
    return roster;
  }
};

}  // namespace detail

HFCOMM_INLINE session::session(std::shared_ptr<rendezvous::roster> roster)
    : roster_(std::move(roster)), active_(true) {}

HFCOMM_INLINE session::session(session&& other) noexcept
    : roster_(std::exchange(other.roster_, nullptr)), active_(std::exchange(other.active_, false)) {}

HFCOMM_INLINE session::~session() {
  if (std::uncaught_exceptions() > 0) {
    fail("an exception ended its session", true);
  }
  end();
}

HFCOMM_INLINE void session::end() noexcept {
  if (std::exchange(active_, false)) {
    if (roster_) {
      detail::terminate_reporter::forget();
      roster_->leave();
      roster_.reset();
    }
    auto& process = detail::process_identity();
    process.initialized = false;
    process.world = process_group();
    process.local = process.world;
    process.leaders = process.world;
  }
}

HFCOMM_INLINE void session::fail(std::string_view why, bool because_of_another) noexcept {
  if (roster_) {
    roster_->fail(why, because_of_another);
  }
}

HFCOMM_INLINE session init(const init_options& options, std::source_location where) {
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
  std::shared_ptr<rendezvous::roster> roster;
  if (who.world_size > 1) {
    try {
      auto joined = rendezvous::join_local_job(who.rendezvous, who.rank, who.world_size, options.start_timeout);
      roster = std::move(joined.roster);
      process.world = detail::group_access::make(std::move(joined.engine), options.timeout);
    } catch (const usage_error& problem) {
      throw usage_error(context, problem.detail());
    } catch (const timeout_error& problem) {
      throw timeout_error(context, problem.detail(), problem.missing());
    } catch (const engine_error& problem) {
      throw engine_error(context, problem.detail());
    }
    detail::terminate_reporter::report_to(roster);
  } else {
    process.world = process_group().with_timeout(options.timeout);
  }
  process.local = process.world;
  process.leaders = who.rank == 0 ? std::optional(process_group().with_timeout(options.timeout)) : std::nullopt;
  process.initialized = true;
  return session(std::move(roster));
}

}  // namespace hfcomm
