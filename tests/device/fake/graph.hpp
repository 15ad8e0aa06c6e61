// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <fake/streams.hpp>

namespace fake_cuda {

/// A captured graph, which may be launched any number of times.
class graph {
 public:
  explicit graph(std::shared_ptr<const capture> what) : what_(std::move(what)) {}

  [[nodiscard]] std::size_t size() const noexcept { return what_->nodes.size(); }

  /// Puts all nodes on a stream, in the order in which they were captured.
  void launch(cudaStream_t stream) const {
    const auto all = here();
    const std::scoped_lock lock(all->mutex);
    auto* where = detail::resolve(*all, stream, detail::facts(*all).device);
    if (where == nullptr) {
      throw std::logic_error("there is no such stream");
    }
    const auto status = detail::put(*all, *where, [what = what_]() -> std::function<void()> {
      std::vector<std::function<void()>> pieces;
      for (const auto& make : what->nodes) {
        pieces.push_back(make());
      }
      return [pieces = std::move(pieces)] {
        for (const auto& piece : pieces) {
          piece();
        }
      };
    });
    if (status != cudaSuccess) {
      throw std::logic_error("the graph cannot be launched: CUDA error " + std::to_string(static_cast<int>(status)));
    }
  }

 private:
  std::shared_ptr<const capture> what_;
};

/// Begins a capture: work that is put on the stream is recorded instead of run.
inline void begin_capture(cudaStream_t stream) {
  const auto all = here();
  const std::scoped_lock lock(all->mutex);
  const auto found = all->streams.find(stream);
  if (found == all->streams.end() || found->second->recording.graph != nullptr) {
    throw std::logic_error("this stream cannot begin a capture");
  }
  auto begun = std::make_shared<capture>();
  begun->origin = stream;
  begun->members.insert(stream);
  found->second->recording = {std::move(begun), {}};
}

/// Ends a capture. Throws std::logic_error where it was invalidated, or where another stream of it was not joined
/// again.
inline graph end_capture(cudaStream_t stream) {
  const auto all = here();
  const std::scoped_lock lock(all->mutex);
  const auto found = all->streams.find(stream);
  if (found == all->streams.end() || found->second->recording.graph == nullptr ||
      found->second->recording.graph->origin != stream) {
    throw std::logic_error("no capture began on this stream");
  }
  const auto place = found->second->recording;
  for (auto* member : place.graph->members) {
    if (const auto still = all->streams.find(member); still != all->streams.end()) {
      still->second->recording = {};
    }
  }
  place.graph->ended = true;
  if (place.graph->invalidated) {
    throw std::logic_error("the capture was invalidated");
  }
  if (place.seen.size() != place.graph->nodes.size()) {
    throw std::logic_error("the capture has work on a stream that was not joined again");
  }
  return graph(place.graph);
}

/// Launches a kernel, which runs `work` on the host, in the stream's order.
inline void launch(cudaStream_t stream, std::function<void()> work) {
  const auto all = here();
  const std::scoped_lock lock(all->mutex);
  auto* where = detail::resolve(*all, stream, detail::facts(*all).device);
  if (where == nullptr) {
    throw std::logic_error("there is no such stream");
  }
  const auto status = detail::put(*all, *where, detail::always(std::move(work)));
  if (status != cudaSuccess) {
    throw std::logic_error("the kernel cannot be launched: CUDA error " + std::to_string(static_cast<int>(status)));
  }
}

}  // namespace fake_cuda
