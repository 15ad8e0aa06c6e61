// SPDX-License-Identifier: MIT
#include "ranks.hpp"

#include <functional>
#include <memory>
#include <new>
#include <system_error>

#include <hfcomm/engine/shared_memory/memory.hpp>
#include <hfcomm/engine/shared_memory/shared_memory.hpp>
#include <hfcomm/group/detail/group_state.hpp>
#include <hfcomm/machine/roster.hpp>
#include <hfcomm/machine/segment_broker.hpp>

namespace {

using namespace hfcomm;
using namespace multi_rank;

/// Fails once, at the point and in the way that the test sets.
class failing_broker final : public rendezvous::segment_broker {
 public:
  failing_broker(std::shared_ptr<rendezvous::segment_broker> good, std::string where, std::function<void()> fail)
      : good_(std::move(good)), where_(std::move(where)), fail_(std::move(fail)) {}

  std::shared_ptr<rendezvous::shared_segment> offer(const std::string& token, std::size_t bytes, std::size_t room,
                                                    int takers) override {
    fail("offer");
    return good_->offer(token, bytes, room, takers);
  }
  void serve(const std::string& token, const checker& check) override {
    fail("serve");
    good_->serve(token, check);
  }
  void withdraw(const std::string& token) noexcept override { good_->withdraw(token); }
  std::shared_ptr<rendezvous::shared_segment> take(const std::string& token, std::size_t bytes,
                                                   const checker& check) override {
    fail("take");
    return good_->take(token, bytes, check);
  }

 private:
  void fail(const std::string& here) {
    if (here == where_) {
      where_.clear();
      fail_();
    }
  }

  std::shared_ptr<rendezvous::segment_broker> good_;
  std::string where_;
  std::function<void()> fail_;
};

/// As run_ranks, where the broker of `poor` fails.
template <class RankMain>
void run_with_failing_broker(int ranks, int poor, const std::string& where, const std::function<void()>& fail,
                             RankMain rank_main) {
  const auto sizes = engines::layout::dimensions::for_ranks(ranks);
  const auto roster_segment = rendezvous::shared_segment::anonymous(rendezvous::roster::bytes_for(ranks));
  rendezvous::roster::create_in(*roster_segment, ranks);
  const auto memory = rendezvous::shared_segment::anonymous(sizes.total_bytes());
  engines::layout::create_in(*memory, sizes);
  const auto good = std::make_shared<rendezvous::thread_broker>();
  const auto bad = std::make_shared<failing_broker>(good, where, fail);
  std::vector<int> members;
  std::vector<std::shared_ptr<engines::local_job>> jobs;
  for (int rank = 0; rank < ranks; ++rank) {
    auto roster = std::make_shared<rendezvous::roster>(roster_segment, ranks, rank);
    roster->enter();
    auto job = std::make_shared<engines::local_job>();
    job->roster = std::move(roster);
    job->broker = good;
    if (rank == poor) {
      job->broker = bad;
    }
    jobs.push_back(std::move(job));
    members.push_back(rank);
  }
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto world = hfcomm::detail::group_access::make(
          std::make_shared<engines::shared_memory>(memory, jobs[as_index(rank)], members, rank),
          std::chrono::seconds(60));
      try {
        rank_main(world);
      } catch (const std::exception& problem) {
        CHECK_MESSAGE(false, "rank ", rank, ": ", problem.what());
      }
    });
  }
}

TEST_CASE("subgroup: any failure while it is made is an error on every rank, and the old group stays usable") {
  const std::vector<std::function<void()>> failures{
      [] { throw std::bad_alloc(); },
      [] { throw std::system_error(std::make_error_code(std::errc::too_many_files_open), "no"); },
      [] { throw engine_error(error_context{}, "out of order"); }};
  const std::vector<std::string> texts{std::bad_alloc().what(), "no: ", "out of order"};
  for (const int ranks : {2, 3, 8}) {
    for (std::size_t kind = 0; kind < failures.size(); ++kind) {
      for (const char* where : {"offer", "serve", "take"}) {
        const int poor = std::string(where) == "take" ? ranks - 1 : 0;
        INFO("with ", ranks, " ranks, failing to ", where, ": ", texts[kind]);
        run_with_failing_broker(ranks, poor, where, failures[kind], [&](const process_group& world) {
          line_note note;
          const auto call = [&] { (void)note(world).split(0); };
          if (world.rank() == poor) {
            const auto problem = error_of<engine_error>(call);
            CHECK_CONTAINS(problem.what(), texts[kind]);
            CHECK_CONTAINS(problem.what(), "rank " + std::to_string(poor) + '/' + std::to_string(ranks) + ": split");
          } else {
            const auto problem = error_of<peer_error>(call);
            CHECK(problem.peer() == poor);
            CHECK_FALSE(problem.fatal());
            CHECK_CONTAINS(problem.what(), texts[kind]);
          }
          check_usable(world);
          check_usable(world.split(0));
        });
      }
    }
  }
}

}  // namespace
