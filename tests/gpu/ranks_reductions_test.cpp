// SPDX-License-Identifier: MIT
// Reductions among several ranks on one GPU, against values that the host calculates. The values are such that every
// order of additions gives the same bits.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "ranks.hpp"

namespace {

using namespace hfcomm;
using gpu::as_index;
using gpu::each_of;
using gpu::require;

/// Numbers from 1 to 4, or to 2 where a byte has to hold the result of four of them.
template <class T>
double number_of(int rank, std::size_t index) {
  const std::size_t spread = sizeof(T) == 1 ? 2 : 4;
  return static_cast<double>((index * 3 + index / 7 + as_index(rank)) % spread + 1);
}

template <class T>
T rounded(double value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<T>(value);
  } else {
    return static_cast<T>(static_cast<float>(value));
  }
}

template <class T>
std::vector<T> numbers_of(int rank, std::size_t count) {
  std::vector<T> values(count);
  for (std::size_t index = 0; index < count; ++index) {
    values[index] = rounded<T>(number_of<T>(rank, index));
  }
  return values;
}

/// This rank's factor of a premultiplied sum. float8_e5m2 has 3 digits.
template <class T>
double factor_of(int rank) {
  return sizeof(T) == 1 ? 0.5 : rank % 2 == 0 ? 0.5 : 2.0;
}

template <class T>
T expected(reduce_kind kind, int ranks, std::size_t index) {
  double result = kind == reduce_kind::product ? 1 : 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const double value = number_of<T>(rank, index);
    switch (kind) {
      case reduce_kind::product: result *= value; break;
      case reduce_kind::min: result = rank == 0 ? value : std::min(result, value); break;
      case reduce_kind::max: result = std::max(result, value); break;
      case reduce_kind::premultiplied_sum: result += factor_of<T>(rank) * value; break;
      default: result += value; break;
    }
  }
  return rounded<T>(kind == reduce_kind::average ? result / ranks : result);
}

template <class T>
std::vector<T> expected(reduce_kind kind, int ranks, std::size_t first, std::size_t count) {
  std::vector<T> values(count);
  for (std::size_t index = 0; index < count; ++index) {
    values[index] = expected<T>(kind, ranks, first + index);
  }
  return values;
}

template <class T>
void check(const std::vector<T>& got, const std::vector<T>& want, const std::string& what) {
  for (std::size_t index = 0; index < want.size(); ++index) {
    if (std::memcmp(&got[index], &want[index], sizeof(T)) != 0) {
      const auto shown = [](T value) { return std::to_string(static_cast<double>(static_cast<float>(value))); };
      throw std::runtime_error(what + ": element " + std::to_string(index) + " of " + std::to_string(want.size()) +
                               " is " + shown(got[index]) + ", not " + shown(want[index]));
    }
  }
}

template <class T>
void check_type(const gpu::stream& stream) {
  const int ranks = world().size();
  const auto n = as_index(ranks);
  const auto me = as_index(world().rank());
  for (const reduce_kind kind : {reduce_kind::sum, reduce_kind::product, reduce_kind::min, reduce_kind::max,
                                 reduce_kind::average, reduce_kind::premultiplied_sum}) {
    if (!hfcomm::detail::valid(kind, element_type_of<T>)) {
      continue;
    }
    const reduce_op op = kind == reduce_kind::premultiplied_sum
                             ? reduce_op::premultiplied_sum(factor_of<T>(world().rank()))
                             : reduce_op(kind);
    const std::string what = std::string(to_string(kind)) + " of " + std::string(to_string(element_type_of<T>));
    for (const std::size_t count : each_of(0, 1, 3, 40'001)) {
      const auto mine = numbers_of<T>(world().rank(), count);
      const auto want = expected<T>(kind, ranks, 0, count);
      const auto in = gpu::on_device(mine, stream);
      device_buffer<T> out(count);
      all_reduce(in, out, stream, op);
      check(gpu::on_host(out, stream), want, "all_reduce, " + what);
      check(gpu::on_host(in, stream), mine, "all_reduce's input, " + what);
      copy(in, out, stream);
      all_reduce(out, stream, op);
      check(gpu::on_host(out, stream), want, "all_reduce in place, " + what);
      const int root = ranks - 1;
      copy(in, out, stream);
      reduce(out, stream, root, op);
      check(gpu::on_host(out, stream), world().rank() == root ? want : mine, "reduce in place, " + what);
    }
    const auto in = gpu::on_device(numbers_of<T>(world().rank(), 1001 * n), stream);
    device_buffer<T> out(1001);
    reduce_scatter(in, out, stream, op);
    check(gpu::on_host(out, stream), expected<T>(kind, ranks, 1001 * me, 1001), "reduce_scatter, " + what);
    device_buffer<T> whole(1001);
    reduce(in.span().first(1001), whole, stream, 0, op);
    if (me == 0) {
      check(gpu::on_host(whole, stream), expected<T>(kind, ranks, 0, 1001), "reduce, " + what);
    }
    gpu::drain(stream);
  }
}

/// All types among two ranks, the first ones among four as well, which take turns on the GPU.
template <class First, class Second, class... More>
void check_types(const char* name) {
  if (gpu::without_ranks(name)) {
    return;
  }
  gpu::run_ranks("types", 2, [](const gpu::stream& stream) {
    check_type<First>(stream);
    check_type<Second>(stream);
    (check_type<More>(stream), ...);
  });
  gpu::run_ranks("types", 4, [](const gpu::stream& stream) {
    check_type<First>(stream);
    check_type<Second>(stream);
  });
}

TEST_CASE("ranks on a GPU: 32-bit and 64-bit types are reduced") {
  check_types<float, std::int64_t, double, std::int32_t, std::uint32_t, std::uint64_t>(
      "ranks on a GPU: 32-bit and 64-bit types are reduced");
}

TEST_CASE("ranks on a GPU: narrow types are reduced") {
  check_types<bfloat16, std::uint8_t, float16, std::int8_t>("ranks on a GPU: narrow types are reduced");
}

TEST_CASE("ranks on a GPU: 8-bit floats are reduced") {
  if (gpu::without_ranks("ranks on a GPU: 8-bit floats are reduced")) {
    return;
  }
  gpu::run_ranks("bytes", 2, [](const gpu::stream& stream) {
    if (!gpu::adds_bytes_of_floats()) {
      gpu::say_skipped("ranks on a GPU: 8-bit floats are reduced", "NCCL needs a device of compute capability 9");
      return;
    }
    check_type<float8_e4m3>(stream);
    check_type<float8_e5m2>(stream);
  });
}

TEST_CASE("reduce_scatter: ranks on a GPU take uneven parts, also in place") {
  if (gpu::without_ranks("reduce_scatter: ranks on a GPU take uneven parts, also in place")) {
    return;
  }
  for (const int ranks : {2, 4}) {
    gpu::run_ranks("uneven", ranks, [](const gpu::stream& stream) {
      const int all = world().size();
      const auto me = as_index(world().rank());
      std::vector<std::size_t> counts;
      std::size_t begin = 0;
      std::size_t total = 0;
      for (std::size_t rank = 0; rank < as_index(all); ++rank) {
        counts.push_back(rank * 1025);  // rank 0 gets nothing
        begin += rank < me ? counts[rank] : 0;
        total += counts[rank];
      }
      auto in = gpu::on_device(numbers_of<double>(world().rank(), total), stream);
      device_buffer<double> out(counts[me]);
      const auto want = expected<double>(reduce_kind::max, all, begin, counts[me]);
      reduce_scatter(in, out, counts, stream, reduce_op::max);
      check(gpu::on_host(out, stream), want, "uneven reduce_scatter");
      const auto own = in.span().subspan(begin, counts[me]);
      reduce_scatter(in, own, counts, stream, reduce_op::max);
      check(gpu::on_host(own, stream), want, "uneven reduce_scatter in place");
      synchronize(stream);
    });
  }
}

TEST_CASE("all_reduce: rounded sums are close, with the same bits on all ranks") {
  if (gpu::without_ranks("all_reduce: rounded sums are close, with the same bits on all ranks")) {
    return;
  }
  for (const int ranks : {2, 4}) {
    gpu::run_ranks("rounded", ranks, [](const gpu::stream& stream) {
      constexpr std::size_t count = 131'073;
      const auto value = [](int rank, std::size_t index) {
        return static_cast<float>(std::sin(static_cast<double>(index) + 0.1 * rank));
      };
      std::vector<float> mine(count);
      for (std::size_t index = 0; index < count; ++index) {
        mine[index] = value(world().rank(), index);
      }
      auto data = gpu::on_device(mine, stream);
      all_reduce(data, stream, reduce_op::average);
      synchronize(stream);
      const auto got = gpu::on_host(data, stream);
      for (std::size_t index = 0; index < count; ++index) {
        double sum = 0;
        for (int rank = 0; rank < world().size(); ++rank) {
          sum += static_cast<double>(value(rank, index));
        }
        const double error = std::abs(static_cast<double>(got[index]) - sum / world().size());
        require(error <= 4.0 * std::numeric_limits<float>::epsilon(), "element " + std::to_string(index) + " is far");
      }
      std::vector<float> everyone(count * as_index(world().size()));
      all_gather(std::span(got), std::span(everyone));  // over the host plane
      for (std::size_t rank = 0; rank < as_index(world().size()); ++rank) {
        require(std::memcmp(&everyone[rank * count], got.data(), count * sizeof(float)) == 0,
                "rank " + std::to_string(rank) + " has other bits");
      }
    });
  }
}

TEST_CASE("all_reduce: ranks on a GPU reduce 1,000,001 elements") {
  if (gpu::without_ranks("all_reduce: ranks on a GPU reduce 1,000,001 elements")) {
    return;
  }
  gpu::run_ranks("million", 2, [](const gpu::stream& stream) {
    constexpr std::size_t count = (1 << 20) + 1;
    auto data = gpu::on_device(numbers_of<float>(world().rank(), count), stream);
    all_reduce(data, stream);
    synchronize(stream);
    check(gpu::on_host(data, stream), expected<float>(reduce_kind::sum, 2, 0, count), "all_reduce");
  });
}

}  // namespace
