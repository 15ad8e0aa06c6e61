// SPDX-License-Identifier: MIT
#pragma once

#include <hfcomm/core/call_site.hpp>
#include <hfcomm/group/session.hpp>
#include <hfcomm/group/work.hpp>

namespace hfcomm {

/// Waits until every rank of the group has called it. (detectron2's `synchronize`, torch's `barrier`; no GPU is
/// synchronized.)
///
/// Throws, as every collective: mismatch_error where the ranks called different things; peer_error where a rank died,
/// left or failed; timeout_error where the group's deadline passed; usage_error where another thread is inside an
/// operation of the group. One operation of a group at a time; different groups from different threads.
void barrier(const process_group& group = world(), call_site where = call_site::current());

/// Starts to wait for all ranks: the work is done when every rank has started it.
work<void> barrier_async(const process_group& group = world(), call_site where = call_site::current());

}  // namespace hfcomm
