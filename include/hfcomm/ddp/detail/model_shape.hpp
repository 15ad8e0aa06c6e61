// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <span>
#include <string>
#include <vector>

#include <hfcomm/call/call.hpp>
#include <hfcomm/ddp/parameter.hpp>
#include <hfcomm/serialization/std_types.hpp>

namespace hfcomm::detail {

/// What must be equal on all ranks of a parameter or a buffer.
struct model_part {
  std::string name;
  std::uint8_t type = 0;
  std::uint64_t bytes = 0;
  bool is_buffer = false;
  bool on_device = false;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(name, type, bytes, is_buffer, on_device);
  }
  bool operator==(const model_part&) const = default;
  [[nodiscard]] std::string text() const {
    return '"' + name + "\" (" + (is_buffer ? "a buffer of " + std::to_string(bytes) + " bytes" : elements()) +
           (on_device ? " on a device)" : ")");
  }
  [[nodiscard]] std::string elements() const {
    const auto element = static_cast<element_type>(type);
    return std::to_string(bytes / size_of(element)) + " x " + std::string(to_string(element));
  }
};

/// Which part of a parameter has elements, but no memory; nullptr: none.
inline const char* missing_memory(const ddp_parameter& parameter) noexcept {
  const auto missing = [](std::span<const std::byte> bytes) { return bytes.data() == nullptr && !bytes.empty(); };
  return missing(parameter.value) ? "value" : missing(parameter.gradient) ? "gradient" : nullptr;
}

/// Throws on every rank where the ranks' models differ (mismatch_error naming the first part that does) or one is not
/// usable.
inline void check_model_shape(std::span<const ddp_parameter> parameters, std::span<const ddp_buffer> buffers,
                              bool names_repeat, const process_group& group, std::source_location where) {
  const error_context context{group.rank(), group.size(), "distributed_data_parallel", 0, where};
  std::vector<model_part> mine;
  std::string problem = names_repeat ? "two parameters have the same name" : "";
  for (const auto& parameter : parameters) {
    mine.push_back({parameter.name, static_cast<std::uint8_t>(parameter.type), parameter.value.size(), false,
                    parameter.on_device});
    if (parameter.on_device != parameters.front().on_device) {
      problem = "parameter \"" + parameters.front().name + "\" is " +
                (parameter.on_device ? "in host memory" : "on a device") + ", parameter \"" + parameter.name +
                "\" is " + (parameter.on_device ? "on one" : "not") + "; use two objects";
    } else if (!valid(reduce_op::average, parameter.type)) {
      problem = "parameter \"" + parameter.name + "\" is of type " + std::string(to_string(parameter.type)) +
                ", which has no average";
    } else if (parameter.value.size() != parameter.gradient.size()) {
      problem = "parameter \"" + parameter.name + "\" has " + std::to_string(parameter.count()) +
                " values, but its gradient has " + std::to_string(parameter.gradient.size() / size_of(parameter.type)) +
                " elements";
    } else if (const char* part = missing_memory(parameter); part != nullptr) {
      problem = "the " + std::string(part) + " of parameter \"" + parameter.name + "\", " +
                std::to_string(parameter.count()) + " elements, is at address 0";
    }
  }
  for (const auto& one : buffers) {
    mine.push_back({one.name, 0, one.bytes.size(), true, one.on_device});
    if (one.on_device && !parameters.empty() && !parameters.front().on_device) {
      problem = "buffer \"" + one.name + "\" is on a device, but the parameters are not";
    } else if (one.bytes.data() == nullptr && !one.bytes.empty()) {
      problem = "buffer \"" + one.name + "\", " + std::to_string(one.bytes.size()) + " bytes, is at address 0";
    }
  }
  if (!problem.empty()) {
    operation call = object_call<std::vector<model_part>>("distributed_data_parallel", movement::to_all, -1, where);
    running_call running(group, call);
    running.require(false, [&] { return problem; });
  }
  const auto all = collect_objects("distributed_data_parallel", movement::to_all, mine, -1, group, where);
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    const std::size_t count = std::max(all[0].size(), all[rank].size());
    for (std::size_t index = 0; index < count; ++index) {
      const auto at = [&](std::size_t who) {
        return index < all[who].size() ? all[who][index].text() : std::string("nothing");
      };
      if (at(0) != at(rank)) {
        throw mismatch_error(context,
                             "the models differ: as number " + std::to_string(index) + " rank 0 has " + at(0) +
                                 ", rank " + std::to_string(rank) + " has " + at(rank),
                             0, static_cast<int>(rank));
      }
    }
  }
}

}  // namespace hfcomm::detail
