// SPDX-License-Identifier: MIT
#pragma once

#include <cerrno>
#include <cstring>
#include <span>
#include <string>

#include <sys/random.h>

#include <hfcomm/call/async.hpp>
#include <hfcomm/call/typed_calls.hpp>
#include <hfcomm/collectives/shared_random_seed.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/core/detail/concat.hpp>

namespace hfcomm {

HFCOMM_INLINE std::uint64_t shared_random_seed(const process_group& group, std::source_location where) {
  auto call = detail::buffer_call<std::uint64_t>("shared_random_seed", engines::movement::from_root, 1, 0, where);
  detail::running_call running(group, call);
  std::uint64_t seed = 0;
  if (group.rank() == 0) {
    // std::random_device may take microseconds for each number. getrandom never returns fewer than eight bytes.
    running.require(::getrandom(&seed, sizeof(seed), 0) == sizeof(seed),
                    [] { return detail::concat({"the system has no random number: ", std::strerror(errno)}); });
  }
  const auto store = [&](int, std::uint64_t&& drawn) { seed = drawn; };
  detail::object_receiver<std::uint64_t, decltype(store)> received(running, store);
  running.engine().exchange(call, std::as_bytes(std::span(&seed, 1)), received);
  return seed;
}

HFCOMM_INLINE work<std::uint64_t> shared_random_seed_async(const process_group& group, std::source_location where) {
  return detail::start("shared_random_seed", shared_random_seed, group, where);
}

}  // namespace hfcomm
