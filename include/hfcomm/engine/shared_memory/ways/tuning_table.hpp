// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>

#include <hfcomm/core/plain_list.hpp>
#include <hfcomm/engine/shared_memory/ways/transfer_way.hpp>

namespace hfcomm::engines {

/// The key of a choice: what it may depend on.
struct tuning_key {
  int ranks = 0;
  bool shares_cores = false;  ///< The job has more ranks on the machine than cores.
  tuned_operation kind = tuned_operation::broadcast;
  int size_class = 0;  ///< Bytes from 2^(size_class - 1) to 2^size_class - 1.

  [[nodiscard]] friend auto operator<=>(const tuning_key&, const tuning_key&) = default;
  [[nodiscard]] friend bool operator==(const tuning_key&, const tuning_key&) = default;  // nvcc does not imply it
};

/// The mode in which a process's groups find the quickest ways.
enum class tuning_mode : std::uint8_t {
  brief,     ///< They try slower ways as long as that costs little, and again now and then.
  thorough,  ///< They try all ways, whatever that costs.
  off,       ///< They take the default ways, and nothing from the table.
  pinned,    ///< They try as in `brief`, but keep what they have chosen or taken from the table.
};

/// The ways that this process's groups have chosen. New groups propose them to each other and begin with them.
///
/// Any thread may call. The text has a line for each choice: operation, smallest bytes, ranks, "own" or "shared" cores,
/// medium, bytes of a piece, the microseconds that were measured.
class tuning_table {
 public:
  struct choice {
    int way = default_way;    ///< Of `transfer_ways`.
    double microseconds = 0;  ///< Of the operation that was measured; 0: unknown.
  };

  /// Returns the process's table, which HFCOMM_TUNING fills at the first call: "off", "thorough", or the path of a
  /// file.
  HFCOMM_PROCESS_STATE [[gnu::cold]] static tuning_table& of_process();

  [[nodiscard]] tuning_mode mode() const noexcept { return mode_.load(); }

  /// Returns the number of the way that is chosen; -1 where there is none.
  [[nodiscard]] int find(const tuning_key& key) const;
  /// Adds a choice, or replaces it. Throws std::bad_alloc; then nothing has changed.
  void set(const tuning_key& key, const choice& chosen);
  /// Forgets all. To be called while there are no groups.
  void reset(tuning_mode mode);

  [[nodiscard, gnu::cold]] std::string text() const;
  /// Adds what a file of such text has. In the mode `brief`, the mode becomes `pinned`. Throws usage_error that names
  /// the file, and the line that is wrong.
  [[gnu::cold]] void load(const std::string& path);

 private:
  struct entry {
    tuning_key key;
    choice chosen;
  };

  tuning_table() = default;

  mutable std::mutex mutex_;
  hfcomm::detail::plain_list<entry> choices_;  // by key
  std::atomic<tuning_mode> mode_{tuning_mode::brief};
};

}  // namespace hfcomm::engines
