// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/engines/engine.hpp>
#include <hfcomm/engines/lockstep.hpp>
#include <hfcomm/engines/reduction.hpp>

namespace hfcomm::engines {

/// The ranks of one machine, through memory that they share. Small payloads travel inside the cell that says "I am
/// here", so an operation on them costs one synchronisation; large ones go through slots in chunks, the next chunk
/// being filled while the last one is read.
class shared_memory final : public host_engine {
 public:
  /// `id` names the group among all groups of the job; `members` are indices into the job's roster.
  shared_memory(std::string id, std::shared_ptr<rendezvous::shared_segment> segment, std::shared_ptr<local_job> job,
                std::vector<int> members, int rank)
      : steps_(std::move(segment), std::move(job), std::move(members), rank), id_(std::move(id)) {}

  [[nodiscard]] std::string_view name() const noexcept override { return "shared_memory"; }
  [[nodiscard]] int rank() const noexcept override { return steps_.rank(); }
  [[nodiscard]] int size() const noexcept override { return steps_.size(); }
  [[nodiscard]] std::uint64_t sequence() const noexcept override { return steps_.operations(); }
  [[nodiscard]] bool broken() const noexcept override { return steps_.broken(); }
  [[nodiscard]] std::string matching_call(int rank) const override { return steps_.matching_call(rank); }
  void cancel() noexcept override { steps_.cancel(); }
  void set_polite(bool polite) noexcept override { steps_.set_polite(polite); }

  void exchange(const operation& call, std::span<const std::byte> contribution, receiver& out) override {
    steps_.begin(call);
    if (!call.contributes(rank())) {
      contribution = {};
    }
    const std::size_t chunk = steps_.sizes().slot_bytes;
    fill(contribution, 0, contribution.size() <= layout::inline_bytes);
    steps_.publish(call);
    steps_.wait_all(call);
    steps_.check(call);

    std::uint64_t largest = 0;
    const std::uint64_t first = steps_.step();
    totals_.assign(static_cast<std::size_t>(size()), 0);
    for (int source = 0; source < size(); ++source) {
      if (call.contributes(source)) {
        const std::uint64_t total = steps_.cell(source, first).bytes.load(std::memory_order_relaxed);
        totals_[static_cast<std::size_t>(source)] = total;
        largest = std::max(largest, total);
      }
    }
    // What the receiver throws must not leave the peers alone in the middle: go through the steps, then throw.
    std::exception_ptr problem;
    for (std::uint64_t offset = 0;; offset += chunk) {
      const std::uint64_t step = steps_.step();
      const bool more = offset + chunk < largest;
      if (more) {
        fill(contribution, offset + chunk, false);
        steps_.publish(call);
      }
      if (call.receives(rank()) && !problem) {
        try {
          deliver(call, contribution, offset, step, out);
        } catch (...) {
          problem = std::current_exception();
        }
      }
      if (!more) {
        break;
      }
      steps_.wait_all(call);
    }
    if (problem) {
      std::rethrow_exception(problem);
    }
  }

  void reduce(const operation& call, std::span<const std::byte> in, std::span<std::byte> out) override {
    steps_.begin(call);
    if (in.size() <= steps_.sizes().one_shot_bytes) {
      reduce_at_once(call, in, out);
    } else {
      reduce_in_slices(call, in, out);
    }
  }

  void prepare(const operation& call) override { steps_.prepare(call); }

  void announce(const operation& call, const std::string* failure) override {
    steps_.begin(call);
    steps_.publish(call, failure, true);
  }

  void await(const operation& call, int source) override {
    steps_.begin(call);
    steps_.publish(call);
    steps_.wait_for(call, source);
  }

  std::shared_ptr<host_engine> subgroup(const operation& call, std::span<const int> members) override {
    const auto& job = steps_.job();
    const auto mine = std::find(members.begin(), members.end(), rank());
    const bool leads = !members.empty() && members.front() == rank();
    const bool alone = members.size() == 1;
    std::vector<int> people;
    for (const int member : members) {
      people.push_back(steps_.members()[static_cast<std::size_t>(member)]);
    }
    // Every member derives the same name from what it knows already, so the name itself needs no exchange.
    std::string token;
    if (!members.empty()) {
      token = id_ + '/' + std::to_string(steps_.operations()) + '.' + std::to_string(members.front());
    }
    std::shared_ptr<rendezvous::shared_segment> segment;
    if (leads) {
      try {
        const auto sizes = layout::dimensions::for_ranks(static_cast<int>(members.size()));
        segment = job->broker->offer(token, sizes.total_bytes(), static_cast<int>(members.size()) - 1);
        layout::create_in(*segment, sizes);
      } catch (const error& problem) {
        const std::string& text = problem.detail();
        announce(call, &text);
        throw engine_error(steps_.context(call), text);
      }
    }
    // Meeting here tells the members that the memory is there to be taken, and everyone that nobody failed to make it.
    nobody nothing;
    try {
      exchange(call, {}, nothing);
    } catch (...) {
      job->broker->withdraw(token);
      throw;
    }
    if (members.empty()) {
      return nullptr;
    }
    if (!alone) {
      const auto give_up = rendezvous::deadline::in(call.timeout);
      const auto check = [&] {
        steps_.throw_if_lost(call, {members.begin(), members.end()});
        if (give_up.passed()) {
          throw timeout_error(
              steps_.context(call),
              "the ranks of the new group did not all come for its memory within " + format_duration(call.timeout), {});
        }
      };
      if (leads) {
        job->broker->serve(token, check);
      } else {
        segment = job->broker->take(token, check);
      }
    }
    auto group = std::make_shared<shared_memory>(std::move(token), std::move(segment), job, std::move(people),
                                                 static_cast<int>(mine - members.begin()));
    // Nobody leaves before everybody has come: who takes the memory and ends at once must not look like a loss.
    group->exchange(call, {}, nothing);
    return group;
  }

 private:
  struct nobody final : receiver {
    void receive(int, std::span<const std::byte>, std::uint64_t, std::uint64_t) override {}
  };

  /// Puts this rank's next chunk where the others will look for it.
  void fill(std::span<const std::byte> contribution, std::uint64_t offset, bool in_cell) {
    if (offset < contribution.size()) {
      const std::size_t count = std::min<std::size_t>(contribution.size() - offset, steps_.sizes().slot_bytes);
      std::byte* to = in_cell ? steps_.cell(rank(), steps_.next()).payload : steps_.slot(rank(), steps_.next());
      std::memcpy(to, contribution.data() + offset, count);
    }
  }

  void deliver(const operation& call, std::span<const std::byte> own, std::uint64_t offset, std::uint64_t step,
               receiver& out) {
    const std::size_t chunk = steps_.sizes().slot_bytes;
    // Starting behind oneself spreads the readers over the sources.
    for (int turn = 0; turn < size(); ++turn) {
      const int source = (rank() + turn) % size();
      const std::uint64_t total = totals_[static_cast<std::size_t>(source)];
      if (!call.contributes(source) || (offset != 0 && offset >= total)) {
        continue;
      }
      if (source == rank()) {
        if (offset == 0) {
          out.receive(source, own, 0, total);
        }
        continue;
      }
      const std::byte* from =
          total <= layout::inline_bytes ? steps_.cell(source, step).payload : steps_.slot(source, step);
      out.receive(source, {from, std::min<std::uint64_t>(chunk, total - offset)}, offset, total);
    }
  }

  /// One step: everyone publishes all of its input, whoever receives reduces all of it.
  void reduce_at_once(const operation& call, std::span<const std::byte> in, std::span<std::byte> out) {
    const bool in_cell = in.size() <= layout::inline_bytes;
    fill(in, 0, in_cell);
    steps_.publish(call);
    steps_.wait_all(call);
    steps_.check(call);
    if (!call.receives(rank()) || in.empty()) {
      return;
    }
    inputs_.resize(static_cast<std::size_t>(size()));
    for (int source = 0; source < size(); ++source) {
      inputs_[static_cast<std::size_t>(source)] =
          in_cell ? steps_.cell(source, steps_.step()).payload : steps_.slot(source, steps_.step());
    }
    detail::reduce_elements(call.op, call.element, inputs_, out.data(), in.size() / size_of(call.element));
  }

  /// Chunk by chunk: publish the chunk, reduce one's own slice of it, publish that, collect the other slices. The
  /// second half of a chunk shares its step with the first half of the next, so a chunk costs one synchronisation.
  void reduce_in_slices(const operation& call, std::span<const std::byte> in, std::span<std::byte> out) {
    const std::size_t width = size_of(call.element);
    const std::size_t total = in.size() / width;
    const std::size_t chunk = steps_.sizes().slot_bytes / width;
    const std::size_t chunks = (total + chunk - 1) / chunk;
    const bool receives = call.receives(rank());
    inputs_.resize(static_cast<std::size_t>(size()));

    stage(in, 0, chunk, total, width);
    steps_.publish(call);
    for (std::size_t index = 0; index <= chunks; ++index) {
      steps_.wait_all(call);
      if (index == 0) {
        steps_.check(call);
      }
      const std::uint64_t step = steps_.step();
      if (index < chunks) {
        const slices mine(index, chunk, total, size());
        const auto [begin, end] = mine.of(rank());
        for (int source = 0; source < size(); ++source) {
          inputs_[static_cast<std::size_t>(source)] = source == rank()
                                                          ? in.data() + begin * width
                                                          : steps_.slot(source, step) + (begin - index * chunk) * width;
        }
        std::byte* result = steps_.result(rank(), steps_.next());
        detail::reduce_elements(call.op, call.element, inputs_, result, end - begin);
        if (receives && end > begin) {
          std::memcpy(out.data() + begin * width, result, (end - begin) * width);
        }
        stage(in, index + 1, chunk, total, width);
        steps_.publish(call);
      }
      if (index > 0 && receives) {
        const slices before(index - 1, chunk, total, size());
        for (int turn = 1; turn < size(); ++turn) {
          const int owner = (rank() + turn) % size();
          const auto [begin, end] = before.of(owner);
          if (end > begin) {
            std::memcpy(out.data() + begin * width, steps_.result(owner, step), (end - begin) * width);
          }
        }
      }
    }
  }

  /// Which elements of a chunk each rank reduces: equal shares in whole cache lines.
  class slices {
   public:
    slices(std::size_t index, std::size_t chunk, std::size_t total, int ranks)
        : begin_(std::min(index * chunk, total)),
          end_(std::min(begin_ + chunk, total)),
          share_(layout::round_up(
              (end_ - begin_ + static_cast<std::size_t>(ranks) - 1) / static_cast<std::size_t>(ranks), 8)) {}

    [[nodiscard]] std::pair<std::size_t, std::size_t> of(int rank) const {
      const std::size_t from = std::min(begin_ + share_ * static_cast<std::size_t>(rank), end_);
      return {from, std::min(from + share_, end_)};
    }

   private:
    std::size_t begin_;
    std::size_t end_;
    std::size_t share_;
  };

  /// Copies chunk `index` to this rank's next slot, but for the slice that it reduces itself.
  void stage(std::span<const std::byte> in, std::size_t index, std::size_t chunk, std::size_t total,
             std::size_t width) {
    const slices parts(index, chunk, total, size());
    std::byte* slot = steps_.slot(rank(), steps_.next());
    const std::size_t base = index * chunk;
    for (int owner = 0; owner < size(); ++owner) {
      const auto [begin, end] = parts.of(owner);
      if (owner != rank() && end > begin) {
        std::memcpy(slot + (begin - base) * width, in.data() + begin * width, (end - begin) * width);
      }
    }
  }

  lockstep steps_;
  std::string id_;
  std::vector<std::uint64_t> totals_;     // scratch: bytes per source
  std::vector<const std::byte*> inputs_;  // scratch: where each rank's elements are
};

}  // namespace hfcomm::engines
