// SPDX-License-Identifier: MIT
#pragma once

/// A backend of torch.distributed (c10d) for tensors in host memory: `hfcomm::torch_backend`. For LibTorch 1.13 and
/// later, with g++; the program is compiled and linked as LibTorch asks for. examples/torch_backend makes a Python
/// module of it, after whose import `init_process_group("hfcomm")` works.

// IWYU pragma: begin_exports
#include <hfcomm/comm.hpp>
#include <hfcomm/machines.hpp>

#include <hfcomm/torch_backend/backend.hpp>
#include <hfcomm/torch_backend/backend_collectives.hpp>
#include <hfcomm/torch_backend/backend_lists.hpp>
#include <hfcomm/torch_backend/backend_messages.hpp>
// IWYU pragma: end_exports
