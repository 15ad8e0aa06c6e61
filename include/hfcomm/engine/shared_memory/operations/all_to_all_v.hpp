// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <hfcomm/core/plain_list.hpp>
#include <hfcomm/core/std_algorithm.hpp>
#include <hfcomm/engine/host_engine.hpp>
#include <hfcomm/engine/shared_memory/operations/careful_receiver.hpp>
#include <hfcomm/engine/shared_memory/operations/parts_in_place.hpp>
#include <hfcomm/engine/shared_memory/operations/slot_parts.hpp>
#include <hfcomm/engine/shared_memory/operations/small_parts.hpp>
#include <hfcomm/engine/shared_memory/steps.hpp>
#include <hfcomm/engine/shared_memory/ways.hpp>

namespace hfcomm::engines {

/// The algorithm of all-to-allv, scatterv (only the root has parts) and gatherv (each rank has one part, for the root).
/// A rank's slot is divided into one part for each rank that gets something from it (see slot_parts), and each receiver
/// reads its own parts only. Parts that all fit into one chunk take one step.
///
/// Where the lengths are not part of the signature, the first step's slot begins with three lists: the bytes that this
/// rank sends to each rank, the bytes that it expects from each, and the addresses of what it sends. Every rank
/// compares all of them. So where two do not fit, every rank throws the same error and nothing moves.
///
/// In an all-to-all of long parts, every rank would copy into slots and out of them. Where the system allows it, and
/// where equal parts are in heaps, each rank reads the others' parts in place instead. One more step tells that all
/// have read.
class all_to_all_v {
 public:
  all_to_all_v(lockstep& steps, peer_memory& peers, kernel_reads& reads, tuner& ways)
      : steps_(steps), peers_(peers), reads_(reads), ways_(ways) {}

  void run(const operation& call, const rank_parts& mine, receiver& out) {
    const bool is_small = small_.suits(call, mine);
    const bool gives_nothing = call.pattern == movement::from_root && steps_.rank() != call.root;
    const bool listed = call.content != payload::buffer;
    // Lists that are not small go into the slot, which is free only when all earlier steps are compared.
    const bool leaves = (is_small || (gives_nothing && !listed)) && steps_.may_leave(call);
    steps_.begin(call, leaves);
    const auto me = static_cast<std::size_t>(steps_.rank());
    const auto ranks = static_cast<std::size_t>(steps_.size());
    if (!listed && call.bytes * (ranks - 1) <= layout::inline_bytes) {
      in_cells(call, mine, leaves, out);
      return;
    }
    const bool is_tuned = !listed && !is_small && call.bytes > layout::small_slot_bytes;
    way_ = ways_.begin(call.pattern == movement::to_all ? tuned_operation::all_to_all : tuned_operation::scatter,
                       is_tuned ? static_cast<std::size_t>(call.bytes) : 0);
    header_ = listed ? 3 * ranks * sizeof(std::uint64_t) : 0;
    capacity_ = std::min(steps_.sizes().chunk_bytes(ranks - 1, way_.piece), steps_.sizes().slot_bytes - header_);
    sent_.assign(ranks * ranks, 0);
    sources_.reserve(ranks);  // nothing may fail once this rank has published
    for (std::size_t to = 0; to < ranks; ++to) {
      sent_[me * ranks + to] = sends(call, me, to) ? mine.part_for(call, to).size() : 0;
    }
    const bool has_empty_slot = put_places(call, mine, is_tuned);
    const slot_parts my_slot(row(me), me, capacity_);
    if (is_small) {
      small_.publish(call, mine);
      if (leaves && small_.leave(call, mine, out)) {
        return;
      }
    } else {
      if (listed) {
        write_lists(mine);
      }
      ways_.report();
      if (!has_empty_slot && !mine.lengths_only) {
        fill(call, mine, my_slot, 0);
      }
      steps_.publish(call);
      if (leaves) {
        steps_.settle_earlier(call);
      }
    }
    steps_.wait_all(call);
    steps_.check(call);

    const std::uint64_t first = steps_.step();
    read_lengths(call, first);
    if (mine.lengths_only) {
      return;
    }
    const parts_in_place state = look_for_parts(steps_, call, first);
    ways_.agree(!state.any_in_heap);
    careful_receiver careful(out);
    const bool tries_in_place = state.any_has_empty_slot && state.can_read_in_place;
    if (!tries_in_place || !read_in_place(call, mine, first, careful)) {
      if (state.any_has_empty_slot) {
        if (tries_in_place || !state.any_in_heap) {
          ways_.stop_reading();
        }
        fill(call, mine, my_slot, 0);
        steps_.publish(call);
        steps_.wait_all(call);
      }
      pass_rounds(call, mine, my_slot, first, careful);
    }
    ways_.end();
    careful.rethrow();
    if (leaves) {
      steps_.finish();
    }
  }

 private:
  /// Tells the others in the next step's cell where this rank's parts are. Returns whether it fills no slot at first.
  bool put_places(const operation& call, const rank_parts& mine, bool is_tuned) {
    const bool by_kernel = way_.medium == transfer_medium::kernel;
    const bool can_read_all = by_kernel || (header_ != 0 && call.pattern == movement::to_all && peers_.can_read_all());
    const std::uint64_t place =
        is_tuned && mine.equal.size() > layout::least_in_heap ? peers_.place_to_read(mine.equal) : 0;
    const bool has_empty_slot =
        by_kernel || place != 0 || (can_read_all && has_long_part(static_cast<std::size_t>(steps_.rank())));
    put(layout::outgoing_places{.equal = reinterpret_cast<std::uintptr_t>(mine.equal.data()),
                                .in_segment = place,
                                .can_read_all = can_read_all ? 1U : 0U,
                                .has_empty_slot = has_empty_slot ? 1U : 0U,
                                .is_small = 0});
    return has_empty_slot;
  }

  /// Reads the lengths of the others' parts from the step that compared the signatures. Throws mismatch_error where
  /// two lists do not fit.
  void read_lengths(const operation& call, std::uint64_t first) {
    const auto me = static_cast<std::size_t>(steps_.rank());
    const auto ranks = static_cast<std::size_t>(steps_.size());
    const bool listed = header_ != 0;
    for (std::size_t from = 0; from < ranks; ++from) {
      for (std::size_t to = 0; from != me && to < ranks; ++to) {
        sent_[from * ranks + to] = listed ? number_at(from, first, to) : sends(call, from, to) ? call.bytes : 0;
      }
    }
    if (listed) {
      check_expectations(call, first);
    }
  }

  /// Moves everything through the slots, the first pieces of which are published.
  void pass_rounds(const operation& call, const rank_parts& mine, const slot_parts& my_slot, std::uint64_t first,
                   careful_receiver& out) {
    std::uint64_t rounds = 1;
    sources_.clear();
    for (std::size_t from = 0; from < static_cast<std::size_t>(steps_.size()); ++from) {
      sources_.push_back(slot_parts(row(from), from, capacity_));
      rounds = std::max(rounds, sources_.back().rounds());
    }
    for (std::uint64_t round = 0; round < rounds; ++round) {
      const std::uint64_t step = steps_.step();
      if (round + 1 < rounds) {
        fill(call, mine, my_slot, round + 1);
        steps_.publish(call);
      }
      out.attempt([&](receiver& to) {
        if (round == 0) {
          tell_lengths(call, to);
        }
        deliver(call, mine, round, step, step == first, to);
      });
      if (round + 1 < rounds) {
        steps_.wait_all(call);
      }
    }
  }

  /// Equal parts that fit into the cells.
  void in_cells(const operation& call, const rank_parts& mine, bool leaves, receiver& out) {
    const auto me = static_cast<std::size_t>(steps_.rank());
    const auto ranks = static_cast<std::size_t>(steps_.size());
    const auto bytes = static_cast<std::size_t>(call.bytes);
    std::byte* const cell = steps_.cell(steps_.rank(), steps_.next()).payload;
    for (std::size_t to = 0; bytes != 0 && to < ranks; ++to) {
      if (to != me && sends(call, me, to)) {
        std::memcpy(cell + (to - (to > me ? 1 : 0)) * bytes, mine.part_for(call, to).data(), bytes);
      }
    }
    steps_.publish(call);
    if (!leaves) {
      steps_.wait_all(call);
      steps_.check(call);
    } else if (call.receives(steps_.rank())) {
      steps_.wait_for(call, call.root);
    }
    for (std::size_t from = 0; from < ranks; ++from) {
      if (!sends(call, from, me)) {
        continue;
      }
      const std::byte* theirs = steps_.cell(static_cast<int>(from), steps_.step()).payload;
      out.receive(static_cast<int>(from),
                  from == me ? mine.part_for(call, me) : std::span(theirs + (me - (me > from ? 1 : 0)) * bytes, bytes),
                  0, bytes);
    }
    if (leaves) {
      steps_.finish();
    }
  }

  /// Returns where the lists and parts are that `rank` has published in a step, the first of an operation or not.
  [[nodiscard]] const std::byte* published(std::size_t rank, std::uint64_t step, bool is_first) const {
    const int source = static_cast<int>(rank);
    const bool is_small = is_first && get<layout::outgoing_places>(rank, step).is_small != 0;
    return is_small ? steps_.small_slot(source, step) : steps_.slot(source, step);
  }

  /// Returns whether `from` sends a part that is long enough to be read in place: one that fills a slot, or, where
  /// ranks share cores, a piece. For shorter ones the system call takes longer than two copies.
  [[nodiscard]] bool has_long_part(std::size_t from) const {
    const std::size_t least = steps_.shares_cores() ? layout::piece_bytes : steps_.sizes().slot_bytes;
    const auto lengths = row(from);
    for (std::size_t to = 0; to < lengths.size(); ++to) {
      if (to != from && lengths[to] >= least) {
        return true;
      }
    }
    return false;
  }

  /// Puts a value into this rank's cell of the next step.
  template <class T>
  void put(const T& value) const {
    std::memcpy(steps_.cell(steps_.rank(), steps_.next()).payload, &value, sizeof(value));
  }
  /// Returns the value in another rank's cell of a step.
  template <class T>
  [[nodiscard]] T get(std::size_t rank, std::uint64_t step) const {
    T value;
    std::memcpy(&value, steps_.cell(static_cast<int>(rank), step).payload, sizeof(value));
    return value;
  }

  /// Reads all parts for this rank in place. Returns false, on all ranks, where one rank could not: some memory only
  /// its owner can read. Parts that were received by then may be received once more.
  [[nodiscard]] bool read_in_place(const operation& call, const rank_parts& mine, std::uint64_t first,
                                   careful_receiver& out) {
    const auto ranks = static_cast<std::size_t>(steps_.size());
    const auto me = static_cast<std::size_t>(steps_.rank());
    bool found_all = true;
    out.attempt([&](receiver& to) {
      tell_lengths(call, to);
      for (std::size_t turn = 0; found_all && turn < ranks; ++turn) {
        const std::size_t from = (me + turn) % ranks;
        const auto total = static_cast<std::size_t>(sent_[from * ranks + me]);
        if (from == me || total == 0) {
          const auto own = from == me ? mine.part_for(call, me) : std::span<const std::byte>();
          to.receive(static_cast<int>(from), own, 0, total);
          continue;
        }
        const auto places = get<layout::outgoing_places>(from, first);
        if (places.in_segment != 0) {
          to.receive(static_cast<int>(from), {peers_.at(places.in_segment + me * total), total}, 0, total);
          continue;
        }
        const std::uint64_t address =
            call.content == payload::buffer ? places.equal + me * total : number_at(from, first, 2 * ranks + me);
        found_all = reads_.receive(static_cast<int>(from), address, total, to);
      }
    });
    return reads_.have_all_read(call, found_all);
  }

  [[nodiscard]] static bool sends(const operation& call, std::size_t from, std::size_t to) {
    const auto root = static_cast<std::size_t>(call.root);
    return call.pattern == movement::to_all || (call.pattern == movement::from_root && from == root) ||
           (call.pattern == movement::to_root && to == root);
  }

  [[nodiscard]] std::span<const std::uint64_t> row(std::size_t from) const {
    const auto ranks = static_cast<std::size_t>(steps_.size());
    return std::span(sent_).subspan(from * ranks, ranks);
  }

  /// Tells the receiver the lengths of the parts that come to this rank.
  void tell_lengths(const operation& call, receiver& out) {
    if (call.content == payload::uneven) {
      const auto ranks = static_cast<std::size_t>(steps_.size());
      expected_.assign(ranks, 0);  // this rank's list is in its slot already
      for (std::size_t from = 0; from < ranks; ++from) {
        expected_[from] = sent_[from * ranks + static_cast<std::size_t>(steps_.rank())];
      }
      out.expect(expected_);
    }
  }

  void write_lists(const rank_parts& mine) {
    const auto ranks = static_cast<std::size_t>(steps_.size());
    const auto lengths = row(static_cast<std::size_t>(steps_.rank()));
    std::byte* slot = steps_.slot(steps_.rank(), steps_.next());
    std::memcpy(slot, lengths.data(), lengths.size_bytes());
    expected_.assign(ranks, any_length);
    std::copy(mine.expected.begin(), mine.expected.end(), expected_.begin());
    std::memcpy(slot + lengths.size_bytes(), expected_.data(), lengths.size_bytes());
    for (std::size_t to = 0; to < ranks; ++to) {
      const std::uint64_t address =
          to < mine.outgoing.size() ? reinterpret_cast<std::uintptr_t>(mine.outgoing[to].data()) : 0;
      std::memcpy(slot + 2 * lengths.size_bytes() + to * sizeof(address), &address, sizeof(address));
    }
    steps_.note_part(0, 2 * lengths.size_bytes());
  }

  [[nodiscard]] std::uint64_t number_at(std::size_t rank, std::uint64_t step, std::size_t index) const {
    std::uint64_t number = 0;
    std::memcpy(&number, published(rank, step, true) + index * sizeof(number), sizeof(number));
    return number;
  }

  void check_expectations(const operation& call, std::uint64_t first) const {
    const auto ranks = static_cast<std::size_t>(steps_.size());
    for (std::size_t to = 0; to < ranks; ++to) {
      for (std::size_t from = 0; from < ranks; ++from) {
        const std::uint64_t wanted = number_at(to, first, ranks + from);
        const std::uint64_t coming = sent_[from * ranks + to];
        if (wanted != coming && wanted != any_length && sends(call, from, to)) {
          throw_unfit_part([&] { return steps_.context(call); }, steps_.memory(), first, call,
                           {static_cast<int>(from), static_cast<int>(to), coming, wanted});
        }
      }
    }
  }

  void fill(const operation& call, const rank_parts& mine, const slot_parts& layout, std::uint64_t round) {
    const auto me = static_cast<std::size_t>(steps_.rank());
    std::byte* to_all = steps_.slot(steps_.rank(), steps_.next()) + header_;
    const auto ranks = static_cast<std::size_t>(steps_.size());
    for (std::size_t to = 0; to < ranks; ++to) {
      const auto [offset, count] = layout.piece(to, round);
      if (to != me && count != 0) {
        const std::size_t place = layout.offset_of(to);
        way_.copy(to_all + place, mine.part_for(call, to).data() + offset, count);
        steps_.note_part(header_ + place, count, static_cast<int>(to));
      }
    }
  }

  void deliver(const operation& call, const rank_parts& mine, std::uint64_t round, std::uint64_t step, bool is_first,
               receiver& out) {
    const auto ranks = static_cast<std::size_t>(steps_.size());
    const auto me = static_cast<std::size_t>(steps_.rank());
    // Each rank starts with the one behind it, which spreads the readers over the sources.
    for (std::size_t turn = 0; turn < ranks; ++turn) {
      const std::size_t from = (me + turn) % ranks;
      const std::uint64_t total = sent_[from * ranks + me];
      if (!sends(call, from, me)) {
        continue;
      }
      if (from == me) {
        if (round == 0) {
          out.receive(steps_.rank(), mine.part_for(call, me), 0, total);
        }
        continue;
      }
      const auto [offset, count] = sources_[from].piece(me, round);
      if (count == 0 && round != 0) {
        continue;
      }
      const std::byte* theirs = published(from, step, is_first) + header_;
      out.receive(static_cast<int>(from), {theirs + sources_[from].offset_of(me), count}, offset, total);
    }
  }

  lockstep& steps_;
  peer_memory& peers_;
  small_parts small_{steps_};
  kernel_reads& reads_;
  tuner& ways_;
  // The operation under way:
  transfer_way way_;
  std::size_t header_ = 0;    // bytes of the lists in a slot
  std::size_t capacity_ = 0;  // bytes of a slot for parts

  detail::plain_list<std::uint64_t> sent_;      // scratch: from each rank (row) to each rank
  detail::plain_list<std::uint64_t> expected_;  // scratch: from each rank
  detail::plain_list<slot_parts> sources_;      // scratch
};

}  // namespace hfcomm::engines
