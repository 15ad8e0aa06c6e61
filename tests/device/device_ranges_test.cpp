// SPDX-License-Identifier: MIT
#include <cstddef>
#include <cstdlib>
#include <source_location>
#include <string>
#include <type_traits>
#include <vector>

#include "device_ranks.hpp"

namespace {

/// A buffer type like those of users.
class tensor {
 public:
  explicit tensor(std::size_t count) : memory_(count) {}
  [[nodiscard]] float* data() { return memory_.data(); }
  [[nodiscard]] const float* data() const { return memory_.data(); }
  [[nodiscard]] std::size_t size() const { return memory_.size(); }

 private:
  hfcomm::device_buffer<float> memory_;
};

/// A stream type with the interface of cuda::stream_ref.
struct foreign_stream {
  cudaStream_t stream;
  [[nodiscard]] cudaStream_t get() const { return stream; }
};

/// A variable for a scope.
class variable {
 public:
  variable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  variable(const variable&) = delete;
  variable& operator=(const variable&) = delete;
  ~variable() { ::unsetenv(name_); }

 private:
  const char* name_;
};

}  // namespace

template <>
inline constexpr bool hfcomm::enable_device_range<tensor> = true;

namespace {

using namespace hfcomm;
using namespace device_ranks;

static_assert(writable_reducible_device_range<tensor&>);
static_assert(device_range<const tensor&> && !writable_device_range<const tensor&>);
static_assert(!device_range<std::vector<float>> && !std::is_constructible_v<stream_ref, int>);

TEST_CASE("device ranges: a user's buffer and another library's stream may be passed") {
  at_every_size([](const process_group& world, stream_ref stream) {
    const foreign_stream theirs{stream.get()};
    tensor values(3);
    to_device(std::vector<float>{1, 2, 3}, values, stream);
    all_reduce(values, theirs, reduce_op::sum, world);
    const auto ranks = static_cast<float>(world.size());
    CHECK((on_host(values, stream) == std::vector<float>{ranks, 2 * ranks, 3 * ranks}));
    const tensor& constant = values;
    tensor received(3);
    all_reduce(constant, received, theirs, reduce_op::max, world);
    CHECK((on_host(received, stream) == on_host(values, stream)));
  });
}

TEST_CASE("device libraries: a missing library is an error that names the paths tried") {
  const auto here = std::source_location::current();
  {
    const variable named("HFCOMM_NCCL_LIBRARY", "/nowhere/libnccl.so.2");
    const auto problem = error_of<engine_error>([&] { (void)cuda::detail::load_nccl(here); });
    CHECK(says(problem, "/nowhere/libnccl.so.2"));
    CHECK(says(problem, "Set HFCOMM_NCCL_LIBRARY to its path"));
  }
  {
    const variable named("HFCOMM_CUDART_LIBRARY", "/nowhere/libcudart.so");
    const auto problem = error_of<engine_error>([&] { (void)cuda::detail::load_runtime(here); });
    CHECK(says(problem, "/nowhere/libcudart.so"));
  }
  {
    const variable named("HFCOMM_NCCL_LIBRARY", "libm.so.6");  // exists, but is not NCCL
    CHECK(says(error_of<engine_error>([&] { (void)cuda::detail::load_nccl(here); }), "NCCL has no function nccl"));
  }
}

}  // namespace
