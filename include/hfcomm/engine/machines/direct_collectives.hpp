// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <hfcomm/core/element_type.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/core/function_ref.hpp>
#include <hfcomm/engine/machines/direct_chain.hpp>
#include <hfcomm/engine/machines/direct_exchange.hpp>
#include <hfcomm/engine/machines/direct_reduction.hpp>
#include <hfcomm/engine/machines/direct_transfers.hpp>
#include <hfcomm/engine/operation.hpp>
#include <hfcomm/engine/receiver.hpp>
#include <hfcomm/engine/shared_memory/memory.hpp>
#include <hfcomm/engine/shared_memory/operations.hpp>
#include <hfcomm/engine/shared_memory/steps.hpp>

namespace hfcomm::engines {

/// The collectives on buffers of a group with one rank on each machine: what the ranks send goes from their buffers to
/// the others' over the link. Objects, and buffers of lengths that not all ranks know, take the other way. No rank
/// leaves an operation before all have come.
class direct_collectives final : public machine_collectives {
 public:
  direct_collectives(lockstep& steps, direct_carrier& carrier, std::span<const int> machine_of)
      : steps_(steps), transfers_(steps, carrier, machine_of) {}

  [[nodiscard]] bool exchange(const operation& call, std::span<const std::byte> contribution, receiver& out) override {
    if (call.pattern == movement::none) {
      meet(call);
      return true;
    }
    if (call.content != payload::buffer) {
      return false;
    }
    if (call.pattern == movement::from_root && call.bytes > most_flat && size() > 2) {
      pass_on(call, contribution, out);
      return true;
    }
    const auto sends = [&](int from, int to) { return call.contributes(from) && call.receives(to); };
    move_parts(call, sends, [&](int) { return contribution; }, out);
    return true;
  }

  [[nodiscard]] bool all_to_all_v(const operation& call, const rank_parts& mine, receiver& out) override {
    if (call.content != payload::buffer || mine.lengths_only) {
      return false;
    }
    const auto sends = [&](int from, int to) {
      return call.contributes(from) && (call.pattern != movement::to_root || to == call.root);
    };
    move_parts(call, sends, [&](int to) { return mine.part_for(call, static_cast<std::size_t>(to)); }, out);
    return true;
  }

  [[nodiscard]] bool reduce(const operation& call, std::span<const std::byte> in, std::span<std::byte> out) override {
    if (in.size() * static_cast<std::size_t>(size() - 1) <= most_at_once) {
      reduce_at_once(call, [&](int) { return in; }, in, out);
      return true;
    }
    prepare(call, [&] { cut(in.size(), size_of(call.element)); });
    const std::size_t begin = begin_of(rank());
    reduce_slices(call,
                  {.in = in,
                   .slices = slices_,
                   .own = call.receives(rank()) ? out.subspan(begin, static_cast<std::size_t>(slices_[index(rank())]))
                                                : std::span<std::byte>(),
                   .out = out,
                   .only_root = call.pattern == movement::to_root ? call.root : -1});
    return true;
  }

  [[nodiscard]] bool reduce_scatter(const operation& call, std::span<const std::byte> in,
                                    std::span<const std::uint64_t> parts, std::span<std::byte> out) override {
    if (in.size() <= most_at_once) {
      std::size_t begin = 0;
      const auto part_of = [&](int owner) {
        begin = 0;
        for (int before = 0; before < owner; ++before) {
          begin += static_cast<std::size_t>(parts[index(before)]);
        }
        return in.subspan(begin, static_cast<std::size_t>(parts[index(owner)]));
      };
      reduce_at_once(call, part_of, part_of(rank()), out);
      return true;
    }
    reduce_slices(call, {.in = in, .slices = parts, .own = out, .out = {}, .delivers = false});
    return true;
  }

 private:
  static constexpr std::size_t most_flat = std::size_t{64} << 10;     // bytes that a root sends to each rank itself
  static constexpr std::size_t most_at_once = std::size_t{64} << 10;  // bytes to be reduced that a rank receives

  [[nodiscard]] static std::size_t index(int rank) noexcept { return static_cast<std::size_t>(rank); }
  [[nodiscard]] int rank() const noexcept { return steps_.rank(); }
  [[nodiscard]] int size() const noexcept { return steps_.size(); }

  /// Calls `make`, which may throw while nothing has been sent. The other ranks learn that, too.
  void prepare(const operation& call, function_ref<void()> make) {
    try {
      make();
    } catch (...) {
      const std::string text = hfcomm::detail::current_exception_detail();
      steps_.begin(call);
      steps_.publish(call, &text);
      throw;
    }
  }

  /// Waits for all ranks.
  void meet(const operation& call) {
    prepare(call, [&] { turn_to(1); });
    transfers_.begin(call);
    meet_now(call);
    transfers_.end();
  }
  /// The same within an operation: in round k each rank tells the one 2^k behind it that it has come, and with it all
  /// that it has heard of.
  void meet_now(const operation& call) {
    for (int distance = 1; distance < size(); distance *= 2) {
      turn_to(distance);
      exchange_.run(call, turn_);
    }
  }
  void turn_to(int distance) {
    turn_[0] = {.rank = (rank() + distance) % size(), .sends = true};
    turn_[1] = {.rank = (rank() - distance + size()) % size(), .receives = true};
    exchange_.prepare(turn_);
  }

  /// Moves the part of each rank for each other one, where `sends(from, to)`: `part_for(to)` of this one.
  template <class Sends, class PartFor>
  void move_parts(const operation& call, const Sends& sends, const PartFor& part_for, receiver& out) {
    const auto bytes = static_cast<std::size_t>(call.bytes);
    prepare(call, [&] {
      begin_moves();
      for_each_other([&](int other) {
        std::byte* const place = sends(other, rank()) && bytes != 0 ? out.place_for(other, bytes) : nullptr;
        add(other, sends(rank(), other) ? part_for(other) : std::span<const std::byte>(),
            {place, sends(other, rank()) ? bytes : 0});
      });
      end_moves();
    });
    transfers_.begin(call);
    exchange_.run(call, moves_);
    transfers_.end();
    careful_receiver careful(out);
    for (const direct_move& one : moves_) {
      if (sends(one.rank, rank()) && (bytes == 0 || is_in_scratch(one.in))) {
        careful.receive(one.rank, one.in, 0, bytes);
      }
    }
    if (sends(rank(), rank())) {
      careful.receive(rank(), part_for(rank()), 0, bytes);
    }
    careful.rethrow();
  }

  /// A long broadcast.
  void pass_on(const operation& call, std::span<const std::byte> contribution, receiver& out) {
    const auto bytes = static_cast<std::size_t>(call.bytes);
    std::byte* place = nullptr;
    prepare(call, [&] {
      turn_to(1);
      chain_.prepare(bytes);
      place = call.receives(rank()) ? out.place_for(call.root, bytes) : nullptr;
      if (call.receives(rank()) && place == nullptr) {
        scratch_.resize(std::max(scratch_.size(), bytes));
      }
    });
    const bool is_root = rank() == call.root;
    // The root's chain does not write them.
    std::byte* const memory = is_root            ? const_cast<std::byte*>(contribution.data())  // NOLINT(*const-cast*)
                              : place != nullptr ? place
                                                 : scratch_.data();
    transfers_.begin(call);
    meet_now(call);
    chain_.run(call, {memory, bytes});
    transfers_.end();
    careful_receiver careful(out);
    if (!is_root && place == nullptr) {
      careful.receive(call.root, {memory, bytes}, 0, bytes);
    }
    careful.rethrow();
  }

  /// Reduces few bytes on each rank that receives: `part_for(to)` of this one goes to rank `to`.
  template <class PartFor>
  void reduce_at_once(const operation& call, const PartFor& part_for, std::span<const std::byte> own,
                      std::span<std::byte> out) {
    prepare(call, [&] {
      begin_moves();
      for_each_other([&](int other) {
        add(other, call.receives(other) ? part_for(other) : std::span<const std::byte>(),
            {static_cast<std::byte*>(nullptr), call.receives(rank()) ? own.size() : 0});
      });
      end_moves();
      inputs_.resize(index(size()));
      factors_.assign(index(size()), call.factor);
    });
    transfers_.begin(call);
    exchange_.run(call, moves_);
    transfers_.end();
    if (call.receives(rank()) && !own.empty()) {
      inputs_[index(rank())] = own.data();
      for (const direct_move& one : moves_) {
        inputs_[index(one.rank)] = one.in.data();
        factors_[index(one.rank)] = one.factor;
      }
      const bool has_factors = call.op == reduce_kind::premultiplied_sum;
      hfcomm::detail::run_kernel(call.kernel, call.op, inputs_, out.data(), own.size() / size_of(call.element),
                                 has_factors ? std::span<const double>(factors_) : std::span<const double>());
    }
  }

  void reduce_slices(const operation& call, const direct_reduction::buffers& mine) {
    prepare(call, [&] { reduction_.prepare(mine, size_of(call.element)); });
    transfers_.begin(call);
    reduction_.run(call, mine);
    transfers_.end();
  }

  /// Cuts a buffer into a slice for each rank.
  void cut(std::size_t bytes, std::size_t width) {
    constexpr std::size_t unit = 16;  // elements
    const std::size_t ranks = index(size());
    const std::size_t elements = bytes / width;
    const std::size_t share = layout::round_up((elements + ranks - 1) / ranks, unit);
    slices_.clear();
    for (std::size_t left = elements; slices_.size() < ranks;) {
      const std::size_t slice = std::min(share, left);
      slices_.push_back(slice * width);
      left -= slice;
    }
  }
  [[nodiscard]] std::size_t begin_of(int owner) const {
    std::size_t begin = 0;
    for (int before = 0; before < owner; ++before) {
      begin += static_cast<std::size_t>(slices_[index(before)]);
    }
    return begin;
  }

  /// Calls `use(other)` for each other rank, from the next one on.
  template <class Use>
  void for_each_other(const Use& use) const {
    for (int turn = 1; turn < size(); ++turn) {
      use((rank() + turn) % size());
    }
  }

  // The moves of an operation. What is received without a place goes to `scratch_`.

  void begin_moves() {
    moves_.clear();
    moves_.reserve(index(size()));
    scratch_bytes_ = 0;
  }
  /// Adds that of `other`. `in` may have no place.
  void add(int other, std::span<const std::byte> out, std::span<std::byte> in) {
    moves_.push_back({.rank = other, .sends = true, .receives = true, .out = out, .in = in});
    scratch_bytes_ += in.data() == nullptr ? layout::round_up(in.size(), 64) : 0;
  }
  void end_moves() {
    scratch_.resize(std::max(scratch_.size(), scratch_bytes_));
    std::size_t used = 0;
    for (direct_move& one : moves_) {
      if (one.in.data() == nullptr && !one.in.empty()) {
        one.in = {scratch_.data() + used, one.in.size()};
        used += layout::round_up(one.in.size(), 64);
      }
    }
    exchange_.prepare(moves_);
  }
  [[nodiscard]] bool is_in_scratch(std::span<const std::byte> bytes) const noexcept {
    return bytes.data() >= scratch_.data() && bytes.data() < scratch_.data() + scratch_.size();
  }

  lockstep& steps_;
  direct_transfers transfers_;
  direct_exchange exchange_{transfers_};
  direct_chain chain_{transfers_};
  direct_reduction reduction_{transfers_};
  // Of the operation under way:
  std::vector<direct_move> moves_;
  std::array<direct_move, 2> turn_{};
  std::vector<std::byte> scratch_;
  std::size_t scratch_bytes_ = 0;
  std::vector<std::uint64_t> slices_;
  std::vector<const std::byte*> inputs_;  // by rank
  std::vector<double> factors_;           // by rank
};

}  // namespace hfcomm::engines
