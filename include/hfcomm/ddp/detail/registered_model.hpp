// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/ddp/parameter.hpp>

namespace hfcomm::detail {

/// The parameters and buffers that were given to distributed_data_parallel, without the ignored ones. Parameters are
/// found by their name or by their number in the order of registration, in which the ignored ones count.
class registered_model {
 public:
  registered_model(std::vector<ddp_parameter> parameters, std::vector<ddp_buffer> buffers,
                   const std::vector<std::string>& ignore) {
    const auto ignored = [&](const std::string& name) {
      return std::find(ignore.begin(), ignore.end(), name) != ignore.end();
    };
    const auto keep = [&](auto& registered, auto& kept, std::vector<std::optional<std::size_t>>& kept_index) {
      for (auto& one : registered) {
        const bool is_kept = !ignored(one.name);
        kept_index.push_back(is_kept ? std::optional(kept.size()) : std::nullopt);
        if (is_kept) {
          kept.push_back(std::move(one));
        }
      }
    };
    for (std::size_t number = 0; number < parameters.size(); ++number) {
      by_name_.emplace(parameters[number].name, number);
    }
    keep(parameters, parameters_, kept_index_);
    keep(buffers, buffers_, kept_buffer_);
  }

  [[nodiscard]] const std::vector<ddp_parameter>& parameters() const noexcept { return parameters_; }
  [[nodiscard]] std::vector<ddp_parameter>& parameters() noexcept { return parameters_; }
  [[nodiscard]] const std::vector<ddp_buffer>& buffers() const noexcept { return buffers_; }
  [[nodiscard]] std::vector<ddp_buffer>& buffers() noexcept { return buffers_; }

  /// Returns the number of registered parameters, the ignored ones included.
  [[nodiscard]] std::size_t registered_count() const noexcept { return kept_index_.size(); }
  /// Returns the number of registered buffers, the ignored ones included.
  [[nodiscard]] std::size_t registered_buffer_count() const noexcept { return kept_buffer_.size(); }
  [[nodiscard]] bool has_repeated_names() const noexcept { return by_name_.size() != kept_index_.size(); }
  [[nodiscard]] bool is_on_device() const noexcept {
    const auto on_device = [](const auto& one) { return one.on_device; };
    return std::any_of(parameters_.begin(), parameters_.end(), on_device) ||
           std::any_of(buffers_.begin(), buffers_.end(), on_device);
  }

  /// Returns the number under which the parameter was registered; nullopt where there is no parameter of that name.
  [[nodiscard]] std::optional<std::size_t> find(std::string_view name) const {
    const auto found = by_name_.find(std::string(name));
    return found == by_name_.end() ? std::nullopt : std::optional(found->second);
  }
  /// Returns the names of the parameters, of ten at most: `"weight", "bias"`.
  [[nodiscard, gnu::cold]] std::string names_text() const {
    constexpr std::size_t most = 10;
    std::string text;
    for (std::size_t index = 0; index < std::min(most, parameters_.size()); ++index) {
      append(text, {index == 0 ? "\"" : ", \"", parameters_[index].name, '"'});
    }
    if (parameters_.size() > most) {
      append(text, {" and ", parameters_.size() - most, " more"});
    }
    return text.empty() ? "none" : text;
  }
  /// Returns the index in `parameters()` of the parameter that was registered as `number`; nullopt where it is ignored.
  [[nodiscard]] std::optional<std::size_t> index_of(std::size_t number) const { return kept_index_[number]; }
  /// Returns the same of a buffer.
  [[nodiscard]] std::optional<std::size_t> buffer_index_of(std::size_t number) const { return kept_buffer_[number]; }

 private:
  std::vector<ddp_parameter> parameters_;
  std::vector<ddp_buffer> buffers_;
  std::unordered_map<std::string, std::size_t> by_name_;
  std::vector<std::optional<std::size_t>> kept_index_;
  std::vector<std::optional<std::size_t>> kept_buffer_;
};

}  // namespace hfcomm::detail
