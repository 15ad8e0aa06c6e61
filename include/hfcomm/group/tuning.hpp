// SPDX-License-Identifier: MIT
#pragma once

#include <string>

namespace hfcomm {

/// Returns the ways that this process's groups have found to be the quickest on this machine: a line for each
/// operation, size and number of ranks, under two lines of headings. Groups find them while they work: see
/// HFCOMM_TUNING in docs/running.md. `bytes` is the length of one rank's part for gather, all_gather, scatter and
/// all_to_all, and of its whole input for the others; a line is for all lengths from there to twice as many.
///
/// Any thread may call.
[[nodiscard]] std::string tuning_text();

/// Writes `tuning_text()` into a file. A later process takes it with HFCOMM_TUNING=`path`, or by load_tuning, and then
/// need not find it out again. Throws engine_error where the file cannot be written.
void save_tuning(const std::string& path);

/// Adds the choices in a file of save_tuning. To be called before the groups that are to use them do operations of
/// these sizes; later it changes nothing for them. A choice counts where all ranks of a group have the same one. A
/// group that has a rank in this process, and first does an operation of some kind and size after this call, keeps a
/// choice from the file, or its own once it has tried each way four times, also where that has become slow. Any thread
/// may call. Throws usage_error where the file cannot be read, or names the line that is no choice.
void load_tuning(const std::string& path);

}  // namespace hfcomm
