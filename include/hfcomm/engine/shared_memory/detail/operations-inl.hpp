// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>

#include <hfcomm/core/config.hpp>
#include <hfcomm/engine/group_health.hpp>
#include <hfcomm/engine/host_engine.hpp>
#include <hfcomm/engine/shared_memory/self_engine.hpp>
#include <hfcomm/engine/shared_memory/shared_memory.hpp>

/// The functions of host_engine that choose by the engine's kind. Each refers to one operation of each kind.
namespace hfcomm::engines {

namespace kinds {

inline self& as_self(host_engine& engine) noexcept { return static_cast<self&>(engine); }
inline shared_memory& as_shared_memory(host_engine& engine) noexcept { return static_cast<shared_memory&>(engine); }

/// Performs a call between machines where that suits it, else by an algorithm of the engine, which `get` may have to
/// make. Where it cannot, the other ranks learn that, too.
template <class Algorithm, class... Arguments>
void perform(host_engine& group, Algorithm& (shared_memory::*get)(),
             bool (machine_collectives::*between)(const operation&, Arguments...), const operation& call,
             std::type_identity_t<Arguments>... arguments) {
  shared_memory& engine = as_shared_memory(group);
  auto* const machines = engine.machines();
  Algorithm* found = nullptr;
  const auto before = engine.sequence();
  try {
    if (machines != nullptr && (machines->*between)(call, arguments...)) {
      return;
    }
    found = &(engine.*get)();
  } catch (...) {
    if (engine.sequence() == before) {
      const std::string text = detail::current_exception_detail();
      engine.announce(call, &text);
    }
    throw;
  }
  found->run(call, arguments...);
}

}  // namespace kinds

HFCOMM_INLINE void host_engine::exchange(const operation& call, std::span<const std::byte> contribution,
                                         receiver& out) {
  is_self() ? kinds::as_self(*this).exchange(call, contribution, out)
            : kinds::perform(*this, &shared_memory::exchanges, &machine_collectives::exchange, call, contribution, out);
}

HFCOMM_INLINE void host_engine::reduce(const operation& call, std::span<const std::byte> in, std::span<std::byte> out) {
  is_self() ? kinds::as_self(*this).reduce(call, in, out)
            : kinds::perform(*this, &shared_memory::reductions, &machine_collectives::reduce, call, in, out);
}

HFCOMM_INLINE void host_engine::all_to_all_v(const operation& call, const rank_parts& mine, receiver& out) {
  is_self() ? kinds::as_self(*this).all_to_all_v(call, mine, out)
            : kinds::perform(*this, &shared_memory::all_to_all_v_exchanges, &machine_collectives::all_to_all_v, call,
                             mine, out);
}

HFCOMM_INLINE void host_engine::reduce_scatter(const operation& call, std::span<const std::byte> in,
                                               std::span<const std::uint64_t> parts, std::span<std::byte> out) {
  is_self() ? kinds::as_self(*this).reduce_scatter(call, in, parts, out)
            : kinds::perform(*this, &shared_memory::scattered_reductions, &machine_collectives::reduce_scatter, call,
                             in, parts, out);
}

HFCOMM_INLINE std::shared_ptr<host_engine> host_engine::subgroup(const operation& call, std::span<const int> members) {
  return is_self() ? kinds::as_self(*this).subgroup(call, members)
                   : kinds::as_shared_memory(*this).subgroup(call, members);
}

namespace kinds {

/// Calls `use` with the messages of either kind.
template <class Use>
auto with_messages(host_engine& engine, bool is_self, Use&& use) {
  return is_self ? use(as_self(engine).messages()) : use(as_shared_memory(engine).messages());
}

}  // namespace kinds

HFCOMM_INLINE int host_engine::rank() const noexcept { return health_->rank(); }

HFCOMM_INLINE int host_engine::size() const noexcept { return health_->size(); }

HFCOMM_INLINE void host_engine::post(std::span<const std::shared_ptr<transfer>> transfers) {
  kinds::with_messages(*this, is_self(), [&](const auto& messages) { point_to_point::post(messages, transfers); });
}

HFCOMM_INLINE void host_engine::complete(std::span<const std::shared_ptr<transfer>> transfers) {
  kinds::with_messages(*this, is_self(), [&](const auto& messages) { messages->complete(transfers); });
}

HFCOMM_INLINE bool host_engine::try_probe(const std::shared_ptr<transfer>& one) {
  return kinds::with_messages(*this, is_self(), [&](const auto& messages) { return messages->try_probe(one); });
}

HFCOMM_INLINE bool host_engine::withdraw(const transfer& one) {
  return kinds::with_messages(*this, is_self(), [&](const auto& messages) { return messages->withdraw(one); });
}

HFCOMM_INLINE void host_engine::set_caller(caller_state state) noexcept {
  if (!is_self()) {
    kinds::as_shared_memory(*this).set_caller(state);
  }
}

HFCOMM_INLINE std::shared_ptr<void> host_engine::share(std::span<const std::span<std::byte>> buffers,
                                                       const error_context& context) {
  return is_self() ? nullptr : kinds::as_shared_memory(*this).share(buffers, context);
}

}  // namespace hfcomm::engines
