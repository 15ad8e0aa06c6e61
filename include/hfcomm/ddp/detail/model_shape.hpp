// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/call/typed_calls.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/ddp/parameter.hpp>
#include <hfcomm/serialization/std_types.hpp>

namespace hfcomm::detail {

/// The description of a parameter or a buffer, which must be equal on all ranks.
struct model_part {
  std::string name;
  std::uint8_t type = 0;
  std::uint64_t bytes = 0;
  bool is_buffer = false;
  bool on_device = false;
  std::string layout{};

  template <class Archive>
  void serialize(Archive& archive) {
    archive(name, type, bytes, is_buffer, on_device, layout);
  }
  [[nodiscard]] std::string text() const {
    return concat({'"', name, "\" (", is_buffer ? concat({"a buffer of ", bytes, " bytes"}) : elements(), layout,
                   on_device ? " on a device)" : ")"});
  }
  [[nodiscard]] std::string elements() const {
    const auto element = static_cast<element_type>(type);
    return concat({bytes / size_of(element), " x ", to_string(element)});
  }
};

/// Returns ", sizes 2 x 3, strides 3 1"; empty where the layout is not known.
inline std::string layout_text(const tensor_layout& layout) {
  const auto list = [](std::string text, const std::vector<std::int64_t>& numbers, const char* between) {
    for (std::size_t index = 0; index < numbers.size(); ++index) {
      append(text, {index == 0 ? "" : between, numbers[index]});
    }
    return text;
  };
  return concat({layout.sizes.empty() ? "" : list(", sizes ", layout.sizes, " x "),
                 layout.strides.empty() ? "" : list(", strides ", layout.strides, " ")});
}

inline std::vector<model_part> describe_model(std::span<const ddp_parameter> parameters,
                                              std::span<const ddp_buffer> buffers) {
  std::vector<model_part> parts;
  parts.reserve(parameters.size() + buffers.size());
  for (const auto& one : parameters) {
    parts.push_back({one.name, static_cast<std::uint8_t>(one.type), one.value.size(), false, one.on_device,
                     layout_text(one.layout)});
  }
  for (const auto& one : buffers) {
    parts.push_back({one.name, 0, one.bytes.size(), true, one.on_device, layout_text(one.layout)});
  }
  return parts;
}

/// Returns "value" or "gradient" for the part of a parameter that has elements at address 0; nullptr: none.
inline const char* missing_memory(const ddp_parameter& parameter) noexcept {
  const auto missing = [](std::span<const std::byte> bytes) { return bytes.data() == nullptr && !bytes.empty(); };
  return missing(parameter.value) ? "value" : missing(parameter.gradient) ? "gradient" : nullptr;
}

/// Describes why a parameter is unusable, `first` being the model's first parameter; empty: it is usable.
inline std::string parameter_problem(const ddp_parameter& parameter, const ddp_parameter& first) {
  if (parameter.on_device != first.on_device) {
    return concat({"parameter \"", first.name, "\" is ", parameter.on_device ? "in host memory" : "on a device",
                   ", parameter \"", parameter.name, "\" is ", parameter.on_device ? "on one" : "not",
                   "; use two objects"});
  }
  if (!valid(reduce_op::average, parameter.type)) {
    return concat(
        {"parameter \"", parameter.name, "\" is of type ", to_string(parameter.type), ", which has no average"});
  }
  if (parameter.has_gradient && parameter.value.size() != parameter.gradient.size()) {
    return concat({"parameter \"", parameter.name, "\" has ", parameter.count(), " values, but its gradient has ",
                   parameter.gradient.size() / size_of(parameter.type), " elements"});
  }
  if (const char* part = missing_memory(parameter); part != nullptr) {
    return concat(
        {"the ", part, " of parameter \"", parameter.name, "\", ", parameter.count(), " elements, is at address 0"});
  }
  if (!parameter.on_device && parameter.kernel == nullptr) {
    return concat({"parameter \"", parameter.name, "\" has no kernel; make it with named_parameter"});
  }
  return {};
}

/// Describes which two parameters have memory in common; empty: none.
inline std::string overlap_problem(std::span<const ddp_parameter> parameters) {
  std::vector<const ddp_parameter*> sorted;
  for (const auto& one : parameters) {
    if (!one.value.empty()) {
      sorted.push_back(&one);
    }
  }
  std::sort(sorted.begin(), sorted.end(),
            [](const auto* left, const auto* right) { return std::less<>()(left->value.data(), right->value.data()); });
  for (std::size_t index = 1; index < sorted.size(); ++index) {
    const ddp_parameter& before = *sorted[index - 1];
    if (std::less<>()(sorted[index]->value.data(), before.value.data() + before.value.size())) {
      return concat({"the values of the parameters \"", before.name, "\" and \"", sorted[index]->name,
                     "\" share memory; register tied parameters once"});
    }
  }
  return {};
}

/// Describes why a buffer is unusable beside these parameters; empty: it is usable.
inline std::string buffer_problem(const ddp_buffer& buffer, std::span<const ddp_parameter> parameters) {
  if (buffer.on_device && !parameters.empty() && !parameters.front().on_device) {
    return concat({"buffer \"", buffer.name, "\" is on a device, but the parameters are not"});
  }
  if (buffer.bytes.data() == nullptr && !buffer.bytes.empty()) {
    return concat({"buffer \"", buffer.name, "\", ", buffer.bytes.size(), " bytes, is at address 0"});
  }
  return {};
}

/// Describes why this rank's model is unusable (the last reason that is found); empty: it is usable.
inline std::string model_problem(std::span<const ddp_parameter> parameters, std::span<const ddp_buffer> buffers,
                                 bool has_repeated_names) {
  std::string problem = has_repeated_names ? "two parameters have the same name" : overlap_problem(parameters);
  for (const auto& one : parameters) {
    if (std::string found = parameter_problem(one, parameters.front()); !found.empty()) {
      problem = std::move(found);
    }
  }
  for (const auto& one : buffers) {
    if (std::string found = buffer_problem(one, parameters); !found.empty()) {
      problem = std::move(found);
    }
  }
  return problem;
}

/// Throws mismatch_error naming the first part in which a rank's model differs from rank 0's.
inline void require_equal_models(const std::vector<std::vector<model_part>>& models, const error_context& context) {
  for (std::size_t rank = 1; rank < models.size(); ++rank) {
    const std::size_t count = std::max(models[0].size(), models[rank].size());
    for (std::size_t index = 0; index < count; ++index) {
      const auto text_at = [&](std::size_t who) {
        return index < models[who].size() ? models[who][index].text() : std::string("nothing");
      };
      const std::string first = text_at(0);
      const std::string other = text_at(rank);
      if (first != other) {
        throw_error<mismatch_error>(
            context, {"the models differ: as number ", index, " rank 0 has ", first, ", rank ", rank, " has ", other},
            0, static_cast<int>(rank));
      }
    }
  }
}

/// Throws on every rank where the ranks' models differ (mismatch_error naming the first part that does), or where one
/// rank's model is unusable (usage_error there, peer_error on the others). Collective.
inline void check_model_shape(std::span<const ddp_parameter> parameters, std::span<const ddp_buffer> buffers,
                              bool has_repeated_names, const process_group& group, std::source_location where) {
  const error_context context{group.rank(), group.size(), "distributed_data_parallel", 0, where};
  const std::string problem = model_problem(parameters, buffers, has_repeated_names);
  if (!problem.empty()) {
    operation call = object_call<std::vector<model_part>>("distributed_data_parallel", movement::to_all, -1, where);
    running_call running(group, call);
    running.refuse(problem);
  }
  require_equal_models(
      collect_objects(object_call<std::vector<model_part>>("distributed_data_parallel", movement::to_all, -1, where),
                      describe_model(parameters, buffers), group.size(), group),
      context);
}

}  // namespace hfcomm::detail
