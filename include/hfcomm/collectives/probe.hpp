// SPDX-License-Identifier: MIT
#pragma once

#include <optional>

#include <hfcomm/collectives/detail/message_place.hpp>
#include <hfcomm/collectives/envelope.hpp>
#include <hfcomm/core/call_site.hpp>
#include <hfcomm/group/process_group.hpp>
#include <hfcomm/group/session.hpp>

namespace hfcomm {

namespace detail {

/// Implementations of `probe` and `try_probe`.
[[nodiscard]] message_info probe_message(message_source source, const process_group& group, message_tag tag,
                                         call_site where);
[[nodiscard]] std::optional<message_info> try_probe_message(message_source source, const process_group& group,
                                                            message_tag tag, call_site where);

}  // namespace detail

/// Waits until a message from this source with this tag can be received, and returns its source, tag and length. It
/// stays where it is: the next `recv` from that source with that tag takes it, unless another thread receives first. A
/// message that an earlier `irecv` wants is not found. From null_rank it returns at once, with 0 bytes.
///
/// Throws what `recv` throws. Where a sender has failed to make its message, that is found, too, and `recv` throws the
/// peer_error. (MPI's `MPI_Probe`.)
[[nodiscard]] inline message_info probe(message_source source, detail::group_or_any_tag first = {},
                                        detail::group_or_any_tag second = {}, call_site where = call_site::current()) {
  const auto& [group, tag] = detail::message_place(first, second, where);
  return detail::probe_message(source, group, tag, where);
}

/// Returns the same without waiting; nullopt where no such message is there yet. Throws usage_error, and peer_error
/// where the source can send nothing any more. It never times out, so a loop around it needs an end of its own. From
/// any_source it returns nullopt, too, where all other ranks have left. (MPI's `MPI_Iprobe`.)
[[nodiscard]] inline std::optional<message_info> try_probe(message_source source, detail::group_or_any_tag first = {},
                                                           detail::group_or_any_tag second = {},
                                                           call_site where = call_site::current()) {
  const auto& [group, tag] = detail::message_place(first, second, where);
  return detail::try_probe_message(source, group, tag, where);
}

}  // namespace hfcomm
