// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <hfcomm/collectives/detail/dictionary_difference.hpp>
#include <hfcomm/collectives/detail/dictionary_message.hpp>
#include <hfcomm/group/detail/running_call.hpp>

namespace hfcomm::detail {

/// Checks the ranks' messages, which every rank has: so all throw the same error, or none does. Throws mismatch_error
/// where two ranks' keys or the types of their values differ, usage_error where a kind of value does not have the
/// call's reduction, and decode_error for a malformed message. `own` is this rank's layout.
void check_messages(running_call& running, std::span<const std::vector<std::byte>> messages,
                    const dictionary_layout& own, path_reader take_path);

}  // namespace hfcomm::detail
