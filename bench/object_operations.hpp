// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <stdlib.h>

#include <hfcomm/comm.hpp>

#include "benchmark.hpp"
#include "pattern.hpp"

namespace bench {

using metrics = std::map<std::string, double>;

/// How the objects of the benchmarks are filled and checked; overloaded like the operations themselves.
namespace objects {

inline void fill(std::string& text, int rank, int /*ranks*/, std::uint64_t iteration) {
  bench::fill(text, rank, iteration);
}
inline void fill(metrics& values, int rank, int ranks, std::uint64_t iteration) {
  const pattern numbers(rank, iteration);
  std::size_t index = 0;
  for (auto& [key, value] : values) {
    value = numbers.at(index++, pattern_bits<double>(ranks));
  }
}
inline void fill(std::vector<float>& values, int rank, int ranks, std::uint64_t iteration) {
  bench::fill(std::span(values), rank, ranks, iteration);
}

/// How many parts of `received` are not what rank `rank` had; `like` is any rank's object: all have the same shape.
inline std::size_t count_wrong(const std::string& received, const std::string& like, int rank, int /*ranks*/,
                               std::uint64_t iteration) {
  return bench::count_wrong(std::string_view(received), like.size(), rank, iteration);
}
inline std::size_t count_wrong(const metrics& received, metrics like, int rank, int ranks, std::uint64_t iteration) {
  fill(like, rank, ranks, iteration);
  if (received.size() != like.size()) {
    return std::max(received.size(), like.size());
  }
  std::size_t wrong = 0;
  auto expected = like.begin();
  for (const auto& entry : received) {
    wrong += entry != *expected++ ? 1 : 0;
  }
  return wrong;
}

inline metrics make_metrics(std::size_t entries) {
  metrics values;
  for (std::size_t index = 0; index < entries; ++index) {
    values["train/metric_" + std::to_string(index)] = 0;
  }
  return values;
}

/// The characters of the keys and the values, as a C++ programmer would count them.
inline std::size_t size_of(const metrics& values) {
  std::size_t bytes = 0;
  for (const auto& [key, value] : values) {
    bytes += key.size() + sizeof(value);
  }
  return bytes;
}

}  // namespace objects

/// A temporary folder with the files that read_file_dist reads, each with other contents; on the reading rank only.
class sample_files {
 public:
  sample_files(std::size_t bytes, bool writes) {
    if (!writes) {
      return;
    }
    std::string name = (std::filesystem::temp_directory_path() / "hfcomm-bench-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) {
      throw std::runtime_error("cannot make the folder " + name);
    }
    folder_ = name;
    std::string text(bytes, '\0');
    for (std::size_t index = 0; index < buffer_count; ++index) {
      fill(text, 0, index);
      std::ofstream file(path(index), std::ios::binary);
      file.write(text.data(), static_cast<std::streamsize>(text.size()));
      file.close();
      if (!file) {
        throw std::runtime_error("cannot write " + path(index).string());
      }
    }
  }
  sample_files(const sample_files&) = delete;
  sample_files& operator=(const sample_files&) = delete;
  ~sample_files() {
    std::error_code ignored;
    if (!folder_.empty()) {
      std::filesystem::remove_all(folder_, ignored);
    }
  }

  [[nodiscard]] std::filesystem::path path(std::uint64_t iteration) const {
    return folder_ / std::to_string(iteration % buffer_count);
  }

 private:
  std::filesystem::path folder_;
};

/// Operations without spans: objects of any type, dictionaries, seeds, files.
class object_operations {
 public:
  /// The benchmarks made need this object and `others`.
  explicit object_operations(const peers& others) : others_(others) {}

  [[nodiscard]] std::vector<operation> all() const {
    std::vector<operation> list;
    for (const std::string name : {"broadcast_object", "gather_object", "all_gather_object"}) {
      list.push_back({name, true, [this, name](std::size_t bytes) {
                        const int parts = name == "broadcast_object" ? 1 : others_.size;
                        const std::size_t own = std::max<std::size_t>(bytes / static_cast<std::size_t>(parts), 1);
                        return moving(name, "string", own, own, std::string(own, '\0'));
                      }});
      list.push_back({name, false, [this, name](std::size_t) {
                        const auto values = objects::make_metrics(8);
                        return moving(name, "map<string,double>", objects::size_of(values), values.size(), values);
                      }});
    }
    list.push_back(
        {"reduce_object", true, [this](std::size_t bytes) { return object_reduction("reduce_object", bytes, false); }});
    list.push_back({"all_reduce_object", true,
                    [this](std::size_t bytes) { return object_reduction("all_reduce_object", bytes, true); }});
    for (const std::size_t entries : {std::size_t{8}, std::size_t{256}}) {
      list.push_back(
          {"reduce_dict", false, [this, entries](std::size_t) { return dictionary("reduce_dict", entries, false); }});
    }
    for (const std::size_t entries : {std::size_t{8}, std::size_t{256}}) {
      list.push_back({"all_reduce_dict", false,
                      [this, entries](std::size_t) { return dictionary("all_reduce_dict", entries, true); }});
    }
    list.push_back({"shared_random_seed", false, [this](std::size_t) { return seed(); }});
    list.push_back({"read_file_dist", true, [this](std::size_t bytes) { return file(bytes); }});
    return list;
  }

 private:
  static constexpr int root = 0;

  /// This rank's objects, rotated, and what it got.
  template <class T, class Result>
  struct state {
    explicit state(const T& like) { own.fill(like); }
    [[nodiscard]] T& at(std::uint64_t iteration) { return own[iteration % buffer_count]; }

    std::array<T, buffer_count> own;
    Result received{};
  };

  /// broadcast, gather and all_gather of one object.
  template <class T>
  [[nodiscard]] benchmark moving(const std::string& name, const std::string& type, std::size_t bytes, std::size_t count,
                                 const T& like) const {
    auto data = std::make_shared<state<T, std::vector<T>>>(like);
    const int rank = others_.rank;
    const int ranks = others_.size;
    benchmark one;
    one.operation = name;
    one.type = type;
    one.count = count;
    if (name == "broadcast_object") {
      one.bytes = bytes;
      one.prepare = [data, rank, ranks](std::uint64_t iteration) {
        if (rank == root) {
          objects::fill(data->at(iteration), rank, ranks, iteration);
        }
      };
      one.run = [data](std::uint64_t iteration) { hfcomm::broadcast(data->at(iteration), root); };
      one.count_wrong = [data, like, ranks](std::uint64_t iteration) {
        return objects::count_wrong(data->at(iteration), like, root, ranks, iteration);
      };
      return one;
    }
    one.bytes = bytes * static_cast<std::size_t>(ranks);
    one.bus_factor = share_of_others();
    one.prepare = [data, rank, ranks](std::uint64_t iteration) {
      objects::fill(data->at(iteration), rank, ranks, iteration);
      data->received = {};
    };
    const bool everywhere = name == "all_gather_object";
    if (everywhere) {
      one.run = [data](std::uint64_t iteration) { data->received = hfcomm::all_gather(data->at(iteration)); };
    } else {
      one.run = [data](std::uint64_t iteration) { data->received = hfcomm::gather(data->at(iteration), root); };
    }
    one.count_wrong = [data, like, ranks, expected = everywhere || rank == root ? ranks : 0](std::uint64_t iteration) {
      std::size_t wrong = data->received.size() == static_cast<std::size_t>(expected) ? 0 : 1;
      for (int source = 0; source < expected && wrong == 0; ++source) {
        wrong += objects::count_wrong(data->received[static_cast<std::size_t>(source)], like, source, ranks, iteration);
      }
      return wrong;
    };
    return one;
  }

  /// reduce and all_reduce of an object by a callable.
  [[nodiscard]] benchmark object_reduction(const char* name, std::size_t bytes, bool everywhere) const {
    using values = std::vector<float>;
    const values like(std::max<std::size_t>(bytes / sizeof(float), 1));
    auto data = std::make_shared<state<values, std::optional<values>>>(like);
    const int rank = others_.rank;
    const int ranks = others_.size;
    benchmark one;
    one.operation = name;
    one.type = "vector<float32>";
    one.bytes = like.size() * sizeof(float);
    one.count = like.size();
    one.bus_factor = everywhere ? 2 * share_of_others() : 1.0;
    one.prepare = [data, rank, ranks](std::uint64_t iteration) {
      objects::fill(data->at(iteration), rank, ranks, iteration);
      data->received.reset();
    };
    const auto add = [](values left, const values& right) {
      for (std::size_t index = 0; index < left.size(); ++index) {
        left[index] += right[index];
      }
      return left;
    };
    if (everywhere) {
      one.run = [data, add](std::uint64_t iteration) { data->received = hfcomm::all_reduce(data->at(iteration), add); };
    } else {
      one.run = [data, add](std::uint64_t iteration) {
        data->received = hfcomm::reduce(data->at(iteration), root, add);
      };
    }
    one.count_wrong = [data, ranks, count = like.size(),
                       expected = everywhere || rank == root](std::uint64_t iteration) {
      if (data->received.has_value() != expected || (expected && data->received->size() != count)) {
        return count;
      }
      return expected ? count_wrong_sums<float>(*data->received, ranks, iteration) : std::size_t{0};
    };
    return one;
  }

  [[nodiscard]] benchmark dictionary(const char* name, std::size_t entries, bool everywhere) const {
    auto data = std::make_shared<state<metrics, metrics>>(objects::make_metrics(entries));
    const int rank = others_.rank;
    const int ranks = others_.size;
    benchmark one;
    one.operation = name;
    one.type = "map<string,double>";
    one.bytes = objects::size_of(data->at(0));
    one.count = entries;
    one.bus_factor = everywhere ? 2 * share_of_others() : 1.0;
    one.prepare = [data, rank, ranks](std::uint64_t iteration) {
      objects::fill(data->at(iteration), rank, ranks, iteration);
      data->received.clear();
    };
    if (everywhere) {
      one.run = [data](std::uint64_t iteration) {
        data->received = hfcomm::all_reduce_dict(data->at(iteration), hfcomm::reduce_op::sum);
      };
    } else {
      one.run = [data](std::uint64_t iteration) {
        data->received = hfcomm::reduce_dict(data->at(iteration), hfcomm::reduce_op::sum, root);
      };
    }
    one.count_wrong = [data, rank, ranks, reduced = everywhere || rank == root](std::uint64_t iteration) {
      if (!reduced) {
        return objects::count_wrong(data->received, data->at(iteration), rank, ranks, iteration);
      }
      if (data->received.size() != data->at(iteration).size()) {
        return data->at(iteration).size();
      }
      std::vector<double> sums;
      for (const auto& [key, value] : data->received) {
        sums.push_back(value);
      }
      return count_wrong_sums<double>(sums, ranks, iteration);
    };
    return one;
  }

  [[nodiscard]] benchmark seed() const {
    auto drawn = std::make_shared<std::uint64_t>(0);
    benchmark one;
    one.operation = "shared_random_seed";
    one.type = "uint64";
    one.bytes = sizeof(std::uint64_t);
    one.count = 1;
    one.prepare = [](std::uint64_t) {};
    one.run = [drawn](std::uint64_t) { *drawn = hfcomm::shared_random_seed(); };
    one.count_wrong = [drawn](std::uint64_t) {
      const auto all = hfcomm::all_gather(*drawn);
      return std::size_t{all.front() != *drawn};
    };
    return one;
  }

  /// The files are in the page cache, so that the time is that of the ranks' exchange, not of a disk.
  [[nodiscard]] benchmark file(std::size_t bytes) const {
    auto files = std::make_shared<sample_files>(bytes, others_.rank == root);
    auto text = std::make_shared<std::string>();
    benchmark one;
    one.operation = "read_file_dist";
    one.type = "file";
    one.bytes = bytes;
    one.count = bytes;
    one.prepare = [text](std::uint64_t) { *text = {}; };
    one.run = [files, text](std::uint64_t iteration) { *text = hfcomm::read_file_dist(files->path(iteration)); };
    one.count_wrong = [text, bytes](std::uint64_t iteration) {
      return bench::count_wrong(std::string_view(*text), bytes, root, iteration % buffer_count);
    };
    return one;
  }

  [[nodiscard]] double share_of_others() const {
    return static_cast<double>(others_.size - 1) / static_cast<double>(others_.size);
  }

  const peers& others_;
};

}  // namespace bench
