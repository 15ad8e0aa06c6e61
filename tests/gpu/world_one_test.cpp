// SPDX-License-Identifier: MIT
// A group of one on a GPU: the output of every operation is its input, bit by bit, and nothing else is written.
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>

#include "device.hpp"

namespace {

using namespace hfcomm;
using gpu::each_of;
using gpu::error_of;

/// An element type that reductions do not have.
struct charged {
  std::array<float, 3> place;
  std::int16_t charge;
};

/// Elements behind an output that no operation may write to.
constexpr std::size_t guard = 8;

/// An input and an output of one type and count, and checks of operations on them.
template <class T>
class checked_buffers {
 public:
  checked_buffers(std::size_t count, const gpu::stream& stream)
      : count_(count), stream_(stream), in_(count), out_(count + guard) {}

  [[nodiscard]] device_span<const T> in() const { return in_.span(); }
  [[nodiscard]] device_span<T> out() { return out_.span().first(count_); }

  /// Checks that `operation(in, out)` copies the input to the output.
  template <class Operation>
  void out_of_place(const char* name, Operation operation) {
    gpu::fill(stream_.get(), in_.data(), count_ * sizeof(T), input_seed);
    gpu::fill(stream_.get(), out_.data(), out_.size() * sizeof(T), other_seed);
    operation(in(), out());
    INFO(name, " of ", count_, " elements of ", sizeof(T), " bytes");
    CHECK(gpu::mismatches(stream_.get(), in_.data(), count_ * sizeof(T), input_seed) == 0);
    check_output();
  }
  /// Checks that `operation(data)` changes nothing.
  template <class Operation>
  void in_place(const char* name, Operation operation) {
    gpu::fill(stream_.get(), out_.data(), out_.size() * sizeof(T), other_seed);
    gpu::fill(stream_.get(), out_.data(), count_ * sizeof(T), input_seed);
    operation(out());
    INFO(name, " in place of ", count_, " elements of ", sizeof(T), " bytes");
    check_output();
  }

 private:
  static constexpr std::uint64_t input_seed = 1;
  static constexpr std::uint64_t other_seed = 2;

  void check_output() const {
    CHECK(gpu::mismatches(stream_.get(), out_.data(), count_ * sizeof(T), input_seed) == 0);
    CHECK(gpu::mismatches(stream_.get(), out_.data() + count_, guard * sizeof(T), other_seed, count_ * sizeof(T)) == 0);
  }

  std::size_t count_;
  const gpu::stream& stream_;
  device_buffer<T> in_;
  device_buffer<T> out_;
};

constexpr auto counts = each_of(0, 1, 3, 131'073, (1 << 20) + 1);

template <class T>
void check_moves() {
  const process_group group;
  const gpu::stream stream;
  for (const std::size_t count : counts) {
    checked_buffers<T> test(count, stream);
    const std::array<std::size_t, 1> all{count};
    test.in_place("broadcast", [&](auto data) { broadcast(data, stream, 0, group); });
    test.out_of_place("all_gather", [&](auto in, auto out) { all_gather(in, out, stream, group); });
    test.in_place("all_gather", [&](auto data) { all_gather(data, data, stream, group); });
    test.out_of_place("uneven all_gather", [&](auto in, auto out) { all_gather(in, out, all, stream, group); });
    test.out_of_place("gather", [&](auto in, auto out) { gather(in, out, stream, 0, group); });
    test.in_place("gather", [&](auto data) { gather(data, data, stream, 0, group); });
    test.out_of_place("uneven gather", [&](auto in, auto out) { gather(in, out, all, stream, 0, group); });
    test.out_of_place("scatter", [&](auto in, auto out) { scatter(in, out, stream, 0, group); });
    test.in_place("scatter", [&](auto data) { scatter(data, data, stream, 0, group); });
    test.out_of_place("uneven scatter", [&](auto in, auto out) { scatter(in, out, all, stream, 0, group); });
    test.out_of_place("all_to_all", [&](auto in, auto out) { all_to_all(in, out, stream, group); });
    test.out_of_place("uneven all_to_all", [&](auto in, auto out) { all_to_all(in, all, out, all, stream, group); });
    test.out_of_place("send_receive", [&](auto in, auto out) { send_receive(in, 0, out, 0, stream, group); });
  }
}

template <class T>
void check_reductions() {
  const process_group group;
  const gpu::stream stream;
  for (const std::size_t count : counts) {
    checked_buffers<T> test(count, stream);
    const std::array<std::size_t, 1> all{count};
    for (const reduce_kind kind : {reduce_kind::sum, reduce_kind::product, reduce_kind::min, reduce_kind::max,
                                   reduce_kind::average, reduce_kind::premultiplied_sum}) {
      if (!hfcomm::detail::valid(kind, element_type_of<T>)) {
        continue;
      }
      INFO(std::string(to_string(kind)), " of ", std::string(to_string(element_type_of<T>)));
      const reduce_op op(kind);
      test.out_of_place("all_reduce", [&](auto in, auto out) { all_reduce(in, out, stream, op, group); });
      test.in_place("all_reduce", [&](auto data) { all_reduce(data, stream, op, group); });
      test.out_of_place("reduce", [&](auto in, auto out) { reduce(in, out, stream, 0, op, group); });
      test.in_place("reduce", [&](auto data) { reduce(data, stream, 0, op, group); });
      test.out_of_place("reduce_scatter", [&](auto in, auto out) { reduce_scatter(in, out, stream, op, group); });
      test.in_place("reduce_scatter", [&](auto data) { reduce_scatter(data, data, stream, op, group); });
      test.out_of_place("uneven reduce_scatter",
                        [&](auto in, auto out) { reduce_scatter(in, out, all, stream, op, group); });
    }
  }
}

TEST_CASE("group of one: it moves every type") {
  const auto device = gpu::open();
  check_moves<char>();
  check_moves<std::int16_t>();
  check_moves<float8_e4m3>();
  check_moves<bfloat16>();
  check_moves<float>();
  check_moves<double>();
  check_moves<charged>();
}

TEST_CASE("group of one: registered_buffer works") {
  const auto device = gpu::open();
  const gpu::stream stream;
  for (const std::size_t count : {0UL, 1UL, 131'073UL}) {
    registered_buffer<float> data(count);
    const std::vector<float> values(count, 2.5F);
    copy(values, data, stream);
    all_reduce(data, stream, reduce_op::average);
    CHECK((gpu::on_host(data, stream) == values));
  }
}

TEST_CASE("group of one: it reduces integers") {
  const auto device = gpu::open();
  check_reductions<std::int8_t>();
  check_reductions<std::uint8_t>();
  check_reductions<std::int32_t>();
  check_reductions<std::uint32_t>();
  check_reductions<std::int64_t>();
  check_reductions<std::uint64_t>();
}

TEST_CASE("group of one: it reduces floats, NaNs included") {
  const auto device = gpu::open();
  check_reductions<float16>();
  check_reductions<bfloat16>();
  check_reductions<float8_e4m3>();
  check_reductions<float8_e5m2>();
  check_reductions<float>();
  check_reductions<double>();
}

TEST_CASE("group of one: it reduces CUDA's own narrow floats") {
  const auto device = gpu::open();
  check_reductions<__half>();
  check_reductions<__nv_bfloat16>();
  check_reductions<__nv_fp8_e4m3>();
  check_reductions<__nv_fp8_e5m2>();
}

/// Every bit pattern of 16 bits or less; of wider types the same patterns, above others.
template <class T>
std::vector<T> patterns(std::size_t count) {
  std::vector<T> values(count);
  std::uint64_t bits = 0;
  for (T& value : values) {
    const std::uint64_t word = sizeof(T) <= 2 ? bits : (bits << (8 * sizeof(T) - 16)) ^ (bits * 0x9E3779B9U);
    std::memcpy(static_cast<void*>(&value), &word, sizeof(T));
    ++bits;
  }
  return values;
}

/// The device's products against those of the host; a NaN may be another one.
template <class T>
void check_premultiplied() {
  const process_group group;
  const gpu::stream stream;
  INFO(std::string(to_string(element_type_of<T>)));
  for (const std::size_t count : counts) {
    for (const double factor : {0.1, -3.0, 1e-20, 1.5e300}) {
      const auto values = patterns<T>(count);
      auto expected = values;
      all_reduce(std::span(expected), reduce_op::premultiplied_sum(factor), group);
      const auto differs = [&](const std::vector<T>& found) {
        std::size_t wrong = 0;
        for (std::size_t index = 0; index < count; ++index) {
          const auto number = static_cast<double>(found[index]);
          const bool both_nan = std::isnan(number) && std::isnan(static_cast<double>(expected[index]));
          wrong += both_nan || std::memcmp(&found[index], &expected[index], sizeof(T)) == 0 ? 0 : 1;
        }
        return wrong;
      };
      auto in = gpu::on_device(values, stream);
      device_buffer<T> out(count);
      all_reduce(in, out, stream, reduce_op::premultiplied_sum(factor), group);
      CHECK(differs(gpu::on_host(out, stream)) == 0);
      all_reduce(in, stream, reduce_op::premultiplied_sum(factor), group);
      CHECK(differs(gpu::on_host(in, stream)) == 0);
    }
  }
}

TEST_CASE("group of one: premultiplied sums have the host's bits") {
  const auto device = gpu::open();
  check_premultiplied<float16>();
  check_premultiplied<bfloat16>();
  check_premultiplied<float8_e4m3>();
  check_premultiplied<float8_e5m2>();
  check_premultiplied<float>();
  check_premultiplied<double>();
}

TEST_CASE("group of one: memory that is not the device's is a usage_error") {
  const auto device = gpu::open();
  const process_group group;
  const gpu::stream stream;
  device_buffer<float> data(64);
  std::vector<float> ordinary(64, 1.0F);
  pinned_buffer<float> pinned(64);
  for (const device_span<float> wrong :
       {device_span<float>(ordinary.data(), 64), device_span<float>(pinned.data(), 64)}) {
    CHECK_THROWS_AS(all_reduce(wrong, stream, reduce_op::sum, group), usage_error);
    CHECK_THROWS_AS(all_gather(data, wrong, stream, group), usage_error);
    CHECK_THROWS_AS(broadcast(wrong, stream, 0, group), usage_error);
  }
  // Overlapping and too long:
  CHECK_THROWS_AS(all_reduce(data.span().first(32), data.span().subspan(1, 32), stream, reduce_op::sum, group),
                  usage_error);
  CHECK_THROWS_AS(all_reduce(data.span().first(32), data.span().subspan(32, 31), stream, reduce_op::sum, group),
                  usage_error);
  all_reduce(data, stream, reduce_op::sum, group);
  synchronize(stream, group);
}

TEST_CASE("group of one: buffers may have more than 4 GiB") {
  const auto device = gpu::open();
  constexpr std::size_t count = (std::size_t{1} << 32U) + 17;
  if (gpu::free_memory() < 2 * count + (std::size_t{1} << 30U)) {
    gpu::say_skipped("group of one: buffers may have more than 4 GiB", "the device has not 9 GiB left");
    return;
  }
  const process_group group;
  const gpu::stream stream;
  checked_buffers<std::uint8_t> test(count, stream);
  test.out_of_place("all_reduce", [&](auto in, auto out) { all_reduce(in, out, stream, reduce_op::max, group); });
  test.in_place("all_reduce", [&](auto data) { all_reduce(data, stream, reduce_op::sum, group); });
  test.out_of_place("all_gather", [&](auto in, auto out) { all_gather(in, out, stream, group); });
  test.out_of_place("all_to_all", [&](auto in, auto out) { all_to_all(in, out, stream, group); });
  test.out_of_place("send_receive", [&](auto in, auto out) { send_receive(in, 0, out, 0, stream, group); });
}

}  // namespace
