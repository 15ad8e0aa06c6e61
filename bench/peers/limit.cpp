// SPDX-License-Identifier: MIT
// The machine's limit for an all_reduce on memory that all ranks see: threads of one process read and write the same
// bytes as such ranks, with only a barrier before and after. Every thread sums its share of the elements
// over all buffers and writes it to all of them.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sched.h>

#include "../compared_operations.hpp"

namespace {

/// A sense-reversing barrier that spins where every thread has a core, and sleeps when it takes long: between two
/// measurements the cores belong to whoever is measured then.
class spin_barrier {
 public:
  explicit spin_barrier(int threads) : threads_(threads), spins_(threads <= bench::allowed_cores()) {}
  void wait() {
    const unsigned now = generation_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
      arrived_.store(0, std::memory_order_relaxed);
      generation_.store(now + 1, std::memory_order_seq_cst);
      generation_.notify_all();
      return;
    }
    for (int look = 0; generation_.load(std::memory_order_acquire) == now; ++look) {
      if (look > (spins_ ? 100'000 : 1'000)) {
        generation_.wait(now);
      } else if (spins_) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
      } else {
        ::sched_yield();
      }
    }
  }

 private:
  const int threads_;
  const bool spins_;
  alignas(128) std::atomic<int> arrived_{0};
  alignas(128) std::atomic<unsigned> generation_{0};
};

class threads {
 public:
  explicit threads(int count) : size_(count), cores_(bench::allowed_cores()), start_(count), end_(count) {
    for (int thread = 1; thread < count; ++thread) {
      workers_.emplace_back([this, thread] {
        bind(thread);
        while (true) {
          start_.wait();
          if (stopping_) {
            return;
          }
          (*work_)(thread);
          end_.wait();
        }
      });
    }
    bind(0);
  }
  threads(const threads&) = delete;
  threads& operator=(const threads&) = delete;
  ~threads() {
    stopping_ = true;
    start_.wait();
    for (auto& worker : workers_) {
      worker.join();
    }
  }

  /// `work(thread)` on every thread.
  void run(const std::function<void(int)>& work) {
    work_ = &work;
    start_.wait();
    work(0);
    end_.wait();
  }

 private:
  void bind(int thread) const {
    if (size_ <= cores_) {
      bench::bind_to_core(thread);
    }
  }

  const int size_;
  const int cores_;
  spin_barrier start_;
  spin_barrier end_;
  const std::function<void(int)>* work_ = nullptr;
  bool stopping_ = false;
  std::vector<std::thread> workers_;
};

/// The sums of a thread's share of the elements, to all buffers.
void reduce_share(std::span<float* const> buffers, std::size_t count, int thread) {
  constexpr std::size_t block = 64;
  const std::size_t part = ((count + buffers.size() - 1) / buffers.size() + block - 1) / block * block;
  const std::size_t begin = std::min(count, part * static_cast<std::size_t>(thread));
  const std::size_t end = std::min(count, begin + part);
  for (std::size_t i = begin; i < end; i += block) {
    float sums[block];
    const std::size_t size = std::min(block, end - i);
    if (size < block) {
      std::fill(sums, sums + block, 0.0F);
    }
    if (size == block) {
      for (std::size_t k = 0; k < block; ++k) {
        sums[k] = buffers[0][i + k] + buffers[1][i + k];
      }
      for (std::size_t rank = 2; rank < buffers.size(); ++rank) {
        for (std::size_t k = 0; k < block; ++k) {
          sums[k] += buffers[rank][i + k];
        }
      }
      for (float* const buffer : buffers) {
        for (std::size_t k = 0; k < block; ++k) {
          buffer[i + k] = sums[k];
        }
      }
    } else {
      for (const float* const buffer : buffers) {
        for (std::size_t k = 0; k < size; ++k) {
          sums[k] += buffer[i + k];
        }
      }
      for (float* const buffer : buffers) {
        std::copy(sums, sums + size, buffer + i);
      }
    }
  }
}

}  // namespace

int main(int count, char** arguments) {
  try {
    const int size = count > 1 ? std::atoi(arguments[1]) : 2;
    // Before this thread is bound, because the others start with its cores.
    const auto team = std::make_shared<threads>(size);
    bench::worker worker(0, 1);
    bench::compared_operations all;
    all["all_reduce/shared/float32"] = [team, size](std::size_t bytes) {
      struct state {
        std::vector<std::vector<float>> buffers;
        std::vector<float*> places;
      };
      const std::size_t elements = std::max<std::size_t>(bytes / sizeof(float), 1);
      auto data = std::make_shared<std::vector<state>>(bytes < (std::size_t{8} << 20) ? bench::buffer_count : 2);
      for (auto& one : *data) {
        for (int rank = 0; rank < size; ++rank) {
          one.buffers.emplace_back(elements);
          one.places.push_back(one.buffers.back().data());
        }
      }
      bench::benchmark one;
      one.operation = "all_reduce";
      one.type = "float32";
      one.bytes = elements * sizeof(float);
      one.count = elements;
      const auto at = [data](std::uint64_t iteration) -> state& { return (*data)[iteration % data->size()]; };
      // Each thread writes its own, as ranks do.
      one.prepare = [at, team, size](std::uint64_t iteration) {
        team->run([&](int rank) {
          bench::fill(std::span(at(iteration).buffers[static_cast<std::size_t>(rank)]), rank, size, iteration);
        });
      };
      one.run = [at, team, elements](std::uint64_t iteration) {
        const std::span<float* const> places(at(iteration).places);
        team->run([&](int rank) { reduce_share(places, elements, rank); });
      };
      one.count_wrong = [at, size](std::uint64_t iteration) {
        std::size_t wrong = 0;
        for (const auto& buffer : at(iteration).buffers) {
          wrong += bench::count_wrong_sums<float>(buffer, size, iteration);
        }
        return wrong;
      };
      return one;
    };
    return worker.serve("limit", all);
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "limit: %s\n", problem.what());
    return 1;
  }
}
