// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <hfcomm/engine/host_engine.hpp>
#include <hfcomm/engine/reduction/copy_bytes.hpp>

namespace hfcomm::detail {

/// A receiver that copies one source's bytes to their offsets in a buffer.
class in_place_receiver final : public receiver {
 public:
  explicit in_place_receiver(std::span<std::byte> target) : target_(target) {}

  void receive(int /*source*/, std::span<const std::byte> chunk, std::uint64_t offset,
               std::uint64_t /*total*/) override {
    if (target_.data() + offset != chunk.data()) {
      copy_bytes(target_.data() + offset, chunk.data(), chunk.size());
    }
  }
  std::byte* place_for(int /*source*/, std::uint64_t /*total*/) override { return target_.data(); }

 private:
  std::span<std::byte> target_;
};

/// A receiver that copies each rank's bytes into that rank's part.
class parts_receiver final : public receiver {
 public:
  parts_receiver(std::span<const std::span<std::byte>> parts, int own) : parts_(parts), own_(own) {}

  void receive(int source, std::span<const std::byte> chunk, std::uint64_t offset, std::uint64_t /*total*/) override {
    if (!chunk.empty()) {
      copy_received(parts_[static_cast<std::size_t>(source)].data() + offset, chunk, source, own_);
    }
  }
  std::byte* place_for(int source, std::uint64_t /*total*/) override {
    return parts_[static_cast<std::size_t>(source)].data();
  }

 private:
  std::span<const std::span<std::byte>> parts_;
  int own_;
};

/// A receiver that passes on the contributions of the first ranks, and ignores the others.
class first_ranks_receiver final : public receiver {
 public:
  first_ranks_receiver(receiver& out, int ranks) : out_(out), ranks_(ranks) {}

  void receive(int source, std::span<const std::byte> chunk, std::uint64_t offset, std::uint64_t total) override {
    if (source < ranks_) {
      out_.receive(source, chunk, offset, total);
    }
  }

 private:
  receiver& out_;
  int ranks_;
};

}  // namespace hfcomm::detail
