// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <hfcomm/call/call.hpp>
#include <hfcomm/engine/reduction/copy_bytes.hpp>

/// What the operations on parts of different lengths have in common. Lengths are in elements, one for each rank.
namespace hfcomm::detail {

/// A buffer's call where the ranks' lengths may differ.
template <class T>
operation uneven_call(operation_name name, movement pattern, std::size_t count, int root, std::source_location where) {
  operation call = buffer_call<T>(name, pattern, count, root, where);
  call.content = payload::uneven;
  return call;
}

/// Stands for a list that all ranks must have alike; never 0.
inline std::uint64_t fingerprint(std::span<const std::size_t> counts) {
  std::uint64_t hash = counts.size() + 1;
  for (const std::size_t count : counts) {
    hash = mix(hash, count);
  }
  return hash | 1;
}

/// The elements of all parts, where they make sense; throws usage_error otherwise.
template <class Running>
std::size_t require_counts(Running& running, std::span<const std::size_t> counts, int ranks, const char* what) {
  running.require(counts.size() == static_cast<std::size_t>(ranks), [&] {
    return std::string(what) + " has " + std::to_string(counts.size()) + " counts for " + std::to_string(ranks) +
           " ranks";
  });
  std::size_t total = 0;
  for (const std::size_t count : counts) {
    running.require(!__builtin_add_overflow(total, count, &total),
                    [&] { return std::string(what) + " has counts whose sum no number can hold"; });
  }
  return total;
}

template <class Running>
void require_length(Running& running, std::size_t length, std::size_t wanted, const char* what) {
  running.require(length == wanted, [&] {
    return std::string(what) + " has " + std::to_string(length) + " elements, its counts add up to " +
           std::to_string(wanted);
  });
}

/// A rank's part for itself.
template <class Running>
void require_own(Running& running, std::size_t sent, std::size_t received) {
  running.require(sent == received, [&] {
    return "the part for itself has " + std::to_string(sent) + " elements where it is sent and " +
           std::to_string(received) + " where it is received";
  });
}

/// The elements of a buffer's parts for, or from, each rank.
class part_lengths {
 public:
  /// As many for each.
  explicit part_lengths(std::size_t each) : each_(each) {}
  /// By a list, which must add up to the buffer's length; `what` is the buffer in words.
  part_lengths(std::span<const std::size_t> counts, std::size_t length, const char* what)
      : counts_(counts), length_(length), what_(what) {}

  [[nodiscard]] std::size_t operator[](std::size_t rank) const noexcept {
    return what_ != nullptr ? counts_[rank] : each_;
  }
  template <class Running>
  void require(Running& running, int ranks) const {
    if (what_ != nullptr) {
      require_length(running, length_, require_counts(running, counts_, ranks, what_), what_);
    }
  }

 private:
  std::size_t each_ = 0;
  std::span<const std::size_t> counts_{};
  std::size_t length_ = 0;
  const char* what_ = nullptr;
};

/// What a rank sends to each rank and expects from each, in elements of `width` bytes.
struct uneven_parts {
  part_lengths sent;
  part_lengths expected;
  std::size_t width;
  bool has_own = true;  ///< One of the parts is for this rank itself.

  /// What this rank can tell alone; throws usage_error.
  template <class Running>
  void require(Running& running, int rank, int ranks) const {
    sent.require(running, ranks);
    expected.require(running, ranks);
    const auto own = static_cast<std::size_t>(rank);
    if (has_own) {
      require_own(running, sent[own], expected[own]);
    }
  }
};

/// Takes a buffer apart: `counts[r]` elements for each rank, one part behind the other.
template <class Byte>
std::vector<std::span<Byte>> parts_of(std::span<Byte> buffer, std::span<const std::size_t> counts, std::size_t width) {
  std::vector<std::span<Byte>> parts;
  parts.reserve(counts.size());
  std::size_t begin = 0;
  for (const std::size_t count : counts) {
    parts.push_back(buffer.subspan(begin, count * width));
    begin += count * width;
  }
  return parts;
}

/// The same number of elements for each rank.
inline std::vector<std::size_t> equal_counts(std::size_t count, int ranks) {
  return std::vector<std::size_t>(static_cast<std::size_t>(ranks), count);
}

inline std::vector<std::uint64_t> in_bytes(std::span<const std::size_t> counts, std::size_t width) {
  std::vector<std::uint64_t> bytes(counts.size());
  std::transform(counts.begin(), counts.end(), bytes.begin(), [&](std::size_t count) { return count * width; });
  return bytes;
}

/// Puts what comes from each rank into that rank's part.
class parts_receiver final : public receiver {
 public:
  parts_receiver(std::span<const std::span<std::byte>> parts, int own) : parts_(parts), own_(own) {}

  void receive(int source, std::span<const std::byte> chunk, std::uint64_t offset, std::uint64_t /*total*/) override {
    if (!chunk.empty()) {
      copy_received(parts_[static_cast<std::size_t>(source)].data() + offset, chunk, source, own_);
    }
  }
  std::byte* place_for(int source, std::uint64_t /*total*/) override {
    return parts_[static_cast<std::size_t>(source)].data();
  }

 private:
  std::span<const std::span<std::byte>> parts_;
  int own_;
};

/// Objects for several ranks as bytes, one behind the other.
template <class T>
std::vector<std::span<const std::byte>> encode_parts(running_call& running, operation& call,
                                                     const std::vector<T>& values) {
  serialization::output_bytes out(running.scratch());
  std::vector<std::size_t> ends;
  ends.reserve(values.size());
  for (const T& value : values) {
    encode_or_tell(running, call, value, out);
    ends.push_back(out.written().size());
  }
  call.bytes = out.written().size();
  std::vector<std::span<const std::byte>> parts;
  parts.reserve(values.size());
  std::size_t begin = 0;
  for (const std::size_t end : ends) {
    parts.push_back(out.written().subspan(begin, end - begin));
    begin = end;
  }
  return parts;
}

}  // namespace hfcomm::detail
