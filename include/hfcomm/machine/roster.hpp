// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/hash.hpp>
#include <hfcomm/machine/exit_record.hpp>
#include <hfcomm/machine/fork_guard.hpp>
#include <hfcomm/machine/process_state.hpp>
#include <hfcomm/machine/shared_segment.hpp>
#include <hfcomm/machine/wait_record.hpp>
#include <hfcomm/machine/waiting.hpp>

namespace hfcomm::rendezvous {

/// The end of a rank. Where several have ended, the smallest kind is the likeliest cause of the others.
struct rank_ending {
  enum class kind { died, failed, failed_because_of_another, left } how;
  std::string text;  // the end of a sentence that begins with the rank's name
};

/// The ranks of this job: their processes, and whether they still live. All groups of the job share it. Each machine
/// has its own, in which the machine's agent enters the ranks of other machines and says how they ended.
///
/// A live process holds a record lock on its byte of the roster's memfd. The kernel drops the lock when the process is
/// gone, whatever killed it. That works across pid namespaces, needs no thread, signal or timer, and one system call
/// tests it. It also tells the number of the process that holds the lock, in this process's namespace. /proc tells at
/// once that this process ends, while the lock stays until all of its memory is freed or its core file is written.
/// Ranks that are threads set their state themselves.
class roster {
 public:
  static std::size_t bytes_for(int size) { return sizeof(entry) * static_cast<std::size_t>(size); }

  /// Makes an empty roster in fresh memory. The creator calls it once, before any other rank has the memory.
  static void create_in(shared_segment& segment, int size) {
    for (int rank = 0; rank < size; ++rank) {
      ::new (segment.data() + sizeof(entry) * static_cast<std::size_t>(rank)) entry{};
    }
  }

  roster(std::shared_ptr<shared_segment> segment, int size, int index)
      : segment_(std::move(segment)),
        entries_(reinterpret_cast<entry*>(segment_->data())),
        size_(size),
        index_(index),
        seen_(std::make_unique<seen_process[]>(static_cast<std::size_t>(size))) {}

  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] int index() const noexcept { return index_; }
  [[nodiscard]] int local_size() const noexcept {
    int count = 0;
    for (int rank = 0; rank < size_; ++rank) {
      count += entries_[rank].is_remote.load(std::memory_order_relaxed) == 0 ? 1 : 0;
    }
    return count;
  }
  /// Returns whether the ranks are processes; false where they are threads.
  [[nodiscard]] bool ranks_are_processes() const noexcept { return segment_->fd() >= 0; }

  /// Enters this rank. From now on the other ranks notice when it ends.
  void enter() {
    if (ranks_are_processes()) {
      struct flock lock = lock_of(index_);
      if (::fcntl(segment_->fd(), F_SETLK, &lock) != 0) {
        throw_system("locking this rank's byte of the roster");
      }
    }
    entry& mine = entries_[index_];
    mine.pid.store(static_cast<std::int32_t>(::getpid()));
    if (const auto parent = static_cast<std::int32_t>(::getppid()); own_launch().parent == parent) {
      mine.launched_as.store(own_launch().rank);
      mine.launched_by.store(parent);
    }
    ::gethostname(mine.host, sizeof(mine.host) - 1);
    mine.state.store(presence::here);
  }

  /// Says which rank's process runs the agent of this machine: when it ends, other machines cannot be reached.
  void set_agent(int index) noexcept { agent_ = index; }
  /// Records that this process connects its machine no more.
  void end_agent() noexcept { entries_[index_].has_no_agent.store(1); }

  /// Returns how the rank ended whose process connects this machine; nullopt while it does, and where that is this
  /// process.
  [[nodiscard, gnu::cold]] std::optional<rank_ending> agent_ending() const {
    auto end = agent_ >= 0 && agent_ != index_ ? ending(agent_) : std::nullopt;
    const bool is_gone = end && (entries_[agent_].has_no_agent.load() != 0 || process_is_over(agent_));
    return is_gone ? std::move(end) : std::nullopt;
  }

  /// Returns whether the process of a rank of this machine has ended, so that it writes nothing any more. A rank may
  /// have published its end long before. False where ranks are threads.
  [[nodiscard]] bool process_is_over(int index) const {
    return entries_[index].is_remote.load() == 0 && is_over(state_of(index));
  }

  /// The machine of a rank; 0 where the job has one machine.
  [[nodiscard]] int machine(int index) const noexcept { return entries_[index].machine.load(); }
  /// Called before any rank of this machine has the roster.
  void set_machine(int index, int machine) noexcept { entries_[index].machine.store(machine); }

  /// Enters a rank of another machine. Called before any rank of this machine has the roster.
  void enter_remote(int index, int pid, std::string_view host) noexcept {
    entry& other = entries_[index];
    other.is_remote.store(1);
    other.pid.store(pid);
    host.copy(other.host, sizeof(other.host) - 1);
    other.state.store(presence::here);
  }

  /// Records how a rank of another machine ended. The first ending counts.
  void end_remote(int index, const rank_ending& end) noexcept {
    entry& other = entries_[index];
    other.failure.write(end.text);
    auto here = presence::here;
    other.state.compare_exchange_strong(here, presence_of(end.how));
  }

  /// Removes this rank. From now on, ranks that wait for it get an error that it left.
  void leave() noexcept {
    if (!creator_.in_creating_process()) {
      return;
    }
    auto here = presence::here;
    entries_[index_].state.compare_exchange_strong(here, presence::left);
  }

  /// Publishes why this rank is about to end, and whether it ends because another rank did. The first text counts.
  void fail(std::string_view text, bool because_of_another = false) noexcept {
    if (!creator_.in_creating_process()) {
      return;
    }
    entries_[index_].failure.write(text);
    auto here = presence::here;  // the first text counts
    entries_[index_].state.compare_exchange_strong(
        here, because_of_another ? presence::failed_because_of_another : presence::failed);
  }

  /// Returns whether the last text that a rank of this machine has printed of another one's end is not this.
  [[nodiscard]] bool is_news(std::string_view text) noexcept {
    const auto hash = static_cast<std::uint32_t>(detail::fnv1a(text));
    return entries_[0].printed.exchange(hash) != hash;
  }

  /// Returns how rank `index` ended; nullopt while it lives or has not come yet. It may wait for the parent's exit
  /// record, until 60 ms after this process has first seen the death.
  [[nodiscard, gnu::cold]] std::optional<rank_ending> ending(int index) const {
    using kind = rank_ending::kind;
    const entry& other = entries_[index];
    switch (other.state.load()) {
      case presence::absent: return std::nullopt;
      case presence::left: return rank_ending{kind::left, "has left the job"};
      case presence::failed:
      case presence::failed_because_of_another:
        return rank_ending{other.state.load() == presence::failed ? kind::failed : kind::failed_because_of_another,
                           detail::concat({"failed: ", other.failure.read().value_or("(no text)")})};
      case presence::died: return rank_ending{kind::died, other.failure.read().value_or("ended")};
      case presence::here: break;
    }
    if (other.is_remote.load() != 0) {
      return ending_without_agent();
    }
    const auto state = state_of(index);
    if (!is_over(state)) {
      return std::nullopt;
    }
    if (other.state.load() != presence::here) {
      return ending(index);  // it has changed its state between the two checks
    }
    return describe_exit(index, state);
  }

  /// Returns whether a rank has ended otherwise than by leaving.
  [[nodiscard]] bool has_losses() const {
    for (int rank = 0; rank < size_; ++rank) {
      if (const auto end = ending(rank); end && end->how != rank_ending::kind::left) {
        return true;
      }
    }
    return false;
  }

  /// Returns the text of the exception that ended rank `index`, if it was published.
  [[nodiscard]] std::optional<std::string> failure_text_of(int index) const {
    const auto state = entries_[index].state.load();
    return state == presence::failed || state == presence::failed_because_of_another ? entries_[index].failure.read()
                                                                                     : std::nullopt;
  }

  /// Records what a rank that has ended called last, for the process that launched it.
  void record_last_call(int index, std::string_view text) const noexcept {
    if (exit_record* const record = exit_record_of(index); record != nullptr && ranks_are_processes()) {
      record->last_call.write(text);
    }
  }

  /// Returns what a rank of this machine waits for.
  [[nodiscard]] wait_record& wait_of(int index) const noexcept { return entries_[index].wait; }

  /// Returns the rank's process for error texts: "pid 4711 on node3".
  [[nodiscard, gnu::cold]] std::string identity(int index) const {
    const entry& other = entries_[index];
    if (other.state.load() == presence::absent) {
      return "not started";
    }
    return detail::concat({ranks_are_processes() ? "pid " : "thread of pid ", other.pid.load(), " on ", other.host});
  }

  /// Returns a rank, other than `index`, that has ended by itself and not because of another one; -1 where none has.
  [[nodiscard, gnu::cold]] int culprit_besides(int index) const {
    for (int rank = 0; rank < size_; ++rank) {
      if (rank == index || entries_[rank].state.load() == presence::left) {
        continue;
      }
      if (const auto end = ending(rank); end && end->how <= rank_ending::kind::failed) {
        return rank;
      }
    }
    return -1;
  }

  /// Returns who has ended by itself, besides rank `index`, as an addition to its text; empty where nobody has. A rank
  /// that ends because of another one may be all that a group knows, to which that one does not belong.
  [[nodiscard, gnu::cold]] std::string other_culprit(int index) const {
    if (const int rank = culprit_besides(index); rank >= 0) {
      return detail::concat({"; also, rank ", rank, " of the job (", identity(rank), ") ", ending(rank)->text});
    }
    return {};
  }

 private:
  /// Returns why no rank of another machine can be reached; nullopt while this machine's agent is there.
  [[nodiscard, gnu::cold]] std::optional<rank_ending> ending_without_agent() const {
    const auto end = agent_ending();
    if (!end) {
      return std::nullopt;
    }
    return rank_ending{rank_ending::kind::failed_because_of_another,
                       detail::concat({"cannot be reached: rank ", agent_, " (", identity(agent_),
                                       "), which connects this machine, ", end->text})};
  }

  [[nodiscard]] static struct flock lock_of(int index) noexcept {
    return {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = index, .l_len = 1, .l_pid = 0};
  }
  [[nodiscard]] static bool is_over(process_state state) noexcept {
    return state != process_state::running && state != process_state::unknown;
  }
  /// Returns the state of a rank's process on this machine; unknown where ranks are threads.
  [[nodiscard]] process_state state_of(int index) const {
    if (!ranks_are_processes() || index == index_) {
      return process_state::unknown;
    }
    struct flock lock = lock_of(index);
    if (::fcntl(segment_->fd(), F_GETLK, &lock) != 0) {
      return process_state::unknown;
    }
    return lock.l_type == F_UNLCK ? process_state::ended : state_of_holder(index, lock.l_pid);
  }
  /// Returns the state of the process that holds a rank's lock. A process that was waited for has no number any more;
  /// the number that it had tells that it is gone.
  [[nodiscard]] process_state state_of_holder(int index, pid_t holder) const {
    std::atomic<pid_t>& last = seen_[static_cast<std::size_t>(index)].holder;
    if (holder > 0) {
      last.store(holder, std::memory_order_relaxed);
    } else {
      holder = last.load(std::memory_order_relaxed);
    }
    return holder > 0 ? state_of_process(holder) : process_state::unknown;
  }

  enum class presence : std::uint32_t {
    absent,
    here,
    left,
    failed,
    failed_because_of_another,
    died,  // of ranks on other machines: this machine cannot look itself
  };
  [[nodiscard]] static presence presence_of(rank_ending::kind how) noexcept {
    switch (how) {
      case rank_ending::kind::died: return presence::died;
      case rank_ending::kind::failed: return presence::failed;
      case rank_ending::kind::failed_because_of_another: return presence::failed_because_of_another;
      case rank_ending::kind::left: break;
    }
    return presence::left;
  }

  struct alignas(64) entry {
    std::atomic<presence> state{presence::absent};
    std::atomic<std::int32_t> pid{0};
    std::atomic<std::int32_t> is_remote{0};  // 1: on another machine
    std::atomic<std::int32_t> machine{0};
    std::atomic<std::int32_t> has_no_agent{0};  // 1: its process connects the machine no more
    std::atomic<std::int32_t> launched_as{-1};  // the rank that launch() gave its process, also in other jobs
    std::atomic<std::int32_t> launched_by{0};   // the process that called launch()
    std::atomic<std::uint32_t> printed{0};  // a hash of the text that was printed last; that of the first entry counts
    char host[64]{};
    failure_text failure;
    wait_record wait;
  };
  static_assert(std::atomic<presence>::is_always_lock_free && std::atomic<std::int32_t>::is_always_lock_free);

  /// Returns the exit record of a rank that has been launched together with this one; null where there is none.
  [[nodiscard]] exit_record* exit_record_of(int index) const noexcept {
    const entry& other = entries_[index];
    const int launched_as = other.launched_as.load();
    const bool has_one =
        own_launch().table != nullptr && launched_as >= 0 && other.launched_by.load() == own_launch().parent;
    return has_one ? own_launch().table + launched_as : nullptr;
  }

  /// Returns how a process ended or ends, from its exit record where there is one.
  [[nodiscard, gnu::cold]] rank_ending describe_exit(int index, process_state state) const {
    using kind = rank_ending::kind;
    if (state == process_state::dumping_core) {
      return {kind::died, "has crashed; the system may be writing its core file"};
    }
    if (const exit_record* const record = exit_record_of(index); record != nullptr) {
      // The kernel tells the parent a moment later, or much later where much memory is to be freed.
      const auto begin = detail::time_of_first(seen_[static_cast<std::size_t>(index)].ended_at);
      do {
        if (record->ended.load() != 0) {
          const auto text = record->failure.read();
          return text ? rank_ending{record->because_of_another.load() != 0 ? kind::failed_because_of_another
                                                                           : kind::failed,
                                    detail::concat({"failed: ", *text})}
                      : rank_ending{kind::died, describe_wait_status(record->wait_status.load())};
        }
      } while (detail::sleep_within(begin, std::chrono::milliseconds(60)));
    }
    return {kind::died,
            detail::concat({state == process_state::ended ? "ended" : "is ending",
                            " without a word: it crashed, called _exit, or was killed (by SIGKILL or out of memory)"})};
  }

  /// Knowledge of this process about another one.
  struct seen_process {
    std::atomic<pid_t> holder{0};           // last seen to hold the rank's lock; 0: none was
    std::atomic<std::int64_t> ended_at{0};  // when its end was first seen, on the steady clock; 0: not yet
  };

  std::shared_ptr<shared_segment> segment_;
  entry* entries_;
  int size_;
  int index_;
  std::unique_ptr<seen_process[]> seen_;  // by rank
  fork_guard creator_;
  int agent_ = -1;  // -1: the job has one machine
};

}  // namespace hfcomm::rendezvous
