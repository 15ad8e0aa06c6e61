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

/// Whole lines of a pipe.
class line_reader {
 public:
  line_reader() = default;
  explicit line_reader(hfcomm::rendezvous::unique_fd pipe) : pipe_(std::move(pipe)) {}

  [[nodiscard]] int descriptor() const noexcept { return pipe_.get(); }

  /// Reads what is there and calls `use` with each line, its end included. Closes the pipe at its end.
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
  }

 private:
  hfcomm::rendezvous::unique_fd pipe_;
  std::string text_;
};

}  // namespace hfrun
