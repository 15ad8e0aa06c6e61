// SPDX-License-Identifier: MIT
#pragma once

/// The steps that the ranks of a group take together: publishing, waiting and comparing.

// IWYU pragma: begin_exports
#include <hfcomm/engine/shared_memory/steps/cell_checks.hpp>
#include <hfcomm/engine/shared_memory/steps/lockstep.hpp>
#include <hfcomm/engine/shared_memory/steps/root_lists.hpp>
#include <hfcomm/engine/shared_memory/steps/step_pipeline.hpp>
#include <hfcomm/engine/shared_memory/steps/step_waiter.hpp>
// IWYU pragma: end_exports
