// SPDX-License-Identifier: MIT
#pragma once

/// The one include: everything but the adapters that pull in somebody else's headers.

// IWYU pragma: begin_exports
#include <hfcomm/concepts.hpp>
#include <hfcomm/element_type.hpp>
#include <hfcomm/environment.hpp>
#include <hfcomm/error.hpp>
#include <hfcomm/float16.hpp>
#include <hfcomm/launch.hpp>
#include <hfcomm/options.hpp>
#include <hfcomm/process_group.hpp>
#include <hfcomm/reduce_op.hpp>
#include <hfcomm/session.hpp>
#include <hfcomm/version.hpp>

#include <hfcomm/serialization/object.hpp>
#include <hfcomm/serialization/std_types.hpp>

#include <hfcomm/collectives/all_gather.hpp>
#include <hfcomm/collectives/all_reduce.hpp>
#include <hfcomm/collectives/barrier.hpp>
#include <hfcomm/collectives/broadcast.hpp>
#include <hfcomm/collectives/gather.hpp>
#include <hfcomm/collectives/read_file_dist.hpp>
#include <hfcomm/collectives/reduce.hpp>
#include <hfcomm/collectives/reduce_dict.hpp>
#include <hfcomm/collectives/shared_random_seed.hpp>

#include <hfcomm/scopes/barrier_scope.hpp>
#include <hfcomm/scopes/local_master_first.hpp>
#include <hfcomm/scopes/master_first.hpp>

#include <hfcomm/ddp/distributed_data_parallel.hpp>
// IWYU pragma: end_exports
