// SPDX-License-Identifier: MIT
#pragma once

#include <string>

namespace hfcomm {

/// Returns the ways that this process's groups have found to be the quickest on this machine: a line for each
/// operation, size and number of ranks, under a line of headings. Groups find them in their first operations: see
/// HFCOMM_TUNING in docs/running.md.
///
/// Any thread may call.
[[nodiscard]] std::string tuning_text();

/// Writes `tuning_text()` into a file. A later process takes it with HFCOMM_TUNING=`path`, or by load_tuning, and then
/// need not find it out again. Throws engine_error where the file cannot be written.
void save_tuning(const std::string& path);

/// Adds what a file of save_tuning has, before the groups that are to use it have done operations of these sizes. A
/// choice counts where all ranks of a group on this machine have the same one. Throws usage_error where the file cannot
/// be read or has other things in it.
void load_tuning(const std::string& path);

}  // namespace hfcomm
