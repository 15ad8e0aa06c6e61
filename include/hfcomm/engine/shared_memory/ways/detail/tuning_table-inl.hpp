// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/core/std_algorithm.hpp>
#include <hfcomm/engine/shared_memory/memory.hpp>
#include <hfcomm/engine/shared_memory/ways/tuning_table.hpp>
#include <hfcomm/machine/text_file.hpp>

namespace hfcomm::engines {

namespace tuning {

/// Returns the number of a name in a list; throws where it is not there.
[[gnu::cold]] inline std::size_t index_of(std::span<const std::string_view> names, const std::string& name) {
  for (std::size_t index = 0; index < names.size(); ++index) {
    if (names[index] == name) {
      return index;
    }
  }
  detail::throw_error<usage_error>({"\"", name, "\" is not known here"});
}

/// Reads one line of a table's text.
[[gnu::cold]] inline std::pair<tuning_key, tuning_table::choice> parse_line(const std::string& line) {
  std::istringstream words(line);
  std::string operation;
  std::string cores;
  std::string medium;
  std::string rest;
  std::int64_t bytes = 0;
  transfer_way way;
  tuning_key key;
  tuning_table::choice chosen;
  if (!(words >> operation >> bytes >> key.ranks >> cores >> medium >> way.piece >> chosen.microseconds) ||
      words >> rest) {
    detail::throw_error<usage_error>(
        {"it is not: operation, least bytes, ranks, \"own\" or \"shared\", medium, piece, microseconds"});
  }
  if (bytes < 1) {
    detail::throw_error<usage_error>({"there is no such size: ", bytes, " bytes"});
  }
  if (key.ranks < 1 || key.ranks > layout::max_ranks) {
    detail::throw_error<usage_error>({"a group has 1 to ", layout::max_ranks, " ranks"});
  }
  key.kind = static_cast<tuned_operation>(index_of(tuned_operation_names, operation));
  key.shares_cores = index_of(std::array<std::string_view, 2>{"own", "shared"}, cores) == 1;
  key.size_class = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(bytes)));
  way.medium = static_cast<transfer_medium>(index_of(transfer_medium_names, medium));
  const auto known = std::find(transfer_ways.begin(), transfer_ways.end(), way);
  if (known == transfer_ways.end()) {
    detail::throw_error<usage_error>({"there is no such way: ", medium, " with pieces of ", way.piece});
  }
  chosen.way = static_cast<int>(known - transfer_ways.begin());
  return {key, chosen};
}

}  // namespace tuning

HFCOMM_INLINE tuning_table& tuning_table::of_process() {
  static const std::unique_ptr<tuning_table> table = [] {
    std::unique_ptr<tuning_table> made(new tuning_table);
    const char* variable = std::getenv("HFCOMM_TUNING");
    const std::string choice = variable != nullptr ? variable : "";
    if (choice == "off") {
      made->mode_ = tuning_mode::off;
    } else if (choice == "thorough") {
      made->mode_ = tuning_mode::thorough;
    } else if (!choice.empty()) {
      made->load(choice);
    }
    return made;
  }();
  return *table;
}

HFCOMM_INLINE int tuning_table::find(const tuning_key& key) const {
  const std::scoped_lock lock(mutex_);
  for (const auto& [known, chosen] : choices_) {
    if (known == key) {
      return chosen.way;
    }
  }
  return -1;
}

HFCOMM_INLINE void tuning_table::set(const tuning_key& key, const choice& chosen) {
  const std::scoped_lock lock(mutex_);
  std::size_t place = 0;
  while (place < choices_.size() && choices_[place].key < key) {
    ++place;
  }
  if (place == choices_.size() || choices_[place].key != key) {
    choices_.insert(place, {});
  }
  choices_[place] = {key, chosen};
}

HFCOMM_INLINE void tuning_table::reset(tuning_mode mode) {
  const std::scoped_lock lock(mutex_);
  choices_.clear();
  mode_ = mode;
}

HFCOMM_INLINE std::string tuning_table::text() const {
  std::string text =
      "# operation bytes ranks cores medium piece microseconds\n"
      "# bytes: of one rank's part (gather, all_gather, scatter, all_to_all) or its whole buffer, up to twice as "
      "many\n";
  const std::scoped_lock lock(mutex_);
  for (const auto& [key, chosen] : choices_) {
    char time[32];
    std::snprintf(time, sizeof(time), "%.2f", chosen.microseconds);
    text += tuned_operation_names[static_cast<std::size_t>(key.kind)];
    detail::append(text, {' ', std::size_t{1} << (key.size_class - 1), ' ', key.ranks});
    text += key.shares_cores ? " shared " : " own ";
    const transfer_way& way = transfer_ways[static_cast<std::size_t>(chosen.way)];
    text += transfer_medium_names[static_cast<std::size_t>(way.medium)];
    detail::append(text, {' ', way.piece, ' '});
    text += time;
    text += '\n';
  }
  return text;
}

HFCOMM_INLINE void tuning_table::load(const std::string& path) {
  hfcomm::detail::plain_list<entry> found;
  int number = 0;
  const int failure = rendezvous::text_file(path).read_lines([&](const std::string& line) {
    ++number;
    if (const auto first = line.find_first_not_of(" \t\r"); first == std::string::npos || line[first] == '#') {
      return true;
    }
    try {
      const auto [key, chosen] = tuning::parse_line(line);
      found.push_back({key, chosen});
    } catch (const usage_error& problem) {
      detail::throw_error<usage_error>({path, ":", number, ": \"", line, "\": ", problem.detail()});
    }
    return true;
  });
  if (failure != 0) {
    detail::throw_error<usage_error>({"the table ", path, " cannot be read (", std::strerror(failure),
                                      "); HFCOMM_TUNING is \"off\", \"thorough\" or the path of a file"});
  }
  for (const auto& [key, chosen] : found) {
    set(key, chosen);
  }
  tuning_mode brief = tuning_mode::brief;
  mode_.compare_exchange_strong(brief, tuning_mode::pinned);
}

}  // namespace hfcomm::engines
