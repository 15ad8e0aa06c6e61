// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

/// Frames of two machines' agents over a link: all of one size, each perhaps followed by a payload.
namespace hfcomm::engines {

enum class frame_kind : std::uint32_t {
  slot_part,       ///< The payload is a part of a rank's slot; `index` is the step.
  cells,           ///< A cell_batch of `value` bytes. The larger parts of the ranks' slots came before.
  site,            ///< The payload is a call site of a rank's operations; `index` is its place.
  failure,         ///< The payload is the text of the failure that the next cell announces.
  question,        ///< Asks for the steps up to `index` of the machine's ranks.
  departed,        ///< A rank has left the group.
  message_site,    ///< The payload is a call site of a rank's messages.
  offer,           ///< A rank offers a message; `index` is the envelope.
  message_part,    ///< The payload is a part of a message of an envelope.
  answer,          ///< A receiver has answered, or has taken bytes; the payload is its reason, if it failed.
  last_message,    ///< A rank's last call of a message, for error texts.
  device_board,    ///< The payload is the state of a rank's device operations.
  rank_left,       ///< A rank of the job, number `rank` there, has left it; belongs to no group.
  goodbye,         ///< The machine's ranks have left the job; belongs to no group. Its last frame.
  goodbye_answer,  ///< Everything that came before a goodbye has been taken. No answer to a goodbye that crosses one.
};

struct frame {
  std::uint64_t group = 0;
  frame_kind kind = frame_kind::cells;
  std::int32_t rank = 0;     ///< In the group; in the job for a frame of no group.
  std::uint64_t index = 0;   ///< A step, a site or an envelope.
  std::uint64_t offset = 0;  ///< In the slot that the payload belongs to.
  std::uint32_t bytes = 0;   ///< Of the payload that follows.
  std::uint32_t value = 0;
  std::array<std::byte, 600> body{};

  template <class T>
  void put(const T& content) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(body));
    std::memcpy(body.data(), &content, sizeof(T));
  }
  template <class T>
  [[nodiscard]] T get() const {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(body));
    T content;
    std::memcpy(&content, body.data(), sizeof(T));
    return content;
  }
};
static_assert(sizeof(frame) == 640 && std::is_trivially_copyable_v<frame>);

/// The channel of frames, and that of their payloads.
inline constexpr std::uint32_t frame_channel = 1;
inline constexpr std::uint32_t payload_channel = 2;

}  // namespace hfcomm::engines
