// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cerrno>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include <unistd.h>

#include <hfcomm/machine/shared_segment.hpp>

namespace hfrun {

/// A reader of the lines of a pipe. It gives a line of more than 64 KiB in pieces.
class line_reader {
 public:
  line_reader() = default;
  explicit line_reader(hfcomm::rendezvous::unique_fd pipe) : pipe_(std::move(pipe)) {}

  [[nodiscard]] int descriptor() const noexcept { return pipe_.get(); }

  /// Reads what is there and calls `use` with each line, its end included. Closes the pipe at its end. A piece of a
  /// very long line has no end. Its last 4 KiB are kept, so that what begins in them and has an end is in one piece.
  template <class Use>
  void read(const Use& use) {
    std::array<char, 16384> piece{};
    const ::ssize_t count = ::read(pipe_.get(), piece.data(), piece.size());
    if (count > 0) {
      text_.append(piece.data(), static_cast<std::size_t>(count));
    } else if (count == 0 || (errno != EINTR && errno != EAGAIN)) {
      pipe_.close();
      text_ += text_.empty() ? "" : "\n";
    }
    std::size_t begin = 0;
    for (std::size_t end = 0; (end = text_.find_first_of("\n\r", begin)) != std::string::npos; begin = end + 1) {
      use(std::string_view(text_).substr(begin, end + 1 - begin));
    }
    text_.erase(0, begin);
    if (text_.size() > longest) {
      use(std::string_view(text_).substr(0, text_.size() - kept));
      text_.erase(0, text_.size() - kept);
    }
  }

 private:
  static constexpr std::size_t longest = std::size_t{1} << 16;
  static constexpr std::size_t kept = std::size_t{1} << 12;

  hfcomm::rendezvous::unique_fd pipe_;
  std::string text_;
};

}  // namespace hfrun
