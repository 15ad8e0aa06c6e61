// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace hfcomm::detail {

/// The order in which gradients become ready, and whether the ranks have agreed on it.
struct order_agreement {
  std::vector<std::uint32_t> order;  ///< In which they became ready on this rank, later on rank 0; empty: not known.
  bool is_reached = false;           ///< All ranks have rank 0's order, if it was known there.
};

/// Counts which gradients became ready in a backward pass. Each becomes ready once; in a static graph as often as in
/// the first pass, which learns it.
class marks {
 public:
  marks(std::size_t parameters, bool static_graph)
      : expected_(parameters, 1), found_(parameters), is_used_(parameters), is_learning_(static_graph) {}

  /// Returns whether this pass only counts: each gradient may become ready any number of times.
  [[nodiscard]] bool are_learning() const noexcept { return is_learning_; }
  /// Returns whether the gradient will not become ready again in this pass, as far as is known.
  [[nodiscard]] bool is_complete(std::size_t parameter) const {
    return !is_learning_ && found_[parameter] == expected_[parameter];
  }
  /// Returns whether this rank has added to the gradient since the last averaged pass.
  [[nodiscard]] bool is_used(std::size_t parameter) const { return is_used_[parameter] != 0; }
  [[nodiscard]] const std::vector<std::uint8_t>& used() const noexcept { return is_used_; }

  /// Notes that a gradient became ready. Returns whether it is complete now.
  bool add(std::size_t parameter) {
    ++found_[parameter];
    is_used_[parameter] = 1;
    order_.push_back(static_cast<std::uint32_t>(parameter));
    return is_complete(parameter);
  }
  void set_used(std::size_t parameter) { is_used_[parameter] = 1; }
  void set_all(bool are_used) { is_used_.assign(is_used_.size(), static_cast<std::uint8_t>(are_used)); }

  /// Returns the parameters in the order in which their gradients became complete, then those that never did. Empty
  /// where none did.
  [[nodiscard]] std::vector<std::uint32_t> order() const {
    std::vector<std::uint32_t> last_first;
    if (order_.empty()) {
      return last_first;
    }
    std::vector<bool> is_placed(found_.size());
    for (std::size_t parameter = 0; parameter < found_.size(); ++parameter) {
      if (found_[parameter] == 0) {
        last_first.push_back(static_cast<std::uint32_t>(parameter));
      }
    }
    for (std::size_t index = order_.size(); index-- > 0;) {
      if (!is_placed[order_[index]]) {
        is_placed[order_[index]] = true;
        last_first.push_back(order_[index]);
      }
    }
    std::ranges::reverse(last_first);
    return last_first;
  }

  /// Takes the counts of the pass that ends for those of all following ones, if it is the first that has any.
  void learn() {
    if (is_learning_ && !order_.empty()) {
      expected_ = found_;
      is_learning_ = false;
    }
  }

  void begin_pass() {
    std::ranges::fill(found_, 0U);
    order_.clear();
  }
  void forget_used() { std::ranges::fill(is_used_, std::uint8_t{0}); }

 private:
  std::vector<std::uint32_t> expected_;
  std::vector<std::uint32_t> found_;   // in this pass
  std::vector<std::uint8_t> is_used_;  // 1: since the last averaged pass
  std::vector<std::uint32_t> order_;   // of all marks of this pass
  bool is_learning_;
};

}  // namespace hfcomm::detail
