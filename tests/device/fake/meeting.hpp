// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/core/error.hpp>
#include <hfcomm/engine/shared_memory/memory.hpp>
#include <hfcomm/engine/shared_memory/shared_memory.hpp>
#include <hfcomm/group/process_group.hpp>
#include <hfcomm/machine/roster.hpp>
#include <hfcomm/rendezvous/local_rendezvous.hpp>

namespace fake_cuda {

/// A meeting of the ranks of one unique id, where they are threads.
class meeting {
 public:
  explicit meeting(int ranks)
      : present_(static_cast<std::size_t>(ranks)),
        roster_segment_(hfcomm::rendezvous::shared_segment::anonymous(hfcomm::rendezvous::roster::bytes_for(ranks))) {
    const auto sizes = hfcomm::engines::layout::dimensions::for_ranks(ranks);
    memory_ = hfcomm::rendezvous::shared_segment::anonymous(sizes.total_bytes(), sizes.heap_bytes());
    hfcomm::rendezvous::roster::create_in(*roster_segment_, ranks);
    hfcomm::engines::layout::create_in(*memory_, sizes);
  }

  /// Waits for the other ranks. Returns null where `aborted` is set meanwhile.
  [[nodiscard]] std::shared_ptr<hfcomm::engines::host_engine> join(int rank, int ranks,
                                                                   const std::atomic<bool>& aborted) {
    std::unique_lock lock(mutex_);
    if (static_cast<std::size_t>(ranks) != present_.size() || present_[static_cast<std::size_t>(rank)]) {
      throw std::runtime_error("rank " + std::to_string(rank) + " of " + std::to_string(ranks) +
                               " does not fit to those that have come");
    }
    present_[static_cast<std::size_t>(rank)] = true;
    ++come_;
    changed_.notify_all();
    while (come_ < present_.size() && !aborted.load()) {
      changed_.wait_for(lock, std::chrono::milliseconds(1));
    }
    if (come_ < present_.size()) {
      return nullptr;
    }
    auto job = std::make_shared<hfcomm::engines::local_job>();
    job->roster = std::make_shared<hfcomm::rendezvous::roster>(roster_segment_, ranks, rank);
    job->broker = broker_;
    job->roster->enter();
    std::vector<int> members;
    for (int member = 0; member < ranks; ++member) {
      members.push_back(member);
    }
    return std::make_shared<hfcomm::engines::shared_memory>(memory_, std::move(job), std::move(members), rank);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> present_;
  std::size_t come_ = 0;
  std::shared_ptr<hfcomm::rendezvous::shared_segment> roster_segment_;
  std::shared_ptr<hfcomm::rendezvous::shared_segment> memory_;
  std::shared_ptr<hfcomm::rendezvous::thread_broker> broker_ = std::make_shared<hfcomm::rendezvous::thread_broker>();
};

/// The meetings of this process, by unique id.
class meeting_places {
 public:
  [[nodiscard]] std::shared_ptr<meeting> at(const std::string& id, int ranks) {
    const std::scoped_lock lock(mutex_);
    auto& place = places_[id];
    if (place == nullptr) {
      place = std::make_shared<meeting>(ranks);
    }
    return place;
  }
  /// Removes a meeting that all ranks have joined.
  void close(const std::string& id) {
    const std::scoped_lock lock(mutex_);
    places_.erase(id);
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<meeting>> places_;
};

/// Waits for the other ranks, where they are processes. Returns null where `aborted` is set meanwhile. The rendezvous
/// cannot be interrupted, so each attempt is short.
inline std::shared_ptr<hfcomm::engines::host_engine> meet_processes(const std::string& key, int rank, int ranks,
                                                                    const std::atomic<bool>& aborted) {
  while (!aborted.load()) {
    try {
      return hfcomm::rendezvous::join_local_job(key, rank, ranks, std::chrono::seconds(2)).engine;
    } catch (const hfcomm::timeout_error&) {
      continue;
    } catch (const hfcomm::engine_error&) {
      continue;
    }
  }
  return nullptr;
}

}  // namespace fake_cuda
