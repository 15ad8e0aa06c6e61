// SPDX-License-Identifier: MIT
// hfcomm's ranks for bench/compare.

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include <hfcomm/comm.hpp>
#include <hfcomm/direct.hpp>

#include "../compared_operations.hpp"
#include "../hfcomm_library.hpp"

namespace {

using bench::library;
using bench::library_on_registered_memory;
using bench::library_on_shared_memory;

/// The rooted operations, in which a rank does not wait for ranks that it receives nothing from.
struct library_leaving_early : library {
  static const hfcomm::process_group& group() {
    static const hfcomm::process_group early = hfcomm::world().with_early_leave();
    return early;
  }
  static void broadcast(std::span<float> data, int root) { hfcomm::broadcast(data, root, group()); }
  static void gather(std::span<const float> in, std::span<float> out, int root) {
    hfcomm::gather(in, out, root, group());
  }
  template <class T>
  static void broadcast(T& object) {
    hfcomm::broadcast(object, 0, group());
  }
  template <class T>
  static std::vector<T> gather(const T& object) {
    return hfcomm::gather(object, 0, group());
  }
};

int run_rank() {
  bench::worker worker(hfcomm::rank(), hfcomm::world_size());
  bench::compared_operations all;
  bench::add_barrier<library>(all, worker.others());
  bench::add_spans<library>(all, worker.others());
  bench::add_all_reduce<library, float>(all, worker.others(), "float32");
  bench::add_all_reduce<library, hfcomm::bfloat16>(all, worker.others(), "bfloat16");
  bench::add_all_reduce<library, hfcomm::float16>(all, worker.others(), "float16");
  bench::add_all_reduce<library_on_shared_memory, float>(all, worker.others(), "float32", "shared");
  bench::add_all_reduce<library_on_shared_memory, hfcomm::bfloat16>(all, worker.others(), "bfloat16", "shared");
  bench::add_all_reduce<library_on_shared_memory, hfcomm::float16>(all, worker.others(), "float16", "shared");
  bench::add_spans<library_on_shared_memory>(all, worker.others(), "shared");
  bench::add_all_reduce<library_on_registered_memory, float>(all, worker.others(), "float32", "registered");
  bench::add_spans<library_on_registered_memory>(all, worker.others(), "registered");
  bench::add_all_objects<library>(all, worker.others());
  bench::add_rooted<library_leaving_early>(all, worker.others(), "early");
  return worker.serve("hfcomm " + std::to_string(HFCOMM_VERSION_MAJOR) + '.' + std::to_string(HFCOMM_VERSION_MINOR) +
                          '.' + std::to_string(HFCOMM_VERSION_PATCH),
                      all);
}

}  // namespace

int main(int count, char** arguments) {
  try {
    return hfcomm::launch(count > 1 ? std::atoi(arguments[1]) : 2, run_rank);
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "hfcomm: %s\n", problem.what());
    return 1;
  }
}
