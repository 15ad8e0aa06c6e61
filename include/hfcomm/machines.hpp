// SPDX-License-Identifier: MIT
#pragma once

/// Jobs whose ranks are on several machines. One file of a header-only program includes this header, such as the one
/// with `main`; its other files need not. Not a file of a static library that the linker may leave out. The compiled
/// part has it anyway. Without it, a header-only program pays for one machine only: `init`, `connect` and `launch`
/// throw usage_error, with this remedy, in a job of several machines. <hfcomm/mpi.hpp> and <hfcomm/torch_backend.hpp>
/// include it.

// IWYU pragma: begin_exports
#include <hfcomm/comm.hpp>
// IWYU pragma: end_exports

#if !defined(HFCOMM_COMPILED)
#include <hfcomm/detail/machines-inl.hpp>
#endif
