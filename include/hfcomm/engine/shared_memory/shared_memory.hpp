// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/core/std_algorithm.hpp>
#include <hfcomm/engine/host_engine.hpp>
#include <hfcomm/engine/shared_memory/memory.hpp>
#include <hfcomm/engine/shared_memory/messages.hpp>
#include <hfcomm/engine/shared_memory/operations.hpp>
#include <hfcomm/engine/shared_memory/steps.hpp>
#include <hfcomm/engine/shared_memory/ways.hpp>
#include <hfcomm/machine/random_id.hpp>
#include <hfcomm/machine/waiting.hpp>

namespace hfcomm::engines {

/// The engine of ranks on one machine, through memory that they share. A small payload travels inside the cell that
/// publishes a step, so its operation costs one synchronisation. A large one passes through slots in chunks; the next
/// chunk is filled while the last one is read.
class shared_memory final : public host_engine {
 public:
  /// `members` are indices into the job's roster.
  [[gnu::cold]] shared_memory(std::shared_ptr<rendezvous::shared_segment> segment, std::shared_ptr<local_job> job,
                              std::vector<int> members, int rank)
      : shared_memory(
            std::make_shared<shared_memory_health>(std::move(segment), std::move(job), std::move(members), rank)) {}
  [[nodiscard]] std::string_view name() const noexcept override {
    return health_->memory().spans_machines() ? "hierarchical" : "shared_memory";
  }
  [[nodiscard]] std::uint64_t sequence() const noexcept override { return steps_.operations(); }
  [[nodiscard]] std::string matching_call(int rank) const override { return steps_.matching_call(rank); }
  [[nodiscard]] bool same_name_everywhere(bool accept_failures) const noexcept override {
    return steps_.same_name_everywhere(accept_failures);
  }
  void cancel() noexcept override {
    steps_.cancel();
    if (!health_->in_creating_process()) {
      return;  // the lock may be held for ever
    }
    const std::scoped_lock lock(messages_mutex_);
    is_cancelled_ = true;
    if (messages_) {
      messages_->cancel();
    }
  }
  [[nodiscard]] std::shared_ptr<buffer_memory> memory() const override {
    return heap_ != nullptr ? heap_ : ordinary_memory::of_process();
  }
  [[nodiscard]] bool can_share() const noexcept override { return heap_ != nullptr; }
  [[nodiscard]] std::shared_ptr<void> share(std::span<const std::span<std::byte>> buffers,
                                            const error_context& context) {
    return share_buffers(ranges_, heap_, steps_.sizes().spans_machines(), buffers, context);
  }
  void set_yields_core(bool yields) noexcept override { steps_.set_yields_core(yields); }
  void set_caller(caller_state state) noexcept { steps_.set_caller(state); }

  /// Returns the collectives between machines; null where all ranks are on one.
  [[nodiscard]] machine_collectives* machines() const noexcept { return machines_.get(); }
  /// The algorithms of the group's operations. The first operation makes each, so only a program that calls it has its
  /// code.
  [[nodiscard]] engines::exchange& exchanges() {
    return made<engines::exchange>(exchange_, steps_, peers_, reads_, ways());
  }
  [[nodiscard]] engines::reduce& reductions() {
    return made<engines::reduce>(reduce_, steps_, peers_, reads_, ways(), nodes_);
  }
  [[nodiscard]] engines::all_to_all_v& all_to_all_v_exchanges() {
    return made<engines::all_to_all_v>(all_to_all_v_, steps_, peers_, reads_, ways());
  }
  [[nodiscard]] engines::reduce_scatter& scattered_reductions() {
    return made<engines::reduce_scatter>(reduce_scatter_, steps_, peers_, reads_, ways());
  }
  /// Returns the group's messages, which its first message makes. Any thread may call.
  [[nodiscard]] const std::shared_ptr<point_to_point>& messages() {
    const owned_messages* made = made_messages_.load(std::memory_order_acquire);
    return started_messages::of(made != nullptr ? *made : make_messages());
  }

  /// Returns the number of steps that this rank has taken.
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_.step(); }
  /// Returns the number of operations in which the kernel copied from the others' memory, or could have: among them are
  /// those of all_to_all and reduce_scatter on buffers in heaps.
  [[nodiscard]] std::uint64_t single_copies() const noexcept { return reads_.count(); }
  /// Returns the algorithm of reductions along the chain of NUMA nodes.
  [[nodiscard]] engines::node_chain& node_chain() { return reductions().nodes(); }

  [[nodiscard]] const group_memory& memory_of_group() const noexcept { return health_->memory(); }

  void prepare(const operation& call) override { steps_.prepare(call); }

  [[nodiscard]] std::span<std::byte> staging_memory(const operation& call) override {
    steps_.prepare(call);
    if (!steps_.may_leave(call) || steps_.has_free_slot()) {
      return {steps_.slot(rank(), steps_.next()), steps_.sizes().slot_bytes};
    }
    return {steps_.small_slot(rank(), steps_.next()), layout::small_slot_bytes};
  }

  void announce(const operation& call, const std::string* failure) override {
    steps_.begin(call, steps_.may_leave(call));
    steps_.publish(call, failure);
  }

  void wait_for(const operation& call, int source) override {
    steps_.begin(call);
    steps_.publish(call);
    steps_.wait_for(call, source);
  }

  [[gnu::cold]] std::shared_ptr<host_engine> subgroup(const operation& call, std::span<const int> members) {
    const auto& job = health_->job();
    const auto index_of = [&](int member) { return health_->members()[static_cast<std::size_t>(member)]; };
    const auto mine = std::find(members.begin(), members.end(), rank());
    std::vector<int> indices;
    std::vector<int> neighbours;  // the members on this machine; the first makes the memory
    for (const int member : members) {
      indices.push_back(index_of(member));
      if (job->machine(indices.back()) == job->machine(index_of(rank()))) {
        neighbours.push_back(member);
      }
    }
    const bool leads = !neighbours.empty() && neighbours.front() == rank();
    const bool spans_machines = job->spans_machines(indices);
    const int count = std::max(1, static_cast<int>(members.size()));
    const auto sizes = spans_machines ? layout::dimensions::for_machines(count) : layout::dimensions::for_ranks(count);
    operation tell = call;
    tell.pattern = movement::to_all;
    tell.content = payload::object;  // only the first members have a name to tell
    std::string token;
    std::shared_ptr<rendezvous::shared_segment> segment;
    if (leads) {
      try {
        token = rendezvous::random_id();  // whoever could guess the name could take it
        segment = broker().offer(token, sizes.total_bytes(), spans_machines ? 0 : sizes.heap_bytes(),
                                 static_cast<int>(neighbours.size()) - 1);
        layout::create_in(*segment, sizes);
      } catch (...) {
        broker().withdraw(token);
        const std::string text = detail::current_exception_detail();
        announce(tell, &text);
        detail::throw_error<engine_error>(steps_.context(call), {text});
      }
    }
    // This exchange tells the members the name of the memory that they can take, and all ranks that nobody failed to
    // make it. The first member's name is the group's number between machines.
    std::string group_name;
    token_receiver names(neighbours.empty() ? -1 : neighbours.front(), token, members.empty() ? -1 : members.front(),
                         group_name);
    try {
      tell.bytes = token.size();
      // NOLINTNEXTLINE(*unnecessary-copy-initialization): the receiver writes `token`
      const std::string own = token;
      exchanges().run(tell, std::as_bytes(std::span(own)), names);
    } catch (...) {
      broker().withdraw(token);
      throw;
    }
    no_receiver nothing;
    std::shared_ptr<shared_memory> group;
    if (!members.empty()) {
      try {
        if (hand_over(call, token, segment, neighbours, sizes.total_bytes())) {
          if (leads && spans_machines) {
            job->port->add_group(detail::fnv1a(group_name), indices, segment);
          }
          group = std::make_shared<shared_memory>(std::move(segment), job, std::move(indices),
                                                  static_cast<int>(mine - members.begin()));
        }
      } catch (...) {
        fail_to_join(call, token, leads);
      }
    }
    // No rank leaves before all have come here. A rank that takes the memory and ends at once must not look like a
    // loss, and no rank may wait for one that could not take it.
    try {
      exchanges().run(call, {}, nothing);
    } catch (...) {
      if (leads) {
        broker().withdraw(token);
      }
      throw;
    }
    return group;
  }

 private:
  /// Owns an algorithm without naming its class.
  struct owned_algorithm {
    owned_algorithm() = default;
    owned_algorithm(const owned_algorithm&) = delete;
    owned_algorithm& operator=(const owned_algorithm&) = delete;
    virtual ~owned_algorithm() = default;
  };
  template <class Algorithm>
  struct owned_as final : owned_algorithm {
    template <class... Parts>
    explicit owned_as(Parts&&... parts) : algorithm(parts...) {}
    Algorithm algorithm;
  };
  template <class Algorithm, class... Parts>
  static Algorithm& made(std::unique_ptr<owned_algorithm>& owner, Parts&&... parts) {
    if (owner == nullptr) {
      owner = std::make_unique<owned_as<Algorithm>>(parts...);
    }
    return static_cast<owned_as<Algorithm>&>(*owner).algorithm;
  }
  const owned_messages& make_messages() {
    const std::scoped_lock lock(messages_mutex_);
    if (!messages_) {
      messages_ = std::make_unique<started_messages>(health_);
      if (is_cancelled_) {
        messages_->cancel();
      }
      made_messages_.store(messages_.get(), std::memory_order_release);
    }
    return *messages_;
  }
  [[nodiscard]] tuner& ways() { return made<tuner>(ways_, steps_, peers_); }

  [[gnu::cold]] explicit shared_memory(std::shared_ptr<const shared_memory_health> watch)
      : host_engine(kind::shared_memory, watch),
        health_(std::move(watch)),
        steps_(health_),
        heap_(health_->memory().heap_bytes() != 0 ? std::make_shared<shared_heap>(health_->memory(), rank())
                                                  : nullptr) {
    // Here, because all ranks learn of an error while a group is made: the table may be a file that is wrong.
    static_cast<void>(tuning_table::of_process());
  }

  /// Takes the name of the new group's memory from the first member on this machine, and that of the first of all.
  class token_receiver final : public receiver {
   public:
    token_receiver(int neighbour, std::string& token, int first, std::string& group_name)
        : neighbour_(neighbour), token_(token), first_(first), group_name_(group_name) {}
    void receive(int source, std::span<const std::byte> chunk, std::uint64_t offset, std::uint64_t total) override {
      if (source == neighbour_) {
        put(token_, chunk, offset, total);
      }
      if (source == first_) {
        put(group_name_, chunk, offset, total);
      }
    }

   private:
    static void put(std::string& to, std::span<const std::byte> chunk, std::uint64_t offset, std::uint64_t total) {
      to.resize(total);
      std::memcpy(to.data() + offset, chunk.data(), chunk.size());
    }

    int neighbour_;
    std::string& token_;
    int first_;
    std::string& group_name_;
  };

  /// Returns what hands over the memory of new groups. Between processes, the job's first new group makes it.
  [[nodiscard]] rendezvous::segment_broker& broker() const {
    local_job& job = *health_->job();
    std::call_once(job.broker_made, [&] {
      if (job.broker == nullptr) {
        job.broker = std::make_shared<rendezvous::process_broker>();
      }
    });
    return *job.broker;
  }

  /// Thrown while waiting for a rank that has announced that it will not come.
  struct member_failed {};

  /// Tells the other ranks that this one could not join the new group, and throws why not. To be called in a handler.
  [[noreturn]] void fail_to_join(const operation& call, const std::string& token, bool leads) {
    if (!health_->is_broken()) {  // a lost rank is known to all already; what went wrong here alone is not
      const std::string text = detail::current_exception_detail();
      announce(call, &text);
    }
    if (leads) {
      broker().withdraw(token);
    }
    try {
      throw;
    } catch (const timeout_error&) {
      throw;
    } catch (const peer_error&) {
      throw;
    } catch (...) {
      detail::throw_error<engine_error>(steps_.context(call), {detail::current_exception_detail()});
    }
  }

  /// Hands the new group's memory from the first of these members to the others, which get it in `segment`. Returns
  /// false where a member has announced that it failed. The next exchange then throws that member's error on every
  /// rank.
  [[gnu::cold]] bool hand_over(const operation& call, const std::string& token,
                               std::shared_ptr<rendezvous::shared_segment>& segment, std::span<const int> members,
                               std::size_t bytes) {
    if (members.size() == 1) {
      return true;
    }
    detail::running_time waiting;
    const auto check = [&] {
      steps_.throw_if_lost(call, {members.begin(), members.end()});
      if (steps_.failure_is_next(members)) {
        throw member_failed();
      }
      if (const auto waited = waiting.update(); call.timeout.count() > 0 && waited >= call.timeout) {
        detail::throw_error<timeout_error>(steps_.context(call),
                                           {"the ranks of the new group did not all come for its memory within ",
                                            format_duration(call.timeout), " (timed out)"},
                                           std::vector<int>{});
      }
    };
    try {
      if (members.front() == rank()) {
        broker().serve(token, check);
      } else {
        segment = broker().take(token, bytes, check);
      }
    } catch (const member_failed&) {
      return false;
    }
    return true;
  }

  std::shared_ptr<const shared_memory_health> health_;
  lockstep steps_;
  std::shared_ptr<shared_heap> heap_;  // null where there are no addresses for it
  std::shared_ptr<shared_ranges> ranges_ = std::make_shared<shared_ranges>(health_->memory().segment());
  engines::peer_memory peers_{steps_, *ranges_};
  kernel_reads reads_{steps_, peers_};
  rank_nodes nodes_{steps_, health_->local_rank()};
  std::unique_ptr<machine_collectives> machines_{
      health_->memory().spans_machines() ? health_->job()->port->make_collectives(steps_, health_->machines())
                                         : nullptr};
  // Once an operation needs them:
  std::unique_ptr<owned_algorithm> ways_;
  std::unique_ptr<owned_algorithm> exchange_;
  std::unique_ptr<owned_algorithm> reduce_;
  std::unique_ptr<owned_algorithm> all_to_all_v_;
  std::unique_ptr<owned_algorithm> reduce_scatter_;
  std::mutex messages_mutex_;
  bool is_cancelled_ = false;
  std::unique_ptr<owned_messages> messages_;
  std::atomic<const owned_messages*> made_messages_{nullptr};  // the same, for a look without the lock
};

}  // namespace hfcomm::engines
