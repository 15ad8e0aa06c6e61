// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/core/std_algorithm.hpp>
#include <hfcomm/engine/call_text.hpp>
#include <hfcomm/engine/operation.hpp>
#include <hfcomm/engine/shared_memory/memory/layout.hpp>

/// A call's form in shared memory: how it is written, and how error messages read it.
namespace hfcomm::engines {

inline std::uint64_t pack_call(const operation& call, bool failed) noexcept {
  return static_cast<std::uint64_t>(call.content) | static_cast<std::uint64_t>(call.element) << 8 |
         static_cast<std::uint64_t>(call.op) << 16 | static_cast<std::uint64_t>(call.reduces) << 24 |
         static_cast<std::uint64_t>(failed) << 25 | static_cast<std::uint64_t>(call.pattern) << 28 |
         static_cast<std::uint64_t>(static_cast<std::uint32_t>(call.root)) << 32;
}

/// The bit of a step of which other machines need not know (see lockstep::publish).
inline constexpr std::uint64_t quiet_call = 1U << 26;

/// Returns the root of the call in a cell; -1 where it has none.
inline int root_of(const layout::flag_cell& cell) noexcept {
  return static_cast<std::int32_t>(cell.what.load(std::memory_order_relaxed) >> 32);
}

inline bool announces_failure(const layout::flag_cell& cell) noexcept {
  return (cell.what.load(std::memory_order_relaxed) >> 25 & 1) != 0;
}

/// Writes a rank's call sites into its shared table. It knows them by the addresses of their strings, so that a call
/// from a line that called before costs one comparison.
class site_table {
 public:
  std::uint32_t index_of(const operation& call, layout::site_text (&sites)[layout::site_count]) {
    const std::uint64_t key =
        detail::mix(detail::mix(reinterpret_cast<std::uintptr_t>(call.where.file_name()), call.where.line()),
                    reinterpret_cast<std::uintptr_t>(call.name.text) ^
                        reinterpret_cast<std::uintptr_t>(call.type_name.data()) << 1);
    std::uint32_t index = static_cast<std::uint32_t>(key % layout::site_count);
    for (int probe = 0; probe < 4 && keys_[index] != key && keys_[index] != 0; ++probe) {
      index = (index + 1) % layout::site_count;
    }
    if (keys_[index] != key) {
      keys_[index] = key;
      write(call, sites[index]);
    }
    return index;
  }

 private:
  static void write(const operation& call, layout::site_text& site) {
    std::string text = detail::concat({call.name.text, '\n', detail::describe(call.where).substr(0, 96), '\n'});
    text += call.type_name.substr(0, layout::site_bytes - 1 - std::min(text.size(), layout::site_bytes - 1));
    text.resize(layout::site_bytes, '\0');
    text.back() = '\0';
    for (std::size_t word = 0; word < layout::site_bytes / 8; ++word) {
      std::uint64_t value = 0;
      std::memcpy(&value, text.data() + word * 8, 8);
      site.words[word].store(value, std::memory_order_relaxed);
    }
  }

  std::array<std::uint64_t, layout::site_count> keys_{};
};

/// Returns the remedy, as the end of a sentence, where one of two calls that do not match gives an object and the other
/// elements; else nothing.
[[nodiscard, gnu::cold]] inline std::string_view object_against_elements(std::uint64_t one, std::uint64_t other) {
  const auto content = [](std::uint64_t what) { return static_cast<payload>(what & 0xff); };
  const bool differ = (content(one) == payload::object && content(other) == payload::buffer) ||
                      (content(one) == payload::buffer && content(other) == payload::object);
  return differ ? "; one gives an object, the other elements: wrap a container in std::span in both calls, or in none"
                : "";
}

/// Returns `all_reduce(1024 x float32, sum) at train.cpp:91`.
[[gnu::cold]] inline std::string describe_call(const layout::site_text& site, std::uint64_t what, std::uint64_t bytes,
                                               std::uint64_t tag, std::optional<double> factor = {}) {
  std::string text(layout::site_bytes, '\0');
  for (std::size_t word = 0; word < layout::site_bytes / 8; ++word) {
    const std::uint64_t value = site.words[word].load(std::memory_order_relaxed);
    std::memcpy(text.data() + word * 8, &value, 8);
  }
  text = text.c_str();
  const auto first = text.find('\n');
  const auto second = text.find('\n', first + 1);
  if (first == std::string::npos || second == std::string::npos) {
    return "an unknown operation";
  }
  const auto content = static_cast<payload>(what & 0xff);
  const auto element = static_cast<element_type>(what >> 8 & 0xff);
  const auto pattern = static_cast<movement>(what >> 28 & 0xf);
  const auto root = static_cast<std::int32_t>(what >> 32);
  const auto op = static_cast<reduce_kind>(what >> 16 & 0xff);
  std::vector<std::string> details;
  if (content == payload::object) {
    details.push_back(detail::concat({"an object of type ", text.substr(second + 1)}));
  } else if (content == payload::buffer || content == payload::uneven) {
    details.push_back(
        element == element_type::none
            ? detail::concat(
                  {bytes, " bytes", second + 1 < text.size() ? detail::concat({" of ", text.substr(second + 1)}) : ""})
            : detail::concat({bytes / size_of(element), " x ", to_string(element)}));
    details.back() += content == payload::uneven ? " in uneven parts" : "";
  }
  if ((what >> 24 & 1) != 0) {
    details.emplace_back(to_string(op));
    if (op == reduce_kind::premultiplied_sum && factor) {
      detail::append(details.back(), {" by ", format_number(*factor)});
    }
  }
  if (pattern == movement::receive) {
    details.push_back(root >= 0 ? detail::concat({"from rank ", root}) : "from any rank");
  } else if (root >= 0) {
    details.push_back(detail::concat({pattern == movement::send ? "to rank " : "root ", root}));
  }
  const std::string name = text.substr(0, first);
  if (tag != 0) {
    const bool is_pass = name.ends_with("distributed_data_parallel");
    details.push_back(tag == any_message_tag ? "any tag" : detail::concat({is_pass ? "backward pass " : "tag ", tag}));
  }
  std::string call = detail::concat({name, '('});
  for (std::size_t index = 0; index < details.size(); ++index) {
    detail::append(call, {index == 0 ? "" : ", ", details[index]});
  }
  return detail::concat({call, ") at ", text.substr(first + 1, second - first - 1)});
}

[[gnu::cold]] inline std::string describe_call(const layout::flag_cell& cell,
                                               const layout::site_text (&sites)[layout::site_count]) {
  return describe_call(sites[cell.site.load(std::memory_order_relaxed) % layout::site_count],
                       cell.what.load(std::memory_order_relaxed), cell.bytes.load(std::memory_order_relaxed),
                       cell.tag.load(std::memory_order_relaxed), cell.factor.load(std::memory_order_relaxed));
}

}  // namespace hfcomm::engines
