// SPDX-License-Identifier: MIT
// Measures how fast one core sums two buffers into a third, for each type and register width: beside memory, this
// bounds the reductions. GB/s of what is read and written; the widths take turns, and the best turn counts.
//   reductions [KiB of each buffer ...]     (16 256 4096)

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <hfcomm/core/element_type.hpp>
#include <hfcomm/engine/reduction/kernel_for.hpp>

namespace {

using namespace hfcomm;
using detail::vector_unit;

double gigabytes_per_second(element_type type, vector_unit unit, std::array<std::vector<std::byte>, 3>& buffers) {
  const std::array<const std::byte*, 2> inputs{buffers[0].data(), buffers[1].data()};
  std::byte* const out = buffers[2].data();
  const std::size_t bytes = buffers[0].size();
  const detail::reduction_kernel kernel = detail::kernel_for(type);
  const auto rounds = std::max<std::size_t>((std::size_t{8} << 20) / bytes, 1);
  const auto start = std::chrono::steady_clock::now();
  for (std::size_t round = 0; round < rounds; ++round) {
    kernel(reduce_kind::sum, inputs, {&out, 1}, bytes / size_of(type), {}, inputs.size(), unit);
  }
  const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - start;
  return 3.0 * static_cast<double>(bytes * rounds) / time.count();
}

}  // namespace

int main(int count, char** arguments) {
  std::vector<std::size_t> sizes;
  for (int index = 1; index < count; ++index) {
    sizes.push_back(std::strtoull(arguments[index], nullptr, 10));
  }
  if (sizes.empty()) {
    sizes = {16, 256, 4096};
  }
  std::vector<vector_unit> units{vector_unit::plain};
  for (const vector_unit unit : {vector_unit::avx2, vector_unit::avx512}) {
    if (unit <= detail::best_vector_unit()) {
      units.push_back(unit);
    }
  }
  std::printf("%-12s %10s", "type", "KiB");
  for (const vector_unit unit : units) {
    std::printf(" %8s", std::string(to_string(unit)).c_str());
  }
  std::puts("   GB/s");
  for (const element_type type :
       {element_type::float32, element_type::float64, element_type::int32, element_type::int64, element_type::bfloat16,
        element_type::float16, element_type::float8_e4m3, element_type::float8_e5m2}) {
    for (const std::size_t kib : sizes) {
      std::array<std::vector<std::byte>, 3> buffers;
      for (auto& buffer : buffers) {
        buffer.assign(std::max<std::size_t>(kib, 1) << 10, std::byte{0x11});
      }
      std::vector<double> best(units.size());
      for (int turn = 0; turn < 10; ++turn) {
        for (std::size_t index = 0; index < units.size(); ++index) {
          best[index] = std::max(best[index], gigabytes_per_second(type, units[index], buffers));
        }
      }
      std::printf("%-12s %10zu", std::string(to_string(type)).c_str(), kib);
      for (const double speed : best) {
        std::printf(" %8.1f", speed);
      }
      std::puts("");
    }
  }
}
