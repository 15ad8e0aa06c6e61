// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include <hfcomm/core/element_type.hpp>
#include <hfcomm/core/std_algorithm.hpp>
#include <hfcomm/core/version.hpp>
#include <hfcomm/engine/device_board.hpp>
#include <hfcomm/machine/numa_nodes.hpp>
#include <hfcomm/machine/roster.hpp>

/// The memory that the ranks of a group share. Cells, sites, small slots and slots have their rank as the only
/// writer. Counters and envelopes are atomics. A buffer in a heap belongs to one rank at a time. So there is no lock
/// that a dying rank could hold.
///
///   header | rank 0: cells, sites, mailbox | rank 1: ... | rank 0: small slots | rank 1: small slots | ...
///          | rank 0: slots | rank 1: slots | ... | rank 0: message slots | rank 1: message slots | ...
///          | rank 0: envelopes | rank 1: envelopes | ...
///          | rank 0: heap | rank 1: heap | ...
///
/// The heaps have pages only where something is allocated. They share the reserved addresses behind the rest.
namespace hfcomm::engines::layout {

/// Number of slots of a rank: it overwrites the slot that it published `depth` steps ago. See lockstep for why 4 is
/// enough.
inline constexpr std::uint64_t depth = 4;

/// Number of cells and of small slots of a rank. See lockstep for why it is twice `lead`.
inline constexpr std::uint64_t cell_count = 64;

/// Number of steps that a rank that leaves operations early may be ahead of the slowest one.
inline constexpr std::uint64_t lead = cell_count / 2;

/// Bytes of a small slot: what a rank gives in an operation that it leaves early, or the text of a failure.
inline constexpr std::size_t small_slot_bytes = 1024;
static_assert(sizeof(rendezvous::failure_text) <= small_slot_bytes);
inline constexpr std::size_t inline_bytes = 72;
inline constexpr std::size_t first_line_bytes = 16;  // of the payload, in the first of a cell's two cache lines
inline constexpr std::size_t site_count = 64;
inline constexpr std::size_t site_bytes = 256;
inline constexpr int max_ranks = 1024;

/// A rank's part of one step: two cache lines, of which a payload of up to 16 bytes needs only the first. The fields
/// beside `step` are atomics, because an error message may read them while the rank still writes.
struct alignas(128) flag_cell {
  std::atomic<std::uint64_t> step{0};       // stored last, with release order
  std::atomic<std::uint64_t> signature{0};  // operation::signature()
  std::atomic<std::uint64_t> bytes{0};      // operation::bytes
  std::atomic<std::uint64_t> what{0};       // pack_call()
  std::atomic<std::uint64_t> tag{0};        // operation::tag
  std::atomic<std::uint32_t> site{0};       // index into the rank's sites, modulo site_count; above it, the name's hash
  std::atomic<std::uint32_t> sequence{0};   // low half of the operation's sequence number
  std::byte payload[inline_bytes]{};        // the contribution, where it fits
  std::atomic<double> factor{1};            // operation::factor; only stored for a premultiplied sum
};
static_assert(sizeof(flag_cell) == 128 && std::atomic<std::uint64_t>::is_always_lock_free &&
              std::atomic<double>::is_always_lock_free);

/// Number of elements in whose multiples the work of a reduction is divided, if there are enough.
inline constexpr std::size_t slice_unit = 128;

/// Buffers in a heap with more bytes than this are used in place. Fewer bytes are copied faster than the ranks take one
/// more step, for which the buffer's owner would have to wait.
inline constexpr std::size_t least_in_heap = std::size_t{8} << 10;

/// Bytes that one rank reads of another in a step of a pipeline. Copying them takes much longer than synchronising the
/// step, and yet the first piece is there soon.
inline constexpr std::size_t piece_bytes = std::size_t{32} << 10;

/// The same where ranks are on several machines.
inline constexpr std::size_t machine_piece_bytes = std::size_t{512} << 10;

/// Buffers below this are not reduced in pipelines of machines: the steps until the first result is there would cost
/// more than the bytes that they save.
inline constexpr std::size_t least_in_pipeline = std::size_t{1} << 20;

/// A call site as text, for the other ranks' error messages. Rewritten only when another call hashes to its place.
struct site_text {
  std::atomic<std::uint64_t> words[site_bytes / 8]{};
};

/// One message that a rank offers to another. The sender writes the first half, the receiver the second. `offer` and
/// `answer` carry the number of the message, so that values of an earlier one have no effect. It begins as zeros.
struct alignas(128) envelope {
  std::atomic<std::uint64_t> offer{0};  // the message's number, from 1; 0: free. Stored last
  std::atomic<std::int32_t> destination{0};
  std::atomic<std::uint32_t> site{0};
  std::atomic<std::uint64_t> fit{0};  // message_endpoint::fit(): what must be equal on both sides
  std::atomic<std::uint64_t> what{0};
  std::atomic<std::uint64_t> bytes{0};
  std::atomic<std::uint64_t> tag{0};
  std::atomic<std::uint32_t> slot{0};                 // which of the sender's slots the bytes pass through
  std::atomic<std::uint32_t> is_urgent{0};            // 1: the receiver is to look at all offers, wanted or not
  std::atomic<std::uint64_t> filled{0};               // bytes that have passed into it
  std::byte payload[56]{};                            // all of the message; where it does not fit, its address
  alignas(128) std::atomic<std::uint64_t> answer{0};  // the message's number * answer_kinds + an answer
  std::atomic<std::uint64_t> drained{0};              // bytes that have passed out of the slot
  std::atomic<std::uint64_t> their_what{0};           // the receiver's call, where it does not fit
  std::atomic<std::uint64_t> their_bytes{0};
  std::atomic<std::uint64_t> their_tag{0};
  std::atomic<std::uint32_t> their_site{0};
  std::atomic<char> their_reason[204]{};  // why the receiver failed; ends with a zero
};
static_assert(sizeof(envelope) == 384);

inline constexpr std::size_t shared_envelopes = 64;  // envelopes of a rank for any receiver, besides one for each
inline constexpr std::uint64_t answer_kinds = 8;
/// Set in the number of an offer that its receiver has asked for, and in that of an envelope that asks its receiver for
/// the message whose number is its tag (see outbox).
inline constexpr std::uint64_t again_flag = std::uint64_t{1} << 55;
inline constexpr std::uint64_t ask_flag = std::uint64_t{1} << 56;
inline constexpr std::size_t message_slot_count = 4;  // messages whose bytes may pass at a time

/// A rank's last call of a message, for other ranks' error messages.
struct message_call {
  std::atomic<std::uint64_t> number{0};  // of the message among the rank's messages, from 1. Stored last
  std::atomic<std::uint64_t> what{0};    // as in an envelope
  std::atomic<std::uint64_t> bytes{0};
  std::atomic<std::uint64_t> tag{0};
  std::atomic<std::uint32_t> site{0};
};

/// The common part of a rank's outgoing envelopes, and the word on which its threads wait for messages.
struct alignas(128) mailbox {
  std::atomic<std::uint32_t> epoch{0};          // the futex word: counted up with each change for this rank
  std::atomic<std::uint32_t> sleepers{0};       // threads of this rank that wait on it
  std::atomic<std::uint32_t> in_use{0};         // envelopes from this index on have never been used
  std::atomic<std::uint32_t> urgent_offers{0};  // how many have been made to this rank
  std::atomic<std::uint64_t>
      changed[(shared_envelopes + max_ranks) / 64]{};  // for the machine's agent: bits of envelopes
  message_call last_call;
  site_text sites[site_count];
};

/// A random word in a rank's private memory. A process that finds it at that address can read that memory.
struct memory_probe {
  std::int32_t pid = 0;
  std::uint64_t address = 0;
  std::uint64_t word = 0;
};

/// The reason why the group is broken. The rank that notices first writes it, so that all ranks throw the same error.
struct break_record {
  static constexpr std::uint32_t whole = 0;
  static constexpr std::uint32_t broken = 1;
  static constexpr std::uint32_t first_writer = 2;  // and above: the rank that writes the record

  [[nodiscard]] bool is_complete() const noexcept { return state.load() == broken; }
  [[nodiscard]] static std::uint32_t written_by(int rank) noexcept {
    return first_writer + static_cast<std::uint32_t>(rank);
  }

  /// Fills in the record, whose `state` the caller has taken.
  void write(int lost_rank, const std::vector<int>& missing_ranks, bool because_of_exception,
             const std::string& why) noexcept {
    culprit = lost_rank;
    by_exception = because_of_exception;
    for (const int rank : missing_ranks) {
      missing[rank / 64] |= std::uint64_t{1} << (rank % 64);
    }
    std::snprintf(text, sizeof(text), "%s", why.c_str());
    state.store(broken);
  }

  /// The same with the content of a complete record.
  void copy(const break_record& other) noexcept {
    culprit = other.culprit;
    by_exception = other.by_exception;
    std::copy(std::begin(other.missing), std::end(other.missing), std::begin(missing));
    std::copy(std::begin(other.text), std::end(other.text), std::begin(text));
    state.store(broken);
  }

  std::atomic<std::uint32_t> state{whole};
  bool by_exception = false;  // the culprit is still there and may publish a text
  std::int32_t culprit = -1;  // -1: a deadline passed, and `missing` says who had not come
  std::uint64_t missing[max_ranks / 64]{};
  char text[1536]{};
};

/// The ranks whose memory has changed since the machine's agent has carried it to other machines.
struct change_marks {
  std::atomic<std::uint64_t> steps[max_ranks / 64]{};      // they published a step, or left
  std::atomic<std::uint64_t> mailboxes[max_ranks / 64]{};  // their envelopes changed (see mailbox::changed)
  std::atomic<std::uint64_t> asked{0};   // up to this step, this machine's ranks want to know the others'; 0: none
  std::atomic<std::uint64_t> wanted{0};  // up to this step, other machines want to know those of this machine's ranks
  std::atomic<bool> are_quiet{false};    // ranks publish steps that no other machine needs to know
};

/// A part of a published slot, and the rank that reads it; -1: all ranks do. Only such parts go to other machines.
struct slot_range {
  std::uint32_t offset = 0;
  std::uint32_t bytes = 0;
  std::int32_t reader = -1;
};

struct alignas(128) group_header {
  std::uint64_t magic = 0;
  std::uint32_t version = 0;
  std::int32_t ranks = 0;
  std::uint64_t slot_bytes = 0;                           // of what a rank publishes in a step
  std::uint64_t result_bytes = 0;                         // of one rank's slice of a reduced chunk
  std::uint64_t one_shot_bytes = 0;                       // up to here every rank reduces everything, in one step less
  std::uint64_t ranges_bytes = 0;                         // of the list of slot_ranges behind a slot; 0: one machine
  std::uint32_t board_index = 0;                          // the group's bit on the machine's board
  std::uint64_t number = 0;                               // of the group, the same on all machines
  alignas(128) std::atomic<std::uint32_t> wake_epoch{0};  // the futex word
  alignas(128) std::atomic<std::uint32_t> sleepers{0};
  alignas(128) break_record lost;
  alignas(128) break_record proposed;  // where other machines have ranks: what this machine asks the root to record
  alignas(128) change_marks changes;
};

struct alignas(128) rank_block {
  flag_cell cells[cell_count];
  std::atomic<std::uint32_t> departed{0};        // 1: the rank gave up its handle; 2: while an exception was unwinding
  std::atomic<std::uint32_t> awaited{0};         // sleeping ranks that wait for a step of this rank alone
  std::atomic<std::uint32_t> caller{0};          // the thread that did its last operation
  std::atomic<std::uint32_t> resting_caller{0};  // the thread of its caller_state::rests; 0: it is in another state
  memory_probe probe;
  std::uint32_t has_heaps = 0;  // 1: the rank has mapped the heaps
  std::int32_t node = -1;       // the NUMA node where the rank runs; -1: unknown
  site_text sites[site_count];
  device_board devices;
  mailbox messages;
};

/// A rank's part in finding the quickest way of an operation (see tuner), at the end of the cell that begins it.
struct tuning_report {
  std::uint64_t begin = 0;    // when it began this operation, in nanoseconds
  std::uint32_t cost = 0;     // of its last operation of this kind and size: nanoseconds for 100,000 bytes; 0: unknown
  std::uint8_t proposal = 0;  // a way's number, from 1; 0: none
  std::uint8_t mode = 0;      // a tuning_mode
  std::uint8_t can_read_all = 0;  // 1: it can read the memory of all others
  std::uint8_t shares_cores = 0;  // 1: its job has more ranks on the machine than cores
};
inline constexpr std::size_t report_offset = inline_bytes - sizeof(tuning_report);

/// The places of a rank's buffers, published in the cell that begins an operation on larger buffers: offsets in the
/// segment, or else addresses in its own memory, which the kernel can read. 0 stands for memory that the other ranks
/// cannot reach.
struct buffer_places {
  std::uint64_t in = 0;
  std::uint64_t out = 0;
  std::uint64_t in_address = 0;
  std::uint64_t out_address = 0;
};
static_assert(sizeof(buffer_places) <= report_offset);

/// The place of a contribution that is not in its cell.
struct contribution_place {
  std::uint64_t in_segment = 0;  // offset of a buffer in a heap; 0: in a slot
  std::uint64_t address = 0;     // of the buffer, in its rank's memory
  std::uint32_t is_small = 0;    // 1: in the small slot, 0: in the slot

  void put_into(flag_cell& cell) const noexcept { std::memcpy(cell.payload, this, sizeof(*this)); }
  [[nodiscard]] static contribution_place of(const flag_cell& cell) noexcept {
    contribution_place place;
    std::memcpy(&place, cell.payload, sizeof(place));
    return place;
  }
};
static_assert(sizeof(contribution_place) <= report_offset);

/// A rank's part of the cell that begins an all-to-all.
struct outgoing_places {
  std::uint64_t equal = 0;           // address of its parts, if they are equally long
  std::uint64_t in_segment = 0;      // the same as an offset, if they are in a heap
  std::uint32_t can_read_all = 0;    // 1: it can read the memory of all others
  std::uint32_t has_empty_slot = 0;  // 1: its slot has no parts yet: all ranks may be able to read them in place
  std::uint32_t is_small = 0;        // 1: its lists and parts are in the small slot
};
static_assert(sizeof(outgoing_places) <= report_offset);

/// A rank's part of a cell that ends reading in place by the kernel.
struct read_outcome {
  std::uint32_t has_read_all = 0;  // 1: it has read its parts of all others; 0: some memory only its owner can read
};

inline constexpr std::uint64_t magic = 0x6866636f6d6d3031;  // "hfcomm01"

[[nodiscard]] constexpr std::size_t round_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

[[nodiscard]] inline std::size_t page_bytes() {
  static const auto bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

/// Sizes of the parts of a group's memory.
struct dimensions {
  int ranks;
  std::size_t slot_bytes;
  std::size_t result_bytes;
  std::size_t one_shot_bytes;
  std::size_t message_slot_bytes;
  std::size_t ranges_bytes = 0;  // 0 where all ranks are on one machine

  /// Returns the sizes for a group with ranks on several machines.
  static dimensions for_machines(int ranks) {
    dimensions sizes = for_ranks(ranks);
    // A step across machines takes longer, so more bytes go with it. With many ranks, the total is limited.
    const int bits = ranks <= 8 ? 21 : ranks <= 32 ? 20 : ranks <= 512 ? 18 : 16;
    sizes.slot_bytes = std::max(sizes.slot_bytes, std::size_t{1} << bits);
    sizes.result_bytes = result_bytes_of(sizes.slot_bytes, ranks);
    sizes.message_slot_bytes = message_bytes_of(sizes.slot_bytes);
    sizes.ranges_bytes = round_up(sizeof(std::uint64_t) + sizeof(slot_range) * most_ranges(ranks), 128);
    return sizes;
  }
  /// Returns the number of parts that a rank may name of one slot: one for each rank, its lists and its result; or what
  /// it has folded, and as many results that it passes on.
  static constexpr std::size_t most_ranges(int ranks) { return 2 * static_cast<std::size_t>(ranks) + 4; }

  static dimensions for_ranks(int ranks) {
    // Small enough that the slots stay in a core's cache. With many ranks, the total is limited.
    const std::size_t slot = std::size_t{1} << (ranks <= 8 ? 18 : ranks <= 32 ? 17 : 16);
    return {ranks, slot, result_bytes_of(slot, ranks), std::size_t{1} << 14, message_bytes_of(slot)};
  }
  /// Returns the bytes for a rank's share of a chunk.
  static constexpr std::size_t result_bytes_of(std::size_t slot, int ranks) {
    return round_up(slot / static_cast<std::size_t>(ranks) + slice_unit * largest_element_bytes, 128);
  }
  static constexpr std::size_t message_bytes_of(std::size_t slot) { return slot / 4; }

  [[nodiscard]] constexpr bool spans_machines() const noexcept { return ranges_bytes != 0; }
  /// Returns the bytes of its slot that a rank uses in a step of a pipeline, for `readers` that each read a piece.
  [[nodiscard]] std::size_t chunk_bytes(std::size_t readers, std::size_t piece = piece_bytes) const {
    return std::min(slot_bytes, (spans_machines() ? machine_piece_bytes : piece) * std::max<std::size_t>(readers, 1));
  }
  [[nodiscard]] std::size_t slot_stride() const { return slot_bytes + result_bytes + ranges_bytes; }
  [[nodiscard]] std::size_t blocks_offset() const { return round_up(sizeof(group_header), 4096); }
  [[nodiscard]] std::size_t small_slots_offset() const {
    return round_up(blocks_offset() + sizeof(rank_block) * static_cast<std::size_t>(ranks), 4096);
  }
  [[nodiscard]] std::size_t slots_offset() const {
    return round_up(small_slots_offset() + small_slot_bytes * cell_count * static_cast<std::size_t>(ranks), 4096);
  }
  [[nodiscard]] std::size_t message_slots_offset() const {
    return round_up(slots_offset() + slot_stride() * depth * static_cast<std::size_t>(ranks), 4096);
  }
  /// Returns the number of a rank's outgoing envelopes.
  [[nodiscard]] constexpr std::size_t envelopes() const noexcept {
    return shared_envelopes + static_cast<std::size_t>(ranks);
  }
  [[nodiscard]] std::size_t envelopes_offset() const {
    return message_slots_offset() + message_slot_bytes * message_slot_count * static_cast<std::size_t>(ranks);
  }
  [[nodiscard]] std::size_t total_bytes() const {
    return round_up(envelopes_offset() + sizeof(envelope) * envelopes() * static_cast<std::size_t>(ranks),
                    page_bytes());
  }
  /// Returns the addresses that a new group reserves behind the total: each rank may use all memory of the machine.
  [[nodiscard]] std::size_t heap_bytes() const {
    const long pages = ::sysconf(_SC_PHYS_PAGES);
    const std::size_t machine = pages > 0 ? static_cast<std::size_t>(pages) * page_bytes() : std::size_t{1} << 30;
    return std::min(static_cast<std::size_t>(ranks) * machine, std::size_t{1} << 40);
  }
};

/// Initialises fresh memory. The rank that makes the group calls it once, before any other rank has the memory.
inline void create_in(rendezvous::shared_segment& segment, const dimensions& sizes) {
  auto* header = ::new (segment.data()) group_header{};
  for (int rank = 0; rank < sizes.ranks; ++rank) {
    ::new (segment.data() + sizes.blocks_offset() + sizeof(rank_block) * static_cast<std::size_t>(rank)) rank_block{};
  }
  header->version = wire_version;
  header->ranks = sizes.ranks;
  header->slot_bytes = sizes.slot_bytes;
  header->result_bytes = sizes.result_bytes;
  header->one_shot_bytes = sizes.one_shot_bytes;
  header->ranges_bytes = sizes.ranges_bytes;
  header->magic = magic;
  if (rendezvous::machine_has_several_nodes()) {
    // So that each rank can move its own part: pages that this process, too, has mapped would stay.
    ::madvise(segment.data(), sizes.slots_offset(), MADV_DONTNEED);
  }
}

}  // namespace hfcomm::engines::layout
