// SPDX-License-Identifier: MIT
#pragma once

/// The memory of a group and of its job: its layout, the owners of its parts, and where its ranks are.

// IWYU pragma: begin_exports
#include <hfcomm/engine/shared_memory/memory/call_record.hpp>
#include <hfcomm/engine/shared_memory/memory/group_memory.hpp>
#include <hfcomm/engine/shared_memory/memory/group_placement.hpp>
#include <hfcomm/engine/shared_memory/memory/job.hpp>
#include <hfcomm/engine/shared_memory/memory/layout.hpp>
#include <hfcomm/engine/shared_memory/memory/named_parts.hpp>
#include <hfcomm/engine/shared_memory/memory/process_memory.hpp>
#include <hfcomm/engine/shared_memory/memory/share_buffer.hpp>
#include <hfcomm/engine/shared_memory/memory/shared_heap.hpp>
#include <hfcomm/engine/shared_memory/memory/shared_ranges.hpp>
// IWYU pragma: end_exports
