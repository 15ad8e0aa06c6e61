// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <hfcomm/comm.hpp>

#include "benchmark.hpp"

namespace bench {

/// The functions with which a measurement reaches the other ranks, by hfcomm itself.
[[nodiscard]] inline peers peers_of_world() {
  return {hfcomm::rank(), hfcomm::world_size(), [] { hfcomm::barrier(); },
          [](std::span<double> values) { hfcomm::all_reduce(values, hfcomm::reduce_op::max); }};
}

/// hfcomm's operations as span_operations.hpp and compared_operations.hpp ask for them.
struct library {
  template <class T>
  using buffer = std::vector<T>;

  static void barrier() { hfcomm::barrier(); }
  template <class T>
  static void broadcast(std::span<T> data, int root) {
    hfcomm::broadcast(data, root);
  }
  template <class T>
  static void all_gather(std::span<const T> in, std::span<T> out) {
    hfcomm::all_gather(in, out);
  }
  template <class T>
  static void gather(std::span<const T> in, std::span<T> out, int root) {
    hfcomm::gather(in, out, root);
  }
  template <class T>
  static void scatter(std::span<const T> in, std::span<T> out, int root) {
    hfcomm::scatter(in, out, root);
  }
  template <class T>
  static void send(std::span<const T> data, int rank) {
    hfcomm::send(data, rank);
  }
  template <class T>
  static void receive(std::span<T> data, int rank) {
    hfcomm::recv(data, rank);
  }
  template <class T>
  static void reduce(std::span<const T> in, std::span<T> out, int root) {
    hfcomm::reduce(in, out, root);
  }
  template <class T>
  static void reduce_scatter(std::span<const T> in, std::span<T> out) {
    hfcomm::reduce_scatter(in, out);
  }
  template <class T>
  static void all_to_all(std::span<const T> in, std::span<T> out) {
    hfcomm::all_to_all(in, out);
  }
  template <class T>
  static void all_reduce(std::span<const T> in, std::span<T> out) {
    hfcomm::all_reduce(in, out);
  }
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
