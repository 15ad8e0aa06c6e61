// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>

#include <dlfcn.h>
#include <unistd.h>

#include <hfcomm/core/call_site.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/core/error.hpp>
#include <hfcomm/machine/library.hpp>
#include <hfcomm/rendezvous/address_exchange.hpp>
#include <hfcomm/rendezvous/detail/address_exchange-inl.hpp>

namespace hfcomm::rendezvous {

/// The part of PMIx's C interface that is used here, as versions 3 to 5 of libpmix.so.2 have it.
namespace pmix {

struct process {
  std::array<char, 256> name_space;
  std::uint32_t rank;
};

struct value {
  std::uint16_t type;
  union {
    bool flag;
    char* string;
    int integer;
    std::array<void*, 3> room;  // of the largest of its other members
  } data;
};

struct info {
  std::array<char, 512> key;
  std::uint32_t flags;
  value setting;
};

static_assert(sizeof(process) == 260 && sizeof(value) == 32 && sizeof(info) == 552);

inline constexpr std::uint16_t type_bool = 1;
inline constexpr std::uint16_t type_string = 3;
inline constexpr std::uint16_t type_int = 6;
inline constexpr std::uint8_t scope_global = 3;
inline constexpr std::uint32_t all_ranks = 0xfffffffe;

inline info make_info(const char* key, std::uint16_t type) {
  info result{};
  std::strncpy(result.key.data(), key, result.key.size() - 1);
  result.setting.type = type;
  return result;
}

/// PMIx's library, initialized. There is one for the process, until it ends: the launcher takes a process that ends
/// without PMIx_Finalize for one that has failed, and none can start MPI after it. The calls are counted, so MPI may
/// make its own before, meanwhile and afterwards.
class library {
 public:
  HFCOMM_PROCESS_STATE static library& of_process() {
    static library one;
    return one;
  }
  library(const library&) = delete;
  library& operator=(const library&) = delete;
  ~library() {
    if (::getpid() == process_) {
      finalize_(nullptr, 0);
    }
  }

  void put(const std::string& key, const std::string& text) {
    std::string copy = text;
    value stored{};
    stored.type = type_string;
    stored.data.string = copy.data();
    check(put_(scope_global, key.c_str(), &stored), "PMIx_Put");
    check(commit_(), "PMIx_Commit");
  }

  /// Starts a fence of all ranks that carries what they have put. Its status comes into `status`, which lives on.
  void start_fence(const std::shared_ptr<std::atomic<int>>& status) {
    process all = self_;
    all.rank = all_ranks;
    info collect = make_info("pmix.collect", type_bool);
    collect.setting.data.flag = true;
    auto* const shared = new std::shared_ptr<std::atomic<int>>(status);
    const int started = fence_(&all, 1, &collect, 1, &library::end_fence, shared);
    if (started != 0) {
      delete shared;
      check(started, "PMIx_Fence_nb");
    }
  }

  /// Returns what that rank has put under that key; nullopt where it has not.
  std::optional<std::string> get(std::uint32_t rank, const std::string& key) {
    process one = self_;
    one.rank = rank;
    info timeout = make_info("pmix.timeout", type_int);
    timeout.setting.data.integer = 10;
    value* found = nullptr;
    if (get_(&one, key.c_str(), &timeout, 1, &found) != 0 || found == nullptr || found->type != type_string ||
        found->data.string == nullptr) {
      return std::nullopt;
    }
    return found->data.string;  // its few bytes stay: each version frees them in another way
  }

  void check(int status, const char* call) const {
    if (status != 0) {
      detail::throw_error<engine_error>(
          {call, " failed: ", error_string_(status), " (", status, "); set HFCOMM_ADDRESS to do without PMIx"});
    }
  }

 private:
  using end_of_fence = void (*)(int status, void* data);

  library() : process_(::getpid()) {
    // Its plugins need its functions, too.
    const hfcomm::detail::library found("PMIx", "HFCOMM_PMIX_LIBRARY", "PMIx_Init", {"libpmix.so.2"}, RTLD_GLOBAL);
    if (!found.is_found()) {
      detail::throw_error<engine_error>(
          {"the launcher has a PMIx server, which tells where rank 0 is, but ", found.problem(),
           "; or install it (Debian: libpmix2), or set HFCOMM_ADDRESS to the host of rank 0"});
    }
    const auto here = call_site::current();
    found.fill(error_string_, "PMIx_Error_string", false, here);
    found.fill(init_, "PMIx_Init", false, here);
    found.fill(finalize_, "PMIx_Finalize", false, here);
    found.fill(put_, "PMIx_Put", false, here);
    found.fill(commit_, "PMIx_Commit", false, here);
    found.fill(fence_, "PMIx_Fence_nb", false, here);
    found.fill(get_, "PMIx_Get", false, here);
    check(init_(&self_, nullptr, 0), "PMIx_Init");
  }

  static void end_fence(int status, void* data) {
    const std::unique_ptr<std::shared_ptr<std::atomic<int>>> shared(
        static_cast<std::shared_ptr<std::atomic<int>>*>(data));
    (*shared)->store(status);
  }

  pid_t process_;
  process self_{};
  const char* (*error_string_)(int status) = nullptr;
  int (*init_)(process* self, info* settings, std::size_t count) = nullptr;
  int (*finalize_)(const info* settings, std::size_t count) = nullptr;
  int (*put_)(std::uint8_t scope, const char* key, value* stored) = nullptr;
  int (*commit_)() = nullptr;
  int (*fence_)(const process* ranks, std::size_t count, const info* settings, std::size_t setting_count,
                end_of_fence end, void* data) = nullptr;
  int (*get_)(const process* rank, const char* key, const info* settings, std::size_t count, value** found) = nullptr;
};

}  // namespace pmix

namespace exchanges {

class by_pmix final : public by_fence {
 public:
  by_pmix(int number, int world_size)
      : by_fence("PMIx", detail::concat({"hfcomm.root.", number})),
        library_(pmix::library::of_process()),
        world_size_(static_cast<std::uint32_t>(world_size)) {}

 private:
  static constexpr int under_way = 1;  // no status of PMIx
  static constexpr const char* no_root = "-";

  /// A rank gets what others have put by their numbers only, and the root's is not known. So each puts something: a get
  /// of what was not put may take long.
  void enter_fence(const std::string& address) override {
    library_.put(key(), address.empty() ? no_root : address);
    library_.start_fence(status_);
  }

  bool has_fence_ended() override {
    const int status = status_->load();
    if (status != under_way) {
      library_.check(status, "PMIx_Fence");
    }
    return status != under_way;
  }

  std::optional<std::string> get(const std::string& key) override {
    std::optional<std::string> text;
    for (std::uint32_t rank = 0; rank < world_size_; ++rank) {
      text = library_.get(rank, key);
      if (text != no_root) {
        break;
      }
    }
    return text;
  }

  pmix::library& library_;
  std::uint32_t world_size_;
  std::shared_ptr<std::atomic<int>> status_ = std::make_shared<std::atomic<int>>(under_way);
};

}  // namespace exchanges

HFCOMM_INLINE std::unique_ptr<address_exchange> exchange_by_pmix(int number, int world_size) {
  return std::make_unique<exchanges::by_pmix>(number, world_size);
}

}  // namespace hfcomm::rendezvous
