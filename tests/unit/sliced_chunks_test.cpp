// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <cstddef>

#include <hfcomm/engine/shared_memory/operations.hpp>

namespace {

TEST_CASE("sliced chunks: every element is in one slice, and no chunk is larger than it may be") {
  for (std::size_t width = 1; width <= 16; width *= 2) {
    for (const int slices : {1, 2, 3, 7, 16, 100, 511, 513, 1023, 1024}) {
      for (const std::size_t most : {std::size_t{1} << 17, std::size_t{1} << 20}) {
        for (const std::size_t elements : {std::size_t{1}, std::size_t{1000}, std::size_t{300'007}, most / width}) {
          CAPTURE(width);
          CAPTURE(slices);
          CAPTURE(elements);
          const hfcomm::engines::sliced_chunks chunks(elements * width, width, slices, most);
          std::size_t next = 0;
          bool fits = true;
          for (std::size_t chunk = 0; chunk < chunks.count(); ++chunk) {
            for (int slice = 0; slice < slices; ++slice) {
              const auto [begin, end] = chunks.elements(chunk, slice);
              fits = fits && begin == next && chunks.place(slice) + (end - begin) * width <= most;
              next = end;
            }
          }
          CHECK(fits);
          CHECK(next == elements);
        }
      }
    }
  }
}

}  // namespace
