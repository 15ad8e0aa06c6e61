// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <hfcomm/comm.hpp>

namespace bench {

/// hfcomm's operations as span_operations.hpp and compared_operations.hpp ask for them.
struct library {
  template <class T>
  using buffer = std::vector<T>;

  static void barrier() { hfcomm::barrier(); }
  static void broadcast(std::span<float> data, int root) { hfcomm::broadcast(data, root); }
  static void all_gather(std::span<const float> in, std::span<float> out) { hfcomm::all_gather(in, out); }
  static void gather(std::span<const float> in, std::span<float> out, int root) { hfcomm::gather(in, out, root); }
  static void reduce_scatter(std::span<const float> in, std::span<float> out) { hfcomm::reduce_scatter(in, out); }
  static void all_to_all(std::span<const float> in, std::span<float> out) { hfcomm::all_to_all(in, out); }
  template <class T>
  static void all_reduce_in_place(std::span<T> data) {
    hfcomm::all_reduce(data);
  }

  template <class T>
  static void broadcast(T& object) {
    hfcomm::broadcast(object);
  }
  template <class T>
  static std::vector<T> all_gather(const T& object) {
    return hfcomm::all_gather(object);
  }
  template <class T>
  static std::vector<T> gather(const T& object) {
    return hfcomm::gather(object);
  }
};

/// The same as `library`, on memory that the ranks share.
struct library_on_shared_memory : library {
  template <class T>
  struct buffer : hfcomm::shared_buffer<T> {
    explicit buffer(std::size_t count) : hfcomm::shared_buffer<T>(hfcomm::world().allocate<T>(count)) {}
  };
};

/// The same, on ordinary memory that `share` has put into memory that the ranks share.
struct library_on_registered_memory : library {
  template <class T>
  struct buffer : std::vector<T> {
    explicit buffer(std::size_t count)
        : std::vector<T>(count), shared(hfcomm::share(static_cast<std::vector<T>&>(*this))) {}

    hfcomm::shared_range shared;
  };
};

}  // namespace bench
