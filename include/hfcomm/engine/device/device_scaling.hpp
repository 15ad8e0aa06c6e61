// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <source_location>
#include <string>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/element_type.hpp>
#include <hfcomm/core/float8.hpp>
#include <hfcomm/core/stream_ref.hpp>
#include <hfcomm/cuda/runtime_api.hpp>
#include <hfcomm/engine/device/device_plane.hpp>

namespace hfcomm::engines {

/// Multiplies elements on the device, for the premultiplied sum of a group of one. It rounds as hfcomm does on the
/// host.
///
/// These are hfcomm's only kernels of its own. They are PTX, which the driver compiles when they are first needed, so
/// no program needs nvcc for them. They need a CUDA runtime of 12.8 or later.
class device_scaling {
 public:
  /// Returns the instance of this process. Compiled kernels are never unloaded, because they may run to the end.
  static device_scaling& of(const cuda::runtime_api& api) {
    static std::mutex mutex;
    static std::map<const cuda::runtime_api*, std::unique_ptr<device_scaling>> all;
    const std::scoped_lock lock(mutex);
    auto& one = all[&api];
    if (!one) {
      one = std::make_unique<device_scaling>(api);
    }
    return *one;
  }

  explicit device_scaling(const cuda::runtime_api& api) : api_(api) {}
  device_scaling(const device_scaling&) = delete;
  device_scaling& operator=(const device_scaling&) = delete;
  ~device_scaling() = default;

#if CUDART_VERSION >= 12080
  /// Returns whether this runtime can load the kernels.
  [[nodiscard]] bool is_available() const noexcept { return api_.cudaLibraryLoadData != nullptr; }

  /// Puts the multiplication on the stream. `out` may be `in`. Throws CUDA's error.
  void scale(element_type type, double factor, const void* in, void* out, std::size_t count, stream_ref stream,
             const std::source_location& where) {
    if (count == 0) {
      return;
    }
    auto elements = static_cast<std::uint64_t>(count);
    auto narrow = static_cast<float>(factor);
    std::array<std::byte, 256> products{};
    void* last_argument = &narrow;
    if (type == element_type::float64) {
      last_argument = &factor;
    } else if (size_of(type) == 1) {
      // Types of 8 bits have 256 values, so a table of all products replaces the multiplication.
      products =
          type == element_type::float8_e4m3 ? all_products<float8_e4m3>(narrow) : all_products<float8_e5m2>(narrow);
      last_argument = products.data();
    }
    void* arguments[] = {static_cast<void*>(&out), static_cast<void*>(&in), &elements, last_argument};
    constexpr unsigned threads = 256;
    const auto blocks = static_cast<unsigned>(std::min<std::uint64_t>((elements + threads - 1) / threads, 4096));
    api_.check(api_.cudaLaunchKernel(kernel(type, where), dim3(blocks), dim3(threads), arguments, 0, stream.get()),
               "cudaLaunchKernel", where);
  }

  /// Returns the PTX of a kernel for each type: `(out, in, count, factor)`, for types of 8 bits
  /// `(out, in, count, products)`. Each thread takes elements at a stride of the number of threads.
  [[nodiscard]] static std::string source() {
    return detail::concat(
        {".version 6.3\n.target sm_70\n.address_size 64\n",
         kernel("float64", ".param .f64 last", 3, "ld.param.f64 %d2, [last];",
                "ld.global.f64 %d1, [%in];\nmul.rn.f64 %d1, %d1, %d2;", "st.global.f64 [%out], %d1;"),
         kernel("float32", ".param .f32 last", 2, load_factor,
                detail::concat({"ld.global.f32 %f1, [%in];\n", multiply}), "st.global.f32 [%out], %f1;"),
         kernel("float16", ".param .f32 last", 1, load_factor,
                detail::concat(
                    {"ld.global.b16 %h, [%in];\ncvt.f32.f16 %f1, %h;\n", multiply, "\ncvt.rn.f16.f32 %h, %f1;"}),
                "st.global.b16 [%out], %h;"),
         // A bfloat16 is the upper half of a float, rounded to the nearest, ties to even. A NaN stays a quiet NaN.
         kernel(
             "bfloat16", ".param .f32 last", 1, load_factor,
             detail::concat({"ld.global.u16 %r1, [%in];\nshl.b32 %r1, %r1, 16;\nmov.b32 %f1, %r1;\n", multiply,
                             "\nmov.b32 %r1, %f1;\nshr.u32 %r2, %r1, 16;\nand.b32 %r3, %r2, 1;\nor.b32 %r4, %r2, 64;\n"
                             "add.u32 %r1, %r1, %r3;\nadd.u32 %r1, %r1, 32767;\nshr.u32 %r1, %r1, 16;\n"
                             "testp.notanumber.f32 %q, %f1;\nselp.b32 %r1, %r4, %r1, %q;"}),
             "st.global.u16 [%out], %r1;"),
         kernel("float8", ".param .align 8 .b8 last[256]", 0, "mov.b64 %table, last;",
                "ld.global.u8 %r1, [%in];\ncvt.u64.u32 %at, %r1;\nadd.s64 %at, %at, %table;\nld.param.u8 %r1, [%at];",
                "st.global.u8 [%out], %r1;")});
  }

 private:
  /// Returns the products of all values of 8 bits with the factor, rounded once. A NaN has no sign.
  template <class T>
  [[nodiscard]] static std::array<std::byte, 256> all_products(float factor) {
    std::array<std::byte, 256> products{};
    for (std::size_t bits = 0; bits < products.size(); ++bits) {
      const float product = static_cast<float>(T::from_bits(static_cast<std::uint8_t>(bits))) * factor;
      const T rounded = product == product ? T(product) : std::numeric_limits<T>::quiet_NaN();
      products[bits] = static_cast<std::byte>(rounded.bits);
    }
    return products;
  }

  static constexpr const char* load_factor = "ld.param.f32 %f2, [last];";
  static constexpr const char* multiply = "mul.rn.f32 %f1, %f1, %f2;";

  static std::string kernel(const std::string& type, const std::string& parameter, int shift, const std::string& before,
                            const std::string& multiplies, const std::string& stores) {
    return detail::concat({".visible .entry hfcomm_scale_", type,
                           "(.param .u64 to, .param .u64 from, .param .u64 count, ", parameter, R"()
{
.reg .pred %p, %q;
.reg .b16 %h;
.reg .b32 %r<5>, %block, %blocks, %threads, %thread;
.reg .b64 %i, %n, %step, %offset, %to, %from, %in, %out, %table, %at;
.reg .f32 %f<3>;
.reg .f64 %d<3>;
mov.u32 %block, %ctaid.x;
mov.u32 %blocks, %nctaid.x;
mov.u32 %threads, %ntid.x;
mov.u32 %thread, %tid.x;
cvt.u64.u32 %i, %thread;
mul.wide.u32 %step, %block, %threads;
add.u64 %i, %i, %step;
mul.wide.u32 %step, %blocks, %threads;
ld.param.u64 %to, [to];
ld.param.u64 %from, [from];
cvta.to.global.u64 %to, %to;
cvta.to.global.u64 %from, %from;
ld.param.u64 %n, [count];
)",
                           before, R"(
next:
setp.ge.u64 %p, %i, %n;
@%p bra done;
shl.b64 %offset, %i, )",
                           shift, ";\nadd.s64 %in, %from, %offset;\nadd.s64 %out, %to, %offset;\n", multiplies, '\n',
                           stores, R"(
add.u64 %i, %i, %step;
bra next;
done:
ret;
}
)"});
  }

  [[nodiscard]] static std::string name_of(element_type type) {
    return detail::concat({"hfcomm_scale_", size_of(type) == 1 ? "float8" : std::string(to_string(type))});
  }

  [[nodiscard]] const void* kernel(element_type type, const std::source_location& where) {
    const std::scoped_lock lock(mutex_);
    if (library_ == nullptr) {
      const cuda::relaxed_capture relaxed(api_);
      const std::string text = source();
      api_.check(api_.cudaLibraryLoadData(&library_, text.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0),
                 "cudaLibraryLoadData", where);
    }
    cudaKernel_t found = nullptr;
    api_.check(api_.cudaLibraryGetKernel(&found, library_, name_of(type).c_str()), "cudaLibraryGetKernel", where);
    return reinterpret_cast<const void*>(found);
  }

  std::mutex mutex_;
  cudaLibrary_t library_ = nullptr;
#else
  [[nodiscard]] bool is_available() const noexcept { return false; }
  void scale(element_type /*type*/, double /*factor*/, const void* /*in*/, void* /*out*/, std::size_t /*count*/,
             stream_ref /*stream*/, const std::source_location& /*where*/) {}

 private:
#endif
  const cuda::runtime_api& api_;
};

}  // namespace hfcomm::engines
