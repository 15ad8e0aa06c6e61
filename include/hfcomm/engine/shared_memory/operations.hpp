// SPDX-License-Identifier: MIT
#pragma once

/// The algorithms of the collective operations.

// IWYU pragma: begin_exports
#include <hfcomm/engine/shared_memory/operations/all_to_all_v.hpp>
#include <hfcomm/engine/shared_memory/operations/careful_receiver.hpp>
#include <hfcomm/engine/shared_memory/operations/exchange.hpp>
#include <hfcomm/engine/shared_memory/operations/kernel_fold.hpp>
#include <hfcomm/engine/shared_memory/operations/kernel_reduce.hpp>
#include <hfcomm/engine/shared_memory/operations/node_chain.hpp>
#include <hfcomm/engine/shared_memory/operations/node_route.hpp>
#include <hfcomm/engine/shared_memory/operations/parts_in_place.hpp>
#include <hfcomm/engine/shared_memory/operations/reduce.hpp>
#include <hfcomm/engine/shared_memory/operations/reduce_scatter.hpp>
#include <hfcomm/engine/shared_memory/operations/short_contribution.hpp>
#include <hfcomm/engine/shared_memory/operations/sliced_chunks.hpp>
#include <hfcomm/engine/shared_memory/operations/slot_parts.hpp>
#include <hfcomm/engine/shared_memory/operations/small_parts.hpp>
// IWYU pragma: end_exports
