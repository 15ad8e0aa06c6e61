// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "benchmark.hpp"
#include "pattern.hpp"

namespace bench {

/// The buffers of the span operations of one type: rotated buffers on this rank, each a Buffer made of its number
/// of elements, which converts to a span.
template <class T, class Buffer = std::vector<T>>
class span_buffers {
 public:
  span_buffers(const peers& others, std::size_t in_count, std::size_t out_count)
      : rank_(others.rank), size_(others.size) {
    // Buffers larger than any cache need fewer copies.
    const std::size_t buffers = std::max(in_count, out_count) * sizeof(T) < large ? buffer_count : 2;
    for (std::size_t index = 0; index < buffers; ++index) {
      in_.emplace_back(in_count);
      out_.emplace_back(out_count);
    }
  }

  [[nodiscard]] std::span<T> in(std::uint64_t iteration) { return in_[iteration % in_.size()]; }
  [[nodiscard]] std::span<T> out(std::uint64_t iteration) { return out_[iteration % out_.size()]; }

  void fill(std::uint64_t iteration) { bench::fill(in(iteration), rank_, size_, iteration); }
  /// Checks `in`, which holds the root's elements.
  [[nodiscard]] std::size_t wrong_broadcast(std::uint64_t iteration, int root) {
    return count_wrong<T>(in(iteration), root, size_, iteration);
  }
  /// All ranks' inputs are in `out`.
  [[nodiscard]] std::size_t wrong_collection(std::uint64_t iteration) {
    const auto all = out(iteration);
    const std::size_t part = all.size() / static_cast<std::size_t>(size_);
    std::size_t wrong = 0;
    for (int source = 0; source < size_; ++source) {
      wrong += count_wrong<T>(all.subspan(static_cast<std::size_t>(source) * part, part), source, size_, iteration);
    }
    return wrong;
  }
  [[nodiscard]] std::size_t wrong_sums(std::span<const T> data, std::uint64_t iteration) const {
    return count_wrong_sums<T>(data, size_, iteration);
  }
  /// This rank's part of the sum is in `out`.
  [[nodiscard]] std::size_t wrong_part_of_sums(std::uint64_t iteration) {
    const auto part = out(iteration);
    return count_wrong_sums<T>(part, size_, iteration, static_cast<std::size_t>(rank_) * part.size());
  }
  /// The part that `source` has for this rank is in `out`.
  [[nodiscard]] std::size_t wrong_part(std::uint64_t iteration, int source) {
    const auto part = out(iteration);
    return count_wrong<T>(part, source, size_, iteration, static_cast<std::size_t>(rank_) * part.size());
  }
  /// The whole input of `source` is in `out`.
  [[nodiscard]] std::size_t wrong_message(std::uint64_t iteration, int source) {
    return count_wrong<T>(out(iteration), source, size_, iteration);
  }
  /// The part that each rank has for this one is in `out`.
  [[nodiscard]] std::size_t wrong_all_to_all(std::uint64_t iteration) {
    const auto all = out(iteration);
    const std::size_t part = all.size() / static_cast<std::size_t>(size_);
    std::size_t wrong = 0;
    for (int source = 0; source < size_; ++source) {
      wrong += count_wrong<T>(all.subspan(static_cast<std::size_t>(source) * part, part), source, size_, iteration,
                              static_cast<std::size_t>(rank_) * part);
    }
    return wrong;
  }

 private:
  static constexpr std::size_t large = std::size_t{8} << 20;

  int rank_;
  int size_;
  std::vector<Buffer> in_;
  std::vector<Buffer> out_;
};

/// The operations on spans, of a Library with static functions barrier(), broadcast(span, root), all_gather(in, out),
/// gather(in, out, root), scatter(in, out, root), reduce(in, out, root), all_reduce(in, out),
/// all_reduce_in_place(span), reduce_scatter(in, out), all_to_all(in, out), send(span, rank) and receive(span, rank),
/// as far as they are asked for, and buffers of type Library::buffer<T>.
template <class Library>
class span_operations {
 public:
  /// `others` must outlive the benchmarks made.
  explicit span_operations(const peers& others) : others_(others) {}

  [[nodiscard]] operation barrier() const {
    return {"barrier", false, [](std::size_t) {
              return benchmark{.operation = "barrier",
                               .type = "-",
                               .prepare = [](std::uint64_t) {},
                               .run = [](std::uint64_t) { Library::barrier(); },
                               .count_wrong = [](std::uint64_t) { return std::size_t{0}; }};
            }};
  }

  template <class T>
  [[nodiscard]] operation broadcast(std::string type) const {
    return {"broadcast", true, [&others = others_, type](std::size_t bytes) {
              const std::size_t count = elements<T>(bytes);
              auto data = std::make_shared<buffers<T>>(others, count, 0);
              benchmark one = describe<T>("broadcast", type, count, count);
              one.prepare = [data, sends = others.rank == root](std::uint64_t iteration) {
                if (sends) {
                  data->fill(iteration);
                }
              };
              one.run = [data](std::uint64_t iteration) { Library::broadcast(data->in(iteration), root); };
              one.count_wrong = [data](std::uint64_t iteration) { return data->wrong_broadcast(iteration, root); };
              return one;
            }};
  }

  template <class T>
  [[nodiscard]] operation all_gather(std::string type) const {
    return in_parts<T>(
        "all_gather", std::move(type), parts::one, parts::all,
        [](std::span<const T> in, std::span<T> out) { Library::all_gather(in, out); }, &buffers<T>::wrong_collection);
  }
  template <class T>
  [[nodiscard]] operation gather(std::string type) const {
    return in_parts<T>(
        "gather", std::move(type), parts::one, parts::all_on_root,
        [](std::span<const T> in, std::span<T> out) { Library::gather(in, out, root); }, &buffers<T>::wrong_collection);
  }
  template <class T>
  [[nodiscard]] operation scatter(std::string type) const {
    return in_parts<T>(
        "scatter", std::move(type), parts::all_on_root, parts::one,
        [](std::span<const T> in, std::span<T> out) { Library::scatter(in, out, root); },
        [](buffers<T>& data, std::uint64_t iteration) { return data.wrong_part(iteration, root); });
  }
  template <class T>
  [[nodiscard]] operation reduce_scatter(std::string type) const {
    return in_parts<T>(
        "reduce_scatter", std::move(type), parts::all, parts::one,
        [](std::span<const T> in, std::span<T> out) { Library::reduce_scatter(in, out); },
        &buffers<T>::wrong_part_of_sums);
  }
  template <class T>
  [[nodiscard]] operation all_to_all(std::string type) const {
    return in_parts<T>(
        "all_to_all", std::move(type), parts::all, parts::all,
        [](std::span<const T> in, std::span<T> out) { Library::all_to_all(in, out); }, &buffers<T>::wrong_all_to_all);
  }

  /// A message from rank 0 to the last one, which sends one back.
  template <class T>
  [[nodiscard]] operation messages(std::string type) const {
    return {"messages", true, [&others = others_, type](std::size_t bytes) {
              const std::size_t count = elements<T>(bytes);
              const int last = others.size - 1;
              const bool takes_part = others.rank == 0 || others.rank == last;
              auto data = std::make_shared<buffers<T>>(others, takes_part ? count : 0, takes_part ? count : 0);
              benchmark one = describe<T>("messages", type, count, count);
              one.bus_factor = 2;
              one.prepare = [data](std::uint64_t iteration) { data->fill(iteration); };
              one.run = [data, last, rank = others.rank](std::uint64_t iteration) {
                const std::span<const T> in = data->in(iteration);
                const std::span<T> out = data->out(iteration);
                if (rank == 0) {
                  Library::send(in, last);
                  Library::receive(out, last);
                } else if (rank == last) {
                  Library::receive(out, 0);
                  Library::send(in, 0);
                }
              };
              one.count_wrong = [data, source = last - others.rank](std::uint64_t iteration) {
                return data->wrong_message(iteration, source);
              };
              return one;
            }};
  }
  template <class T>
  [[nodiscard]] operation reduce(std::string type) const {
    return reducing<T>(
        "reduce", std::move(type), [](std::span<const T> in, std::span<T> out) { Library::reduce(in, out, root); },
        false);
  }
  template <class T>
  [[nodiscard]] operation all_reduce(std::string type) const {
    return reducing<T>(
        "all_reduce", std::move(type), [](std::span<const T> in, std::span<T> out) { Library::all_reduce(in, out); },
        true);
  }

  template <class T>
  [[nodiscard]] operation all_reduce_in_place(std::string type) const {
    return {"all_reduce_in_place", true, [&others = others_, type](std::size_t bytes) {
              const std::size_t count = elements<T>(bytes);
              auto data = std::make_shared<buffers<T>>(others, count, 0);
              benchmark one = describe<T>("all_reduce_in_place", type, count, count);
              one.bus_factor = 2 * share_of_others(others);
              one.prepare = [data](std::uint64_t iteration) { data->fill(iteration); };
              one.run = [data](std::uint64_t iteration) { Library::all_reduce_in_place(data->in(iteration)); };
              one.count_wrong = [data](std::uint64_t iteration) {
                return data->wrong_sums(data->in(iteration), iteration);
              };
              return one;
            }};
  }

 private:
  static constexpr int root = 0;

  template <class T>
  using buffers = span_buffers<T, typename Library::template buffer<T>>;

  template <class T>
  [[nodiscard]] static std::size_t elements(std::size_t bytes) {
    return std::max<std::size_t>(bytes / sizeof(T), 1);
  }

  [[nodiscard]] static double share_of_others(const peers& others) {
    return static_cast<double>(others.size - 1) / static_cast<double>(others.size);
  }

  template <class T>
  [[nodiscard]] static benchmark describe(const char* name, const std::string& type, std::size_t total,
                                          std::size_t count) {
    benchmark one;
    one.operation = name;
    one.type = type;
    one.bytes = total * sizeof(T);
    one.count = count;
    return one;
  }

  /// The parts of the ranks that a rank's buffer has.
  enum class parts { one, all, all_on_root };

  [[nodiscard]] static std::size_t count_of(parts has, const peers& others) {
    const auto ranks = static_cast<std::size_t>(others.size);
    return has == parts::one ? 1 : has == parts::all || others.rank == root ? ranks : 0;
  }
  /// An operation on parts of one length, with such inputs and outputs. `run(in, out)` does it, and
  /// `count_wrong(buffers, iteration)` checks the output.
  template <class T, class Run, class CountWrong>
  [[nodiscard]] operation in_parts(const char* name, std::string type, parts in, parts out, Run run,
                                   CountWrong count_wrong) const {
    return {name, true, [&others = others_, name, type, in, out, run, count_wrong](std::size_t bytes) {
              const auto ranks = static_cast<std::size_t>(others.size);
              const std::size_t count = elements<T>(bytes / ranks);
              auto data =
                  std::make_shared<buffers<T>>(others, count * count_of(in, others), count * count_of(out, others));
              benchmark one = describe<T>(name, type, count * ranks, count);
              one.bus_factor = share_of_others(others);
              one.prepare = [data](std::uint64_t iteration) { data->fill(iteration); };
              one.run = [data, run](std::uint64_t iteration) { run(data->in(iteration), data->out(iteration)); };
              one.count_wrong = [data, count_wrong](std::uint64_t iteration) {
                return std::invoke(count_wrong, *data, iteration);
              };
              return one;
            }};
  }

  template <class T, class Run>
  [[nodiscard]] operation reducing(const char* name, std::string type, Run run, bool everywhere) const {
    return {name, true, [&others = others_, name, type, run, everywhere](std::size_t bytes) {
              const std::size_t count = elements<T>(bytes);
              const bool receives = everywhere || others.rank == root;
              auto data = std::make_shared<buffers<T>>(others, count, receives ? count : 0);
              benchmark one = describe<T>(name, type, count, count);
              one.bus_factor = everywhere ? 2 * share_of_others(others) : 1.0;
              one.prepare = [data](std::uint64_t iteration) { data->fill(iteration); };
              one.run = [data, run](std::uint64_t iteration) { run(data->in(iteration), data->out(iteration)); };
              one.count_wrong = [data](std::uint64_t iteration) {
                return data->wrong_sums(data->out(iteration), iteration);
              };
              return one;
            }};
  }

  const peers& others_;
};

}  // namespace bench
