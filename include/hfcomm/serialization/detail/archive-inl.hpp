// SPDX-License-Identifier: MIT
#pragma once

#include <exception>
#include <new>
#include <string>
#include <utility>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/core/std_algorithm.hpp>
#include <hfcomm/serialization/archive.hpp>
#include <hfcomm/serialization/encoding.hpp>

namespace hfcomm {

namespace serialization {

HFCOMM_INLINE void output_bytes::grow(std::size_t more) {
  const std::size_t used = written().size();
  const std::span<std::byte> before = enlarge_(spill_, 0);
  const bool moves = before.empty() || begin_ != before.data() + kept_;
  // Grows by the number of written bytes, without the kept ones. Otherwise each of many small objects in a row would
  // set as many bytes to zero as are kept.
  const std::span<std::byte> spill = enlarge_(spill_, kept_ + std::max({used + more, 2 * used, std::size_t{256}}));
  if (moves && used != 0) {
    std::memcpy(spill.data() + kept_, begin_, used);
  }
  begin_ = spill.data() + kept_;
  next_ = begin_ + used;
  end_ = spill.data() + spill.size();
}

[[gnu::cold]] HFCOMM_INLINE std::string too_deep() {
  return hfcomm::detail::concat({"objects are nested more than ", hfcomm::detail::nesting_limit().load(),
                                 " deep; init_options::max_depth raises that limit"});
}

HFCOMM_INLINE void encoder::fail_for_depth() { hfcomm::detail::throw_error<usage_error>({too_deep()}); }

HFCOMM_INLINE void encoder::fail_for_elements() {
  hfcomm::detail::throw_error<usage_error>(
      {"more than ", max_elements_without_bytes,
       " elements of containers are of a class that serializes nothing; no rank would decode them"});
}

HFCOMM_INLINE void decoder::fail(std::string detail) {  // NOLINT
  hfcomm::detail::throw_error<decode_error>({detail});
}

HFCOMM_INLINE void decoder::fail_for_equal_keys(std::size_t keys, std::size_t different) {
  fail(hfcomm::detail::concat({keys, " keys are declared, but only ", different, " of them are distinct"}));
}

HFCOMM_INLINE void decoder::fail_for_alternative(std::int32_t index, std::size_t count) {
  fail(hfcomm::detail::concat({"a variant's alternative ", index, " is read where it has ", count}));
}

HFCOMM_INLINE void decoder::fail_for_bool(unsigned value) { fail(hfcomm::detail::concat({"a bool is ", value})); }

HFCOMM_INLINE void decoder::fail_for_depth() { fail(too_deep()); }

HFCOMM_INLINE void decoder::fail_for_bytes(std::uint64_t size) const {
  fail(hfcomm::detail::concat({"truncated: ", size, " bytes are read where ", remaining(), " are left"}));
}

HFCOMM_INLINE void decoder::fail_for_elements(std::uint64_t count, std::size_t element_size) const {
  fail(hfcomm::detail::concat(
      {"truncated or corrupt: ", count, " elements ",
       element_size != 0 ? hfcomm::detail::concat({"of ", element_size, " bytes "}) : std::string(), "in ", remaining(),
       " bytes"}));
}

HFCOMM_INLINE void decoder::fail_for_rest() const {
  fail(hfcomm::detail::concat({remaining(), " of ", bytes_.size(), " bytes are left over"}));
}

}  // namespace serialization

namespace detail {

HFCOMM_INLINE void fail_for_size(std::size_t wanted, std::size_t bytes) {
  hfcomm::detail::throw_error<decode_error>({"wrong size: ", bytes, " bytes for an object of ", wanted, " bytes"});
}

HFCOMM_INLINE void rethrow_as_decode_error() {
  try {
    throw;
  } catch (const error&) {
    throw;
  } catch (const std::bad_alloc&) {
    hfcomm::detail::throw_error<decode_error>({"out of memory"});
  } catch (const std::exception& problem) {
    hfcomm::detail::throw_error<decode_error>({problem.what()});
  } catch (...) {
    hfcomm::detail::throw_error<decode_error>({"its load function threw something that is no std::exception"});
  }
}

}  // namespace detail

}  // namespace hfcomm
