// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <source_location>
#include <span>
#include <utility>
#include <vector>

#include <hfcomm/core/config.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/std_algorithm.hpp>
#include <hfcomm/engine/call_text.hpp>
#include <hfcomm/engine/table_receiver.hpp>
#include <hfcomm/group/detail/group_state.hpp>
#include <hfcomm/group/detail/running_call.hpp>
#include <hfcomm/group/process_group.hpp>

namespace hfcomm {

namespace detail {

/// Collects lists of ranks of any length.
class lists_receiver final : public receiver {
 public:
  explicit lists_receiver(std::span<std::vector<int>> lists) : lists_(lists) {}

  void receive(int source, std::span<const std::byte> chunk, std::uint64_t offset, std::uint64_t total) override {
    auto& list = lists_[static_cast<std::size_t>(source)];
    list.resize(total / sizeof(int));
    if (!chunk.empty()) {
      std::memcpy(reinterpret_cast<std::byte*>(list.data()) + offset, chunk.data(), chunk.size());
    }
  }

 private:
  std::span<std::vector<int>> lists_;
};

}  // namespace detail

HFCOMM_INLINE process_group process_group::split(int color, int key, std::source_location where) const {
  engines::operation call{.name = "split",
                          .pattern = engines::movement::to_all,
                          .content = engines::payload::buffer,
                          .bytes = 2 * sizeof(int),
                          .where = where};
  detail::running_call running(*this, call);
  running.require(color >= 0,
                  [&] { return detail::concat({"color ", color, " is negative; use subgroup to leave ranks out"}); });
  const std::array<int, 2> mine{color, key};
  std::vector<std::array<int, 2>> choices(static_cast<std::size_t>(size()));
  detail::table_receiver table(std::as_writable_bytes(std::span(choices)), rank());
  running.engine().exchange(call, std::as_bytes(std::span(mine)), table);

  std::vector<int> members;
  for (int other = 0; other < size(); ++other) {
    if (choices[static_cast<std::size_t>(other)][0] == color) {
      members.push_back(other);
    }
  }
  std::sort(members.begin(), members.end(), [&](int left, int right) {
    return std::pair(choices[static_cast<std::size_t>(left)][1], left) <
           std::pair(choices[static_cast<std::size_t>(right)][1], right);
  });
  engines::operation make{.name = "split", .where = where, .timeout = timeout_};
  return *part(make, members);
}

HFCOMM_INLINE std::optional<process_group> process_group::subgroup(std::span<const int> ranks,
                                                                   std::source_location where) const {
  engines::operation call{.name = "subgroup",
                          .pattern = engines::movement::to_all,
                          .content = engines::payload::object,
                          .type_name = "std::span<const int>",
                          .where = where};
  call.bytes = ranks.size_bytes();
  detail::running_call running(*this, call);
  std::vector<bool> seen(static_cast<std::size_t>(size()));
  running.require(!ranks.empty(), [] { return "an empty list of ranks makes no group"; });
  for (const int member : ranks) {
    running.require(member >= 0 && member < size(), [&] { return engines::no_such_rank("rank", member, size()); });
    running.require(!seen[static_cast<std::size_t>(member)],
                    [&] { return detail::concat({"rank ", member, " is named twice"}); });
    seen[static_cast<std::size_t>(member)] = true;
  }
  const auto context = running.context();
  std::vector<std::vector<int>> lists(static_cast<std::size_t>(size()));
  detail::lists_receiver received(lists);
  running.engine().exchange(call, std::as_bytes(ranks), received);
  for (std::size_t other = 1; other < lists.size(); ++other) {
    if (lists[other] != lists[0]) {
      const auto requested_by = [&](std::size_t rank) {
        return detail::concat({"rank ", rank, " called ", running.engine().matching_call(static_cast<int>(rank)),
                               " for ", engines::list_ranks(lists[rank])});
      };
      detail::throw_error<mismatch_error>(
          context, {"the new group differs: ", requested_by(0), ", ", requested_by(other)}, 0, static_cast<int>(other));
    }
  }
  const bool inside = seen[static_cast<std::size_t>(rank())];
  engines::operation make{.name = "subgroup", .where = where, .timeout = timeout_};
  return part(make, inside ? ranks : std::span<const int>());
}

HFCOMM_INLINE std::optional<process_group> process_group::part(const engines::operation& call,
                                                               std::span<const int> members) const {
  auto engine = state_->engine().subgroup(call, members);
  std::shared_ptr<engines::device_engine> devices;
  if (state_->devices) {
    devices = state_->devices->subgroup(call, engine, members.empty() ? 0 : members.front());
  }
  if (!engine) {
    return std::nullopt;
  }
  process_group made(std::move(engine), timeout_);
  made.checks_devices_ = checks_devices_;
  made.state_->job = state_->job;
  if (devices) {
    made.state_->devices = std::move(devices);
    made.state_->has_devices.store(true);
  }
  return made;
}

}  // namespace hfcomm
