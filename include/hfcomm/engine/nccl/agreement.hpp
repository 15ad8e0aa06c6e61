// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/cuda/nccl_api.hpp>
#include <hfcomm/cuda/runtime_api.hpp>
#include <hfcomm/engine/call_text.hpp>
#include <hfcomm/engine/host_engine.hpp>
#include <hfcomm/engine/nccl/nccl_translation.hpp>
#include <hfcomm/engine/table_receiver.hpp>

namespace hfcomm::engines {

/// Agreement of a group's ranks, over the host plane, about an NCCL communicator that they make: whether they can make
/// it, and whether they have made it. Every function is collective, and all ranks throw what one rank throws.
class nccl_agreement {
 public:
  /// All arguments must outlive this. `failure` begins the error text of `run_on_all`.
  nccl_agreement(host_engine& host, const operation& call,
                 const char* failure = "the communicator could not be made") noexcept
      : host_(host), call_(call), failure_(failure) {}

  [[nodiscard]] error_context context() const { return {host_.rank(), host_.size(), call_name(call_), 0, call_.where}; }

  /// Returns whether all ranks have a communicator already. Throws where they cannot make one together.
  [[nodiscard]] bool compare_setups(const cuda::runtime_api& cuda, const cuda::nccl_api& nccl, int device,
                                    bool is_connected, const std::string& problem) const {
    rank_setup mine;
    mine.is_connected = is_connected;
    write(mine.problem, problem);
    if (problem.empty()) {
      try {
        write(mine.gpu, gpu_identity(cuda, device, call_.where));
      } catch (const error& failure) {
        write(mine.problem, detail::concat({failure.operation(), ": ", failure.detail()}));
      }
      if (const ncclResult_t asked = nccl.ncclGetVersion(&mine.version); asked != ncclSuccess) {
        write(mine.problem, detail::concat({"ncclGetVersion: ", nccl_text(nccl, asked)}));
      }
    }
    const auto all = exchange(mine, call_.timeout);
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      const rank_setup& theirs = all[rank];
      if (theirs.problem.front() != '\0') {
        detail::throw_error<engine_error>(context(), {"rank ", rank, " has no device plane: ", theirs.problem.data()});
      }
      if (theirs.version != all.front().version) {
        detail::throw_error<mismatch_error>(
            context(),
            {"rank 0 has version ", all.front().version, " of NCCL, rank ", rank, " version ", theirs.version}, 0,
            static_cast<int>(rank));
      }
      for (std::size_t other = 0; other < rank && !may_share_gpus(); ++other) {
        if (all[other].gpu == theirs.gpu) {
          detail::throw_error<usage_error>(context(),
                                           {"ranks ", other, " and ", rank, " use the same GPU (", theirs.gpu.data(),
                                            "); give each its own: cudaSetDevice(hfcomm::local_rank())"});
        }
      }
    }
    return std::all_of(all.begin(), all.end(), [](const rank_setup& theirs) { return theirs.is_connected; });
  }

  /// Returns rank 0's unique id on all ranks. To be called just before the id is used: NCCL starts a thread for each
  /// id, which waits for the ranks.
  [[nodiscard]] ncclUniqueId share_id(const cuda::nccl_api& nccl) const {
    shared_id mine;
    if (host_.rank() == 0) {
      if (const ncclResult_t made = nccl.ncclGetUniqueId(&mine.id); made != ncclSuccess) {
        write(mine.problem, nccl_text(nccl, made));
      }
    }
    const auto all = exchange(mine, call_.timeout);
    if (all.front().problem.front() != '\0') {
      detail::throw_error<engine_error>(context(),
                                        {"rank 0 has no device plane: ncclGetUniqueId: ", all.front().problem.data()});
    }
    return all.front().id;
  }

  /// Runs `work` and waits for the other ranks' results. Where it failed on one rank, runs `undo` and throws, on all.
  template <class Undo, class Work>
  void run_on_all(Undo&& undo, Work&& work) const {
    try {
      outcome mine;
      try {
        work();
      } catch (const peer_error&) {
        throw;  // a lost rank, of which all ranks are told
      } catch (const timeout_error& failure) {
        mine.result = outcome::timed_out;
        write(mine.problem, failure.detail());
      } catch (...) {
        mine.result = outcome::failed;
        write(mine.problem, detail::current_exception_detail());
      }
      agree(mine);
    } catch (...) {
      undo();
      throw;
    }
  }

 private:
  using problem_text = std::array<char, 512>;
  /// A rank's means to make a communicator.
  struct rank_setup {
    problem_text problem{};
    std::array<char, 128> gpu{};  // the same on two ranks that use the same GPU
    int version = 0;
    bool is_connected = false;
  };
  /// The unique id that rank 0 has from NCCL, or why it has none.
  struct shared_id {
    problem_text problem{};
    ncclUniqueId id{};
  };
  /// A rank's result, the worst one last. Where one rank fails, the others wait for it and time out, so the failure is
  /// the one to report.
  struct outcome {
    enum : int { succeeded, timed_out, failed } result = succeeded;
    problem_text problem{};
  };

  template <std::size_t n>
  static void write(std::array<char, n>& text, std::string_view value) {
    value.copy(text.data(), std::min(value.size(), n - 1));
  }

  /// Returns every rank's `mine`, in rank order.
  template <class T>
  [[nodiscard]] std::vector<T> exchange(const T& mine, std::chrono::nanoseconds timeout) const {
    std::vector<T> all(static_cast<std::size_t>(host_.size()));
    detail::table_receiver table(std::as_writable_bytes(std::span(all)), host_.rank());
    const operation call{.name = "connect_device",
                         .pattern = movement::to_all,
                         .content = payload::buffer,
                         .bytes = sizeof(T),
                         .where = call_.where,
                         .timeout = timeout};
    host_.exchange(call, std::as_bytes(std::span(&mine, 1)), table);
    return all;
  }

  /// Returns a text that is the same on two ranks only where they share a GPU: the machine and the PCI bus. NCCL also
  /// refuses a shared GPU, but its error names neither rank.
  static std::string gpu_identity(const cuda::runtime_api& cuda, int device, const std::source_location& where) {
    std::string machine;
    if (const char* named = std::getenv("NCCL_HOSTID"); named != nullptr) {
      machine = named;  // NCCL tells machines apart by it, too
    } else {
      std::ifstream("/proc/sys/kernel/random/boot_id") >> machine;
    }
    std::array<char, 32> bus{};
    cuda.check(cuda.cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), device), "cudaDeviceGetPCIBusId",
               where);
    return detail::concat({machine, ' ', bus.data()});
  }

  /// Returns whether several ranks may use one GPU, which NCCL allows since 2.30 where this variable is set.
  static bool may_share_gpus() noexcept {
    const char* allowed = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
    return allowed != nullptr && std::string_view(allowed) == "1";
  }

  void agree(const outcome& mine) const {
    // A rank that waited for one that failed comes a whole deadline later.
    const auto all = exchange(mine, 2 * call_.timeout + std::chrono::seconds(1) * (call_.timeout.count() > 0));
    const auto worst = std::max_element(all.begin(), all.end(),
                                        [](const auto& one, const auto& other) { return one.result < other.result; });
    if (worst->result != outcome::succeeded) {
      std::vector<int> ranks;  // that failed; where none failed, those that timed out
      for (std::size_t rank = 0; rank < all.size(); ++rank) {
        if (all[rank].result == worst->result) {
          ranks.push_back(static_cast<int>(rank));
        }
      }
      detail::throw_error<engine_error>(context(), {failure_, ": on ", list_ranks(ranks), ", ", worst->problem.data()});
    }
  }

  host_engine& host_;
  const operation& call_;
  const char* failure_;
};

}  // namespace hfcomm::engines
