// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <hfcomm/core/call_site.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/engine/links/link.hpp>
#include <hfcomm/engine/links/tcp.hpp>

// The headers of UCX are enough to have its link. Define HFCOMM_UCX as 0 to do without.
#if !defined(HFCOMM_UCX) && __has_include(<ucp/api/ucp_version.h>)
#include <ucp/api/ucp_version.h>
#define HFCOMM_UCX (UCP_API_VERSION >= UCP_VERSION(1, 12))
#endif
#if defined(HFCOMM_UCX) && HFCOMM_UCX
#include <hfcomm/engine/links/ucx.hpp>
#endif
// Gloo has to be linked with, so it is for those who ask for it.
#if defined(HFCOMM_GLOO) && HFCOMM_GLOO
#include <hfcomm/engine/links/gloo.hpp>
#endif

namespace hfcomm::engines {

/// Returns the kinds that this program was compiled with, the preferred one first. A program that only asks for its
/// rank has the code of none.
inline const std::vector<link_kind>& link_kinds() {
  static const std::vector<link_kind> all = [] {
    auto kinds = registered_links();
#if defined(HFCOMM_UCX) && HFCOMM_UCX
    kinds.push_back(ucx_kind());
#endif
    kinds.push_back(tcp_kind());
#if defined(HFCOMM_GLOO) && HFCOMM_GLOO
    kinds.push_back(gloo_kind());
#endif
    return kinds;
  }();
  return all;
}

/// Returns the kind that `name`, else the variable HFCOMM_LINK, names; null where neither does. Throws engine_error
/// where this program was compiled without it.
inline const link_kind* named_link(std::string_view name) {
  if (const char* variable = std::getenv("HFCOMM_LINK"); name.empty() && variable != nullptr) {
    name = variable;
  }
  if (name.empty()) {
    return nullptr;
  }
  const auto& kinds = link_kinds();
  const auto kind = std::find_if(kinds.begin(), kinds.end(), [&](auto& one) { return one.name == name; });
  if (kind == kinds.end()) {
    std::string known;
    for (const auto& one : kinds) {
      detail::append(known, {known.empty() ? "" : ", ", one.name});
    }
    throw_link_error(
        name, detail::concat({"this program was compiled without it; it has: ", known.empty() ? "none" : known}));
  }
  return &*kind;
}

/// Does what every process of a job of several machines has to do before one of each machine makes a link. Throws
/// engine_error. With MPI this is MPI_Init, which waits until all processes have called it.
inline void prepare_link(std::string_view name = {}) {
  const auto* const named = named_link(name);
  for (const auto& kind : link_kinds()) {
    if (kind.prepare != nullptr && (named != nullptr ? &kind == named : kind.is_tried())) {
      kind.prepare();
    }
  }
}

/// Says in any process that processes of the job are lost. Then MPI_Finalize, which would wait for them, is not called.
inline void abandon_links() noexcept {
  for (const auto& kind : link_kinds()) {
    if (kind.abandon != nullptr) {
      kind.abandon();
    }
  }
}

/// Makes a link of the kind `name`, else of the kind that the variable HFCOMM_LINK names, else of the first that works:
/// MPI where the program includes <hfcomm/mpi.hpp> and MPI is initialised or has started the program, UCX where the
/// machine has hardware for RDMA, TCP. Throws engine_error with what each of them reported. Some libraries print, too.
inline std::unique_ptr<link> make_link(std::string_view name = {}) {
  if (const auto* const kind = named_link(name); kind != nullptr) {
    return kind->make();
  }
  std::string reports;
  for (const auto& kind : link_kinds()) {
    if (!kind.is_tried()) {
      continue;
    }
    try {
      return kind.make();
    } catch (const engine_error& problem) {
      detail::append(reports, {"; ", kind.name, ": ", problem.detail()});
      if (!kind.how_to_install.empty()) {
        detail::append(reports, {" (packages: ", kind.how_to_install, ")"});
      }
    }
  }
  detail::throw_error<engine_error>({-1, 0, "", 0, call_site::current()},
                                    {"nothing carries data between the machines of this job", reports});
}

}  // namespace hfcomm::engines
