// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <hfcomm/engine/reduction/kernel_for.hpp>

#include <fake/runtime_streams.hpp>

/// The CUDA runtime's functions on kernels that are loaded as PTX. The double reads only the kernels' names from the
/// PTX, and has code of its own for each. Only a GPU shows whether the PTX does the same.
namespace fake_cuda::detail {

#if CUDART_VERSION >= 12080

/// The kernels that were loaded as PTX, and the names that were looked up. They last as long as the process, because
/// nobody unloads them.
struct kernel_library {
  std::string text{};
  std::list<std::string> names{};
};
struct kernel_libraries {
  std::mutex mutex{};
  std::map<kernel_library*, std::unique_ptr<kernel_library>> all{};
};
inline kernel_libraries& libraries() {
  static kernel_libraries one;
  return one;
}

inline cudaError_t library_load_data(cudaLibrary_t* library, const void* code, cudaJitOption* /*options*/,
                                     void** /*values*/, unsigned /*count*/, cudaLibraryOption* /*library_options*/,
                                     void** /*library_values*/, unsigned /*library_count*/) {
  return runtime_call("cudaLibraryLoadData", [&](world& /*all*/) {
    if (std::string_view(static_cast<const char*>(code)).substr(0, 8) != ".version") {
      return cudaErrorInvalidValue;
    }
    auto made = std::make_unique<kernel_library>();
    made->text = static_cast<const char*>(code);
    *library = reinterpret_cast<cudaLibrary_t>(made.get());
    const std::scoped_lock lock(libraries().mutex);
    libraries().all[made.get()] = std::move(made);
    return cudaSuccess;
  });
}

inline cudaError_t library_get_kernel(cudaKernel_t* kernel, cudaLibrary_t library, const char* name) {
  return runtime_call("cudaLibraryGetKernel", [&](world& /*all*/) {
    const std::scoped_lock lock(libraries().mutex);
    const auto found = libraries().all.find(reinterpret_cast<kernel_library*>(library));
    if (found == libraries().all.end() ||
        found->second->text.find(".entry " + std::string(name) + '(') == std::string::npos) {
      return cudaErrorInvalidResourceHandle;
    }
    auto& names = found->second->names;
    auto place = std::find(names.begin(), names.end(), name);
    place = place == names.end() ? names.insert(place, name) : place;
    *kernel = reinterpret_cast<cudaKernel_t>(&*place);
    return cudaSuccess;
  });
}

/// Returns the work of `hfcomm_scale_TYPE(out, in, count, factor or products)`.
inline std::function<void()> scaling(const std::string& type, void** arguments) {
  auto* const out = *static_cast<std::byte**>(arguments[0]);
  const auto* const in = *static_cast<const std::byte**>(arguments[1]);
  const auto count = *static_cast<const std::uint64_t*>(arguments[2]);
  if (type == "float8") {
    std::array<std::byte, 256> products;
    std::memcpy(products.data(), arguments[3], products.size());
    return [out, in, count, products] {
      for (std::uint64_t index = 0; index < count; ++index) {
        out[index] = products[std::to_integer<std::size_t>(in[index])];
      }
    };
  }
  for (const auto element : {hfcomm::element_type::float16, hfcomm::element_type::bfloat16,
                             hfcomm::element_type::float32, hfcomm::element_type::float64}) {
    if (hfcomm::to_string(element) == type) {
      float narrow{};
      double factor{};
      std::memcpy(&narrow, arguments[3], sizeof(narrow));
      if (element == hfcomm::element_type::float64) {
        std::memcpy(&factor, arguments[3], sizeof(factor));
      } else {
        factor = static_cast<double>(narrow);
      }
      return [out, in, count, element, factor] {
        hfcomm::detail::run_kernel(hfcomm::detail::kernel_for(element), hfcomm::reduce_kind::premultiplied_sum,
                                   {&in, 1}, out, count, {&factor, 1});
      };
    }
  }
  return {};
}

inline cudaError_t launch_kernel(const void* kernel, dim3 blocks, dim3 threads, void** arguments,
                                 std::size_t /*shared_bytes*/, cudaStream_t handle) {
  return stream_call("cudaLaunchKernel", handle, [&](world& all, CUstream_st& stream) {
    constexpr std::string_view known = "hfcomm_scale_";
    const std::scoped_lock lock(libraries().mutex);
    for (const auto& [address, library] : libraries().all) {
      for (const auto& name : library->names) {
        if (&name != kernel || name.substr(0, known.size()) != known) {
          continue;
        }
        auto work = scaling(name.substr(known.size()), arguments);
        const bool fits = blocks.x > 0 && threads.x > 0 && threads.x <= 1024;
        return work && fits ? put(all, stream, always(std::move(work))) : cudaErrorInvalidValue;
      }
    }
    return cudaErrorInvalidResourceHandle;
  });
}

#endif

}  // namespace fake_cuda::detail
