// SPDX-License-Identifier: MIT
#pragma once

/// The health of a group: who is lost, and what broke it.

// IWYU pragma: begin_exports
#include <hfcomm/engine/shared_memory/health/shared_memory_health.hpp>
// IWYU pragma: end_exports
