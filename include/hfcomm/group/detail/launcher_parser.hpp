// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <limits>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/detail/numbers.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/group/environment.hpp>

namespace hfcomm::detail {

/// The variables that one kind of launcher sets. Null stands for no variable.
struct launcher_variables {
  /// At most two names.
  using names = std::array<const char*, 2>;

  const char* source;
  const char* rank;
  const char* size;
  const char* decisive = nullptr;  ///< Set by nobody else; null: rank or size is enough.
  const char* local_rank;
  const char* local_size;
  const char* better_local_size = nullptr;  ///< Comes before `local_size`.
  const char* node_rank = nullptr;
  const char* node_count = nullptr;
  names job{};                ///< Variables that name the job; needed from two processes on.
  names refine{};             ///< Variables that also distinguish jobs; never needed.
  const char* key = nullptr;  ///< The beginning of the job's key, before the values of `job`; null: the launcher's own.
  /// True where `local_size` is a list indexed by SLURM_NODEID: 4(x2),3 stands for 4, 4 and 3.
  bool sizes_of_all_machines = false;
};

/// A parser of one launcher's variables, with checks.
class launcher_parser {
 public:
  launcher_parser(const launcher_variables& variables, environment_reader read, std::source_location where)
      : variables_(variables), read_(read), where_(where) {
    if (variables.better_local_size != nullptr && read(variables.better_local_size)) {
      variables_.local_size = variables.better_local_size;
    }
  }

  /// Returns whether the launcher's variables are set. A MASTER_ADDR or LOCAL_RANK alone is often left over.
  [[nodiscard]] bool present() const {
    return variables_.decisive != nullptr ? read_(variables_.decisive).has_value()
                                          : read_(variables_.rank) || read_(variables_.size);
  }

  [[nodiscard, gnu::cold]] launch_environment parse() const {
    const auto given_size = number(variables_.size, 1);
    require(!given_size || *given_size > 1);
    launch_environment result;
    result.source = variables_.source;
    result.world_size = *given_size;
    result.rank = *number(variables_.rank, 0);
    require_below(variables_.rank, result.rank, variables_.size, result.world_size);

    const auto local_size = variables_.sizes_of_all_machines ? size_in_list() : number(variables_.local_size, 1);
    const auto local_rank = number(variables_.local_rank, 0);
    result.local_size = local_size.value_or(result.world_size);
    if (result.local_size > result.world_size) {
      fail(concat({shown(variables_.local_size), " is more than ", shown(variables_.size)}));
    }
    result.local_rank = local_rank.value_or(result.rank);
    if (!local_rank && result.local_size < result.world_size) {
      fail(concat({shown(variables_.local_size), " is less than ", shown(variables_.size), ", so ",
                   variables_.local_rank, " must be set, too"}));
    }
    require_below(variables_.local_rank, result.local_rank, local_size ? variables_.local_size : variables_.size,
                  result.local_size);
    result.has_local_size = local_size.has_value();
    read_nodes(result);
    if (result.world_size > 1 && variables_.key != nullptr) {
      const char* const second = variables_.job[1];
      result.rendezvous = concat({variables_.key, text(variables_.job[0]), second != nullptr ? "/" : "",
                                  second != nullptr ? text(second) : std::string()});
    }
    return result;
  }

  /// Returns a variable that was found. Throws usage_error where it is empty.
  [[nodiscard, gnu::cold]] std::string text(const char* name) const {
    std::string value = read_(name).value_or("");
    if (value.empty()) {
      fail(concat({shown(name), " is empty"}));
    }
    return value;
  }

  /// Returns a whole number from `least` to `most`; nullopt where the variable is not set.
  [[nodiscard, gnu::cold]] std::optional<int> number(const char* name, int least,
                                                     int most = std::numeric_limits<int>::max()) const {
    const auto value = read_(name);
    if (!value) {
      return std::nullopt;
    }
    const auto result = whole_number(*value);
    if (!result || *result < least || *result > most) {
      fail(concat({shown(name), " is no whole number from ", least, " to ", most}));
    }
    return result;
  }

  [[noreturn, gnu::cold]] void fail(std::string detail) const {  // NOLINT
    throw_error<usage_error>({-1, 0, "detect_environment", 0, where_}, {detail});
  }

  [[nodiscard, gnu::cold]] std::string shown(const char* name) const {
    return concat({name, "=\"", read_(name).value_or(""), '"'});
  }

 private:
  /// Reads the number of this machine and of all. Throws usage_error where they contradict the number of local ranks.
  [[gnu::cold]] void read_nodes(launch_environment& job) const {
    const auto of = [this](const char* name, int least) {
      return name != nullptr ? number(name, least).value_or(-1) : -1;
    };
    job.node_rank = of(variables_.node_rank, 0);
    job.node_count = of(variables_.node_count, 1);
    if (job.node_rank >= 0 && job.node_count >= 0) {
      require_below(variables_.node_rank, job.node_rank, variables_.node_count, job.node_count);
    }
    job.has_local_size = job.has_local_size || job.node_count == 1;
    if (job.node_count >= 0 && job.has_local_size && (job.node_count == 1) != (job.local_size == job.world_size)) {
      fail(concat({shown(variables_.node_count), " contradicts ", shown(variables_.local_size), " and ",
                   shown(variables_.size)}));
    }
  }

  /// Returns this machine's number in a list such as 4(x2),3.
  [[nodiscard, gnu::cold]] std::optional<int> size_in_list() const {
    const auto list = read_(variables_.local_size);
    if (!list) {
      return std::nullopt;
    }
    int machine = number("SLURM_NODEID", 0).value_or(0);
    for (std::string_view rest = *list; !rest.empty();) {
      const auto size = take_number(rest);
      auto times = std::optional(1);
      if (rest.starts_with("(x")) {
        rest.remove_prefix(2);
        times = take_number(rest);
        times = take_character(rest, ')') ? times : std::nullopt;
      }
      if (size > 0 && times > machine) {
        return size;
      }
      if (!(size > 0) || !(times > 0) || (!rest.empty() && (!take_character(rest, ',') || rest.empty()))) {
        fail(concat({shown(variables_.local_size), " is no list of numbers such as 4(x2),3"}));
      }
      machine -= *times;
    }
    fail(concat({shown(variables_.local_size), " has no number for ", shown("SLURM_NODEID")}));
  }

  void require_below(const char* name, int value, const char* limit_name, int limit) const {
    if (value >= limit) {
      fail(concat({shown(name), " must be less than ", shown(limit_name)}));
    }
  }

  /// Throws usage_error unless all needed variables are set. Its text lists those found and those missing.
  [[gnu::cold]] void require(bool job_needed) const {
    std::string found;
    std::string missing;
    const auto classify = [&](const char* name, bool needed) {
      if (name == nullptr) {
        return;
      }
      if (read_(name)) {
        append(found, {found.empty() ? "" : ", ", shown(name)});
      } else if (needed) {
        append(missing, {missing.empty() ? "" : ", ", name});
      }
    };
    for (const char* name : {variables_.rank, variables_.size}) {
      classify(name, true);
    }
    for (const char* name : variables_.job) {
      classify(name, job_needed);
    }
    for (const char* name : {variables_.local_rank, variables_.local_size, variables_.node_rank, variables_.node_count,
                             variables_.refine[0], variables_.refine[1]}) {
      classify(name, false);
    }
    if (!missing.empty()) {
      fail(concat({variables_.source, " variables are incomplete: found ", found, "; missing ", missing}));
    }
  }

  launcher_variables variables_;
  environment_reader read_;
  std::source_location where_;
};

}  // namespace hfcomm::detail
