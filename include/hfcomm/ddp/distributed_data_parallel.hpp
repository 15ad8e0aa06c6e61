// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <hfcomm/collectives/all_gather.hpp>
#include <hfcomm/collectives/broadcast.hpp>
#include <hfcomm/ddp/parameter.hpp>
#include <hfcomm/ddp/reducer.hpp>
#include <hfcomm/serialization/std_types.hpp>

namespace hfcomm {

struct ddp_options {
  std::size_t first_bucket_bytes = std::size_t{1} << 20;  ///< Of the bucket that is ready first: small, to start early.
  std::size_t bucket_bytes = std::size_t{25} << 20;       ///< Of the other buckets.
  std::size_t broadcast_chunk_bytes = std::size_t{25}
                                      << 20;  ///< Parameters and buffers are broadcast in pieces up to this.
  bool find_unused_parameters = false;  ///< Parameters that never become ready count as zero instead of being an error.
  bool broadcast_buffers = true;        ///< Whether `begin_forward` gives every rank rank 0's buffers.
  std::vector<std::string> ignore{};    ///< Names of parameters and buffers to leave alone.
};

/// Data-parallel training over plain memory: every rank computes gradients on its share of a batch, and this averages
/// them over the ranks while backward is still running.
///
///     hfcomm::distributed_data_parallel ddp(parameters, buffers);
///     for (...) {
///       ddp.begin_forward();
///       loss = model.forward_backward(share, [&](std::size_t i) { ddp.mark_ready(i); });
///       ddp.finish();                       // now every gradient is the average over the ranks
///       optimizer.step();
///     }
///
/// The constructor is collective: it checks that all ranks have the same parameters (mismatch_error naming the
/// parameter and both ranks), then gives every rank rank 0's values. The gradients are what a single process would have
/// computed on the whole batch if every rank's loss is the mean over an equal share.
///
/// Thread-safety: one thread calls; another, of its own, communicates in a group of its own. The memory that the
/// parameters name must outlive this object, and no gradient may be touched between its `mark_ready` and `finish`.
/// (Semantics of torch's DistributedDataParallel and haiscale's, without the module.)
class distributed_data_parallel {
 public:
  explicit distributed_data_parallel(std::vector<ddp_parameter> parameters, std::vector<ddp_buffer> buffers = {},
                                     ddp_options options = {}, const process_group& group = world(),
                                     std::source_location where = std::source_location::current())
      : group_(group), options_(std::move(options)) {
    const auto ignored = [&](const std::string& name) {
      return std::find(options_.ignore.begin(), options_.ignore.end(), name) != options_.ignore.end();
    };
    all_count_ = parameters.size();
    kept_index_.assign(parameters.size(), npos);
    for (std::size_t index = 0; index < parameters.size(); ++index) {
      by_name_.emplace(parameters[index].name, index);
      if (!ignored(parameters[index].name)) {
        kept_index_[index] = parameters_.size();
        parameters_.push_back(std::move(parameters[index]));
      }
    }
    std::copy_if(buffers.begin(), buffers.end(), std::back_inserter(buffers_),
                 [&](const ddp_buffer& one) { return !ignored(one.name); });
    check_shapes(by_name_.size() != all_count_, where);
    std::vector<std::span<std::byte>> state(parameters_.size());
    std::transform(parameters_.begin(), parameters_.end(), state.begin(),
                   [](const ddp_parameter& one) { return one.value; });
    broadcast_in_chunks(state, where);
    broadcast_in_chunks(buffer_bytes(), where);
    reducer_ = std::make_unique<detail::reducer>(group_.split(0, group_.rank(), where), parameters_,
                                                 options_.first_bucket_bytes, options_.bucket_bytes,
                                                 options_.find_unused_parameters);
  }

  distributed_data_parallel(const distributed_data_parallel&) = delete;
  distributed_data_parallel& operator=(const distributed_data_parallel&) = delete;

  /// Before each forward pass: gives every rank rank 0's buffers, unless `broadcast_buffers` is off or inside
  /// `no_sync`. Collective.
  void begin_forward(std::source_location where = std::source_location::current()) {
    if (options_.broadcast_buffers && no_sync_depth_ == 0 && !buffers_.empty()) {
      broadcast_in_chunks(buffer_bytes(), where);
    }
  }

  /// The gradient of the parameter registered as the `index`-th is final for this backward pass. Once a bucket's last
  /// one is, its reduction starts in the background. Ignored parameters and calls inside `no_sync` do nothing. Throws
  /// usage_error for an index that does not exist or one marked twice.
  void mark_ready(std::size_t index, std::source_location where = std::source_location::current()) {
    if (index >= all_count_) {
      throw usage_error(context(where), "there is no parameter " + std::to_string(index) + "; the model has " +
                                            std::to_string(all_count_));
    }
    const std::size_t kept = kept_index_[index];
    if (no_sync_depth_ > 0 || kept == npos) {
      return;
    }
    if (reducer_->is_ready(kept)) {
      throw usage_error(context(where),
                        "parameter \"" + parameters_[kept].name + "\" was marked ready twice in one backward pass");
    }
    reducer_->ready(kept, where);
  }

  void mark_ready(std::string_view name, std::source_location where = std::source_location::current()) {
    const auto found = by_name_.find(std::string(name));
    if (found == by_name_.end()) {
      throw usage_error(context(where), "there is no parameter called \"" + std::string(name) + '"');
    }
    mark_ready(found->second, where);
  }

  /// Ends a backward pass: waits for the reductions; afterwards every gradient is the average over the ranks, with the
  /// same bits on all of them. Call it once per backward pass, inside `no_sync` too (where it only counts the pass).
  ///
  /// Throws usage_error naming the parameters that never became ready, unless `find_unused_parameters` (the other ranks
  /// throw peer_error with the same names); mismatch_error where the ranks are not in the same backward pass; and what
  /// the reductions met. With `find_unused_parameters` a gradient that no rank used stays as it was.
  void finish(std::source_location where = std::source_location::current()) {
    if (no_sync_depth_ > 0) {
      reducer_->skip_pass();
      return;
    }
    if (!options_.find_unused_parameters) {
      std::string missing;
      for (std::size_t index = 0; index < parameters_.size(); ++index) {
        if (!reducer_->is_ready(index)) {
          missing += (missing.empty() ? "\"" : ", \"") + parameters_[index].name + '"';
        }
      }
      if (!missing.empty()) {
        const std::string text = "these parameters never became ready in this backward pass: " + missing +
                                 "; set find_unused_parameters if the loss does not depend on them";
        reducer_->give_up(text, where);
        throw usage_error(context(where), text);
      }
    }
    reducer_->finish(where);
  }

  /// Switches the averaging and the buffer broadcasts off for a scope; nestable; switched on again by the destructor,
  /// also where an exception leaves the scope. Gradients that accumulate inside are averaged by the first pass outside.
  /// Forward and backward both belong inside.
  class no_sync_scope {
   public:
    explicit no_sync_scope(distributed_data_parallel& ddp) noexcept : ddp_(&ddp) { ++ddp_->no_sync_depth_; }
    no_sync_scope(const no_sync_scope&) = delete;
    no_sync_scope& operator=(const no_sync_scope&) = delete;
    ~no_sync_scope() { --ddp_->no_sync_depth_; }

   private:
    distributed_data_parallel* ddp_;
  };
  [[nodiscard]] no_sync_scope no_sync() noexcept { return no_sync_scope(*this); }

  [[nodiscard]] std::size_t bucket_count() const noexcept { return reducer_->bucket_count(); }
  [[nodiscard]] const process_group& group() const noexcept { return group_; }

 private:
  static constexpr std::size_t npos = static_cast<std::size_t>(-1);

  /// What must be equal on all ranks.
  struct shape {
    std::string name;
    std::uint8_t type = 0;
    std::uint64_t bytes = 0;
    bool is_buffer = false;

    template <class Archive>
    void serialize(Archive& archive) {
      archive(name, type, bytes, is_buffer);
    }
    bool operator==(const shape&) const = default;
    [[nodiscard]] std::string text() const {
      return '"' + name + "\" (" + (is_buffer ? "a buffer of " + std::to_string(bytes) + " bytes)" : elements());
    }
    [[nodiscard]] std::string elements() const {
      const auto element = static_cast<element_type>(type);
      return std::to_string(bytes / size_of(element)) + " x " + std::string(to_string(element)) + ')';
    }
  };

  [[nodiscard]] error_context context(std::source_location where) const {
    return {group_.rank(), group_.size(), "distributed_data_parallel", 0, where};
  }

  void check_shapes(bool names_repeat, std::source_location where) {
    std::vector<shape> mine;
    std::string problem = names_repeat ? "two parameters have the same name" : "";
    for (const auto& parameter : parameters_) {
      mine.push_back({parameter.name, static_cast<std::uint8_t>(parameter.type), parameter.value.size(), false});
      if (!detail::valid(reduce_op::average, parameter.type)) {
        problem = "parameter \"" + parameter.name + "\" is of type " + std::string(to_string(parameter.type)) +
                  ", which has no average";
      } else if (parameter.value.size() != parameter.gradient.size()) {
        problem = "parameter \"" + parameter.name + "\" has " + std::to_string(parameter.count()) +
                  " values, but its gradient has " +
                  std::to_string(parameter.gradient.size() / size_of(parameter.type)) + " elements";
      }
    }
    for (const auto& one : buffers_) {
      mine.push_back({one.name, 0, one.bytes.size(), true});
    }
    if (!problem.empty()) {
      operation call =
          detail::object_call<std::vector<shape>>("distributed_data_parallel", movement::to_all, -1, where);
      detail::running_call running(group_, call);
      running.require(false, [&] { return problem; });
    }
    const auto all = detail::collect_objects("distributed_data_parallel", movement::to_all, mine, -1, group_, where);
    for (std::size_t rank = 1; rank < all.size(); ++rank) {
      const std::size_t count = std::max(all[0].size(), all[rank].size());
      for (std::size_t index = 0; index < count; ++index) {
        const auto at = [&](std::size_t who) {
          return index < all[who].size() ? all[who][index].text() : std::string("nothing");
        };
        if (at(0) != at(rank)) {
          throw mismatch_error(context(where),
                               "the models differ: as number " + std::to_string(index) + " rank 0 has " + at(0) +
                                   ", rank " + std::to_string(rank) + " has " + at(rank),
                               0, static_cast<int>(rank));
        }
      }
    }
  }

  [[nodiscard]] std::vector<std::span<std::byte>> buffer_bytes() const {
    std::vector<std::span<std::byte>> bytes(buffers_.size());
    std::transform(buffers_.begin(), buffers_.end(), bytes.begin(), [](const ddp_buffer& one) { return one.bytes; });
    return bytes;
  }

  /// Gives every rank rank 0's bytes, many small pieces in one broadcast, a large one in several.
  void broadcast_in_chunks(std::span<const std::span<std::byte>> pieces, std::source_location where) {
    if (group_.size() == 1) {
      return;
    }
    const std::size_t limit = std::max<std::size_t>(options_.broadcast_chunk_bytes, 1);
    std::vector<std::byte> chunk;
    std::vector<std::span<std::byte>> sources;
    const auto flush = [&] {
      chunk.clear();
      for (const auto part : sources) {
        chunk.insert(chunk.end(), part.begin(), part.end());
      }
      broadcast(std::span(chunk), 0, group_, where);
      std::size_t offset = 0;
      for (const auto part : sources) {
        if (!part.empty()) {
          std::memcpy(part.data(), chunk.data() + offset, part.size());
        }
        offset += part.size();
      }
      sources.clear();
    };
    std::size_t filled = 0;
    for (auto piece : pieces) {
      while (!piece.empty()) {
        const std::size_t count = std::min(piece.size(), limit - filled);
        sources.push_back(piece.first(count));
        piece = piece.subspan(count);
        filled += count;
        if (filled == limit) {
          flush();
          filled = 0;
        }
      }
    }
    if (filled > 0) {
      flush();
    }
  }

  process_group group_;
  ddp_options options_;
  std::vector<ddp_parameter> parameters_;  // without the ignored ones
  std::vector<ddp_buffer> buffers_;
  std::unordered_map<std::string, std::size_t> by_name_;  // index as registered
  std::vector<std::size_t> kept_index_;                   // as registered -> in parameters_
  std::size_t all_count_ = 0;
  int no_sync_depth_ = 0;
  std::unique_ptr<detail::reducer> reducer_;
};

}  // namespace hfcomm
