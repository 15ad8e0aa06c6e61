// SPDX-License-Identifier: MIT
#pragma once

/// The ways by which bytes go from one rank's memory to another's, and the choice among them.

// IWYU pragma: begin_exports
#include <hfcomm/engine/shared_memory/ways/kernel_reads.hpp>
#include <hfcomm/engine/shared_memory/ways/peer_memory.hpp>
#include <hfcomm/engine/shared_memory/ways/rank_nodes.hpp>
#include <hfcomm/engine/shared_memory/ways/transfer_way.hpp>
#include <hfcomm/engine/shared_memory/ways/tuner.hpp>
#include <hfcomm/engine/shared_memory/ways/tuning_table.hpp>
// IWYU pragma: end_exports
