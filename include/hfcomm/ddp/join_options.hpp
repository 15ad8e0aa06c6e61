// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>

namespace hfcomm {

/// Divisor of the sum of the gradients while some ranks have run out of data.
enum class divide_by : std::uint8_t {
  initial_world,  ///< The group's size, always: every sample keeps its weight, the steps become smaller.
  live_ranks,     ///< The number of ranks that still have data, or gradients left over: the average over those.
};

/// Options of `join_scope`: how ranks with unequal amounts of data train together. All but `on_shadow` must be equal on
/// all ranks.
struct join_options {
  divide_by divisor = divide_by::initial_world;
  /// Makes it an error on every rank that one rank runs out of data before the others.
  bool throw_on_early_end = false;
  /// Gives every rank, in the end, the parameters and buffers of a rank that had data to the last.
  bool synchronize_final_model = true;
  /// Called on a rank without data after each pass that it took part in, when its gradients hold the averages too. An
  /// optimizer that steps here keeps its state equal to the others'. Not called in passes inside `no_sync`. Called on
  /// all ranks after the pass that averages what was left over when the data ended, if there is one (see `join_scope`).
  std::function<void()> on_shadow{};
};

}  // namespace hfcomm
