// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <hfcomm/core/error.hpp>
#include <hfcomm/engine/device_board.hpp>

namespace hfcomm::engines {

/// The liveness of one group's ranks, and the error that breaks the group. A group is broken once: every rank then
/// throws the same error from every call, with the same culprit.
///
/// It carries no bytes, so all engines of a machine share one implementation. The device plane asks and tells it what a
/// GPU cannot. Any thread may call, at any time; no function is an operation.
class group_health {
 public:
  group_health(int rank, int size) noexcept : rank_(rank), size_(size) {}
  group_health(const group_health&) = delete;
  group_health& operator=(const group_health&) = delete;
  virtual ~group_health() = default;

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }

  /// Returns whether a rank is lost, or a deadline has passed: every later call throws that error.
  [[nodiscard]] virtual bool is_broken() const noexcept = 0;

  /// Breaks the group with this rank as the culprit, because an exception keeps it from doing its part. Operations and
  /// messages of all ranks throw at once.
  virtual void abandon(const error_context& context) const noexcept = 0;

  /// Breaks the group with this rank as the culprit, because of an error of its device plane. `what` continues a
  /// sentence that begins with this rank.
  virtual void break_by_this_rank(const error_context& context, const std::string& what) const noexcept = 0;

  /// Breaks the group because a deadline of the device plane has passed. `what` is a sentence, `missing` the ranks that
  /// had not come.
  virtual void break_for_timeout(const error_context& context, const std::string& what,
                                 const std::vector<int>& missing) const noexcept = 0;

  /// Throws peer_error where device operation `number` can never end: a rank is lost, or has left or refused without
  /// having put its part on its device. 0 stands for a message, which is not counted.
  virtual void check_device_operation(const error_context& context, std::uint64_t number) const = 0;

  /// Returns what `rank` shows of its device operations; null in a group of one.
  [[nodiscard]] virtual device_board* board_of(int rank) const noexcept = 0;

 private:
  int rank_;
  int size_;
};

}  // namespace hfcomm::engines
