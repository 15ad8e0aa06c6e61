// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <hfcomm/core/element_type.hpp>
#include <hfcomm/core/plain_list.hpp>
#include <hfcomm/engine/machines/direct_chain.hpp>
#include <hfcomm/engine/machines/direct_exchange.hpp>
#include <hfcomm/engine/machines/direct_reduction.hpp>
#include <hfcomm/engine/machines/direct_transfers.hpp>
#include <hfcomm/engine/operation.hpp>
#include <hfcomm/engine/receiver.hpp>
#include <hfcomm/engine/shared_memory/memory.hpp>
#include <hfcomm/engine/shared_memory/steps.hpp>

namespace hfcomm::engines {

/// The collectives on buffers of a group with one rank on each machine: what the ranks send goes from their buffers to
/// the others' over the link. Objects, and buffers of lengths that not all ranks know, take the other way. No rank
/// leaves an operation before all have come.
class direct_collectives final : public machine_collectives {
 public:
  /// `agent` outlives this.
  direct_collectives(lockstep& steps, machine_agent& agent, const std::vector<int>& machine_of)
      : transfers_(steps, agent, machine_of) {}

  [[nodiscard]] bool exchange(const operation& call, std::span<const std::byte> contribution, receiver& out) override {
    if (call.pattern == movement::none) {
      turn_to(1);
      transfers_.begin(call);
      meet(call);
      transfers_.end();
      return true;
    }
    if (call.content != payload::buffer) {
      return false;
    }
    if (call.pattern == movement::from_root && call.bytes > most_flat && size() > 2) {
      pass_on(call, contribution, out);
    } else {
      move_parts(call, contribution, false, out);
    }
    return true;
  }

  [[nodiscard]] bool all_to_all_v(const operation& call, const rank_parts& mine, receiver& out) override {
    if (call.content != payload::buffer || mine.lengths_only) {
      return false;
    }
    move_parts(call, mine.equal, true, out);
    return true;
  }

  [[nodiscard]] bool reduce(const operation& call, std::span<const std::byte> in, std::span<std::byte> out) override {
    if (in.size() * index(size() - 1) <= most_at_once) {
      reduce_at_once(call, in, {}, out);
      return true;
    }
    cut(in.size(), size_of(call.element));
    const bool keeps = call.receives(rank());
    reduce_slices(call, {.in = in,
                         .slices = slices_,
                         .own = keeps ? out.subspan(begin_of(slices_, rank()), slices_[index(rank())]) : out.first(0),
                         .out = out,
                         .only_root = call.pattern == movement::to_root ? call.root : -1});
    return true;
  }

  [[nodiscard]] bool reduce_scatter(const operation& call, std::span<const std::byte> in,
                                    std::span<const std::uint64_t> parts, std::span<std::byte> out) override {
    if (in.size() <= most_at_once) {
      reduce_at_once(call, in, parts, out);
    } else {
      reduce_slices(call, {.in = in, .slices = parts, .own = out, .out = {}, .delivers = false});
    }
    return true;
  }

 private:
  static constexpr std::size_t most_flat = std::size_t{64} << 10;     // bytes that a root sends to each rank itself
  static constexpr std::size_t most_at_once = std::size_t{64} << 10;  // bytes to be reduced that a rank receives

  [[nodiscard]] static std::size_t index(int rank) noexcept { return static_cast<std::size_t>(rank); }
  [[nodiscard]] int rank() const noexcept { return transfers_.rank(); }
  [[nodiscard]] int size() const noexcept { return transfers_.size(); }

  // All that may fail is done before `begin`: then the other ranks learn it (see host_engine).

  /// Waits for all ranks within an operation: in round k each tells the one 2^k behind it that it has come, and with it
  /// all that it has heard of.
  void meet(const operation& call) {
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

  [[nodiscard]] static bool sends(const operation& call, int from, int to) noexcept {
    return call.contributes(from) && (call.pattern != movement::to_root || to == call.root);
  }

  /// Moves what each rank has for each other one: `mine`, or its part for that rank.
  void move_parts(const operation& call, std::span<const std::byte> mine, bool has_parts, receiver& out) {
    const auto bytes = static_cast<std::size_t>(call.bytes);
    const auto part_for = [&](int to) {
      return !sends(call, rank(), to) ? mine.first(0) : has_parts ? mine.subspan(index(to) * bytes, bytes) : mine;
    };
    begin_moves();
    for (int turn = 1; turn < size(); ++turn) {
      const int other = (rank() + turn) % size();
      const bool comes = sends(call, other, rank()) && bytes != 0;
      add(other, part_for(other), {comes ? out.place_for(other, bytes) : nullptr, comes ? bytes : 0});
    }
    end_moves();
    transfers_.begin(call);
    exchange_.run(call, moves_);
    transfers_.end();
    for (const direct_move& one : moves_) {
      if (sends(call, one.rank, rank()) && (bytes == 0 || is_in_scratch(one.in))) {
        out.receive(one.rank, one.in, 0, bytes);
      }
    }
    if (sends(call, rank(), rank()) && (has_parts || call.receives(rank()))) {
      out.receive(rank(), part_for(rank()), 0, bytes);
    }
  }

  /// A long broadcast.
  void pass_on(const operation& call, std::span<const std::byte> contribution, receiver& out) {
    const auto bytes = static_cast<std::size_t>(call.bytes);
    const bool is_root = rank() == call.root;
    turn_to(1);
    chain_.prepare(bytes);
    std::byte* const place = is_root ? nullptr : out.place_for(call.root, bytes);
    if (!is_root && place == nullptr) {
      scratch_.resize(std::max(scratch_.size(), bytes));
    }
    // The root's chain does not write them.
    std::byte* const memory = is_root            ? const_cast<std::byte*>(contribution.data())  // NOLINT(*const-cast*)
                              : place != nullptr ? place
                                                 : scratch_.data();
    transfers_.begin(call);
    meet(call);
    chain_.run(call, {memory, bytes});
    transfers_.end();
    if (!is_root && place == nullptr) {
      out.receive(call.root, {memory, bytes}, 0, bytes);
    }
  }

  /// Reduces few bytes on each rank that receives: all of `in`, or its own of the parts.
  void reduce_at_once(const operation& call, std::span<const std::byte> in, std::span<const std::uint64_t> parts,
                      std::span<std::byte> out) {
    const auto part_of = [&](int owner) {
      return parts.empty() ? in : in.subspan(begin_of(parts, owner), parts[index(owner)]);
    };
    const std::span<const std::byte> own = part_of(rank());
    const bool receives = call.receives(rank());
    begin_moves();
    for (int turn = 1; turn < size(); ++turn) {
      const int other = (rank() + turn) % size();
      add(other, call.receives(other) ? part_of(other) : in.first(0),
          {static_cast<std::byte*>(nullptr), receives ? own.size() : 0});
    }
    end_moves();
    inputs_.resize(index(size()));
    factors_.resize(index(size()));
    transfers_.begin(call);
    exchange_.run(call, moves_);
    transfers_.end();
    if (receives && !own.empty()) {
      inputs_[index(rank())] = own.data();
      factors_[index(rank())] = call.factor;
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
    reduction_.prepare(mine, size_of(call.element));
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
  [[nodiscard]] static std::size_t begin_of(std::span<const std::uint64_t> parts, int owner) {
    std::size_t begin = 0;
    for (int before = 0; before < owner; ++before) {
      begin += static_cast<std::size_t>(parts[index(before)]);
    }
    return begin;
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

  direct_transfers transfers_;
  direct_exchange exchange_{transfers_};
  direct_chain chain_{transfers_};
  direct_reduction reduction_{transfers_};
  // The operation under way:
  hfcomm::detail::plain_list<direct_move> moves_;
  std::array<direct_move, 2> turn_{};
  hfcomm::detail::plain_list<std::byte> scratch_;
  std::size_t scratch_bytes_ = 0;
  hfcomm::detail::plain_list<std::uint64_t> slices_;
  hfcomm::detail::plain_list<const std::byte*> inputs_;  // by rank
  hfcomm::detail::plain_list<double> factors_;           // by rank
};

}  // namespace hfcomm::engines
