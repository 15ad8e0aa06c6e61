// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <hfcomm/call/typed_calls.hpp>
#include <hfcomm/core/call_site.hpp>

/// The common parts of the operations on parts of different lengths. Lengths are in elements, one for each rank.
namespace hfcomm::detail {

/// Returns the operation of a buffer whose length may differ from rank to rank.
template <class T>
operation uneven_call(operation_name name, movement pattern, std::size_t count, int root, call_site where) {
  operation call = buffer_call<T>(name, pattern, count, root, where);
  call.content = payload::uneven;
  return call;
}

template <memory R>
operation uneven_call(operation_name name, movement pattern, const R& range, int root, call_site where) {
  return uneven_call<value_of<R>>(name, pattern, elements_of(range).count, root, where);
}

/// Returns a hash of a list that must be equal on all ranks; never 0.
[[nodiscard]] std::uint64_t fingerprint(std::span<const std::size_t> counts) noexcept;

/// Returns the parts of a buffer: `counts[r]` elements of `width` bytes for each rank, one part after another.
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

/// Returns counts that divide `count` elements equally among the ranks.
[[nodiscard]] std::vector<std::size_t> equal_counts(std::size_t count, int ranks);

[[nodiscard]] std::vector<std::uint64_t> byte_counts(std::span<const std::size_t> counts, std::size_t width);

/// Returns the bytes of objects for several ranks, one after another.
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
