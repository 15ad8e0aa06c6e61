// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "benchmark.hpp"
#include "pattern.hpp"
#include "span_operations.hpp"
#include "worker.hpp"

/// The operations with which bench/compare compares the libraries.
namespace bench {

inline void add(compared_operations& all, const std::string& buffer, const std::string& type, const operation& one) {
  all[one.name + '/' + buffer + '/' + type] = one.make;
}

/// Everything on spans of float.
template <class Library>
void add_spans(compared_operations& all, const peers& others, const std::string& buffer = "ordinary") {
  const span_operations<Library> spans(others);
  const std::string type = "float32";
  add(all, buffer, type, spans.template broadcast<float>(type));
  add(all, buffer, type, spans.template all_gather<float>(type));
  add(all, buffer, type, spans.template gather<float>(type));
  add(all, buffer, type, spans.template scatter<float>(type));
  add(all, buffer, type, spans.template reduce<float>(type));
  add(all, buffer, type, spans.template reduce_scatter<float>(type));
  add(all, buffer, type, spans.template all_to_all<float>(type));
  add(all, buffer, type, spans.template messages<float>(type));
}

/// all_reduce, in place, as gradients are reduced.
template <class Library, class T>
void add_all_reduce(compared_operations& all, const peers& others, const std::string& type,
                    const std::string& buffer = "ordinary") {
  operation one = span_operations<Library>(others).template all_reduce_in_place<T>(type);
  one.name = "all_reduce";
  add(all, buffer, type, one);
}

template <class Library>
void add_barrier(compared_operations& all, const peers& others) {
  add(all, "ordinary", "none", span_operations<Library>(others).barrier());
}

/// The objects: a trainer's metrics, and the results of an evaluation.
using small_map = std::map<std::string, double>;
using small_vectors = std::vector<std::vector<float>>;

namespace sample_objects {

inline void fill(small_map& values, int rank, std::uint64_t iteration) {
  const pattern numbers(rank, iteration);
  std::size_t index = 0;
  for (auto& [key, value] : values) {
    value = numbers.at(index++, 16);
  }
}
inline void fill(small_vectors& values, int rank, std::uint64_t iteration) {
  for (std::size_t index = 0; index < values.size(); ++index) {
    bench::fill(std::span(values[index]), rank, 1, iteration + index);
  }
}
[[nodiscard]] inline small_map make_map() {
  small_map values;
  for (const char* name :
       {"loss", "accuracy", "learning_rate", "gradient_norm", "seconds", "tokens", "step", "epoch"}) {
    values[name] = 0;
  }
  return values;
}
[[nodiscard]] inline small_vectors make_vectors() {
  small_vectors values(2000);
  for (std::size_t index = 0; index < values.size(); ++index) {
    values[index].resize(1 + index % 16);
  }
  return values;
}
/// Keys, characters and numbers, as a C++ programmer would count them.
[[nodiscard]] inline std::size_t size_of(const small_map& values) {
  std::size_t bytes = 0;
  for (const auto& [key, value] : values) {
    bytes += key.size() + sizeof(value);
  }
  return bytes;
}
[[nodiscard]] inline std::size_t size_of(const small_vectors& values) {
  std::size_t bytes = 0;
  for (const auto& one : values) {
    bytes += one.size() * sizeof(float);
  }
  return bytes;
}

}  // namespace sample_objects

/// broadcast, all_gather and gather of T by a Library with static functions broadcast(object), all_gather(object),
/// gather(object). The last two return a vector; gather's is checked on rank 0.
template <class Library, class T>
void add_objects(compared_operations& all, const peers& others, const std::string& type, const T& like,
                 const std::string& buffer = "object") {
  struct state {
    std::array<T, buffer_count> own;
    std::vector<T> received;
    [[nodiscard]] T& at(std::uint64_t iteration) { return own[iteration % buffer_count]; }
  };
  for (const std::string name : {"broadcast", "all_gather", "gather"}) {
    all[name + '/' + buffer + '/' + type] = [name, type, like, rank = others.rank, ranks = others.size](std::size_t) {
      auto data = std::make_shared<state>();
      data->own.fill(like);
      const bool casts = name == "broadcast";
      benchmark one;
      one.operation = name;
      one.type = type;
      one.count = like.size();
      one.bytes = sample_objects::size_of(like) * static_cast<std::size_t>(casts ? 1 : ranks);
      one.prepare = [data, rank, casts](std::uint64_t iteration) {
        if (!casts || rank == 0) {
          sample_objects::fill(data->at(iteration), rank, iteration);
        }
        data->received.clear();
      };
      if (casts) {
        one.run = [data](std::uint64_t iteration) { Library::broadcast(data->at(iteration)); };
      } else if (name == "gather") {
        one.run = [data](std::uint64_t iteration) { data->received = Library::gather(data->at(iteration)); };
      } else {
        one.run = [data](std::uint64_t iteration) { data->received = Library::all_gather(data->at(iteration)); };
      }
      one.count_wrong = [data, rank, ranks, name, casts](std::uint64_t iteration) {
        std::size_t wrong = 0;
        T expected = data->at(iteration);
        if (casts) {
          sample_objects::fill(expected, 0, iteration);
          return std::size_t{data->at(iteration) != expected};
        }
        if (name == "gather" && rank != 0) {
          return wrong;
        }
        for (int source = 0; source < ranks; ++source) {
          sample_objects::fill(expected, source, iteration);
          const auto place = static_cast<std::size_t>(source);
          wrong += place >= data->received.size() || data->received[place] != expected ? 1 : 0;
        }
        return wrong;
      };
      return one;
    };
  }
}

template <class Library>
void add_all_objects(compared_operations& all, const peers& others) {
  add_objects<Library>(all, others, "small_map", sample_objects::make_map());
  add_objects<Library>(all, others, "small_vectors", sample_objects::make_vectors());
}

/// The operations with a root, of spans and of small objects.
template <class Library>
void add_rooted(compared_operations& all, const peers& others, const std::string& buffer) {
  const span_operations<Library> spans(others);
  const std::string type = "float32";
  add(all, buffer, type, spans.template broadcast<float>(type));
  add(all, buffer, type, spans.template gather<float>(type));
  compared_operations objects;
  add_objects<Library>(objects, others, "small_map", sample_objects::make_map(), buffer);
  objects.erase("all_gather/" + buffer + "/small_map");
  all.merge(objects);
}

}  // namespace bench
