// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

/// Objects within each other.
struct chain {
  std::unique_ptr<chain> next;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(next);
  }
};

inline chain chain_of(std::size_t depth) {
  chain result;
  for (std::size_t more = 1; more < depth; ++more) {
    chain longer;
    longer.next = std::make_unique<chain>(std::move(result));
    result = std::move(longer);
  }
  return result;
}

inline std::size_t depth_of(const chain& first) {
  std::size_t depth = 1;
  for (const chain* link = first.next.get(); link != nullptr; link = link->next.get()) {
    ++depth;
  }
  return depth;
}
