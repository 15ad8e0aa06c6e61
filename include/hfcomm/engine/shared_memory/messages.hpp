// SPDX-License-Identifier: MIT
#pragma once

/// Messages between two ranks.

// IWYU pragma: begin_exports
#include <hfcomm/engine/shared_memory/messages/inbox.hpp>
#include <hfcomm/engine/shared_memory/messages/message_endpoint.hpp>
#include <hfcomm/engine/shared_memory/messages/message_progress.hpp>
#include <hfcomm/engine/shared_memory/messages/outbox.hpp>
#include <hfcomm/engine/shared_memory/messages/owned_messages.hpp>
#include <hfcomm/engine/shared_memory/messages/point_to_point.hpp>
// IWYU pragma: end_exports
