// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iterator>
#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <hfcomm/call/refuse.hpp>
#include <hfcomm/ddp/ddp_options.hpp>
#include <hfcomm/ddp/detail/device_reducer.hpp>
#include <hfcomm/ddp/detail/host_reducer.hpp>
#include <hfcomm/ddp/detail/join_session.hpp>
#include <hfcomm/ddp/detail/model_shape.hpp>
#include <hfcomm/ddp/detail/share_model.hpp>
#include <hfcomm/ddp/parameter.hpp>

namespace hfcomm {

class join_scope;

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
/// Parameters on a device: the same loop, without a wait of the host for the device. Everything is put behind what
/// `ddp_options::stream` has when it is called, gradients are averaged on a stream beside it while backward goes on
/// there, and what is put on it after `finish` sees the averages; so the memory may be touched in that stream's order.
/// The device that is current in the constructor holds all parameters, one process for each device. Gradients that lie
/// one behind the other in memory, in the order of registration, are reduced where they are; others are copied into
/// buckets and back. `finish` and `abandon_pass` do not wait for the device, so they throw less. What a lost rank, or
/// one that does not finish its pass, leaves waiting on the device, `hfcomm::synchronize(stream, ddp.device_group())`
/// frees and throws, as does a `device_watch` of that group; from then on the object is of no use. Ranks that are in
/// different passes are told from each other only where the group has device checks (see
/// process_group::with_device_checks).
///
/// Thread-safety: one thread calls; another, of its own, communicates in a group of its own (for parameters on a device
/// there is none). The memory that the parameters name must outlive this object, and no gradient may be touched between
/// its `mark_ready` and `finish`. (Semantics of torch's DistributedDataParallel and haiscale's, without the module.)
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
    detail::check_model_shape(parameters_, buffers_, by_name_.size() != all_count_, group_, where);
    own_group_ = group_.split(0, group_.rank(), where);
    const auto on_device = [](const auto& one) { return one.on_device; };
    if (std::any_of(parameters_.begin(), parameters_.end(), on_device) ||
        std::any_of(buffers_.begin(), buffers_.end(), on_device)) {
      detail::connect_device_once(own_group_, where);
    }
    share_values(0, where);
    share_buffers(0, where);
    reducer_ = make_reducer(where);
  }

  distributed_data_parallel(const distributed_data_parallel&) = delete;
  distributed_data_parallel& operator=(const distributed_data_parallel&) = delete;

  ~distributed_data_parallel() {
    if (!reducer_->at_home()) {
      (void)reducer_.release();  // NOLINT(*unused-return-value): the parent's worker waits in it, so it cannot end here
    }
  }

  /// Before each forward pass: gives every rank rank 0's buffers, unless `broadcast_buffers` is off or inside
  /// `no_sync`. Collective. Inside a `join_scope` the ranks agree here on the pass that begins, so every pass needs it,
  /// and the buffers are those of the lowest rank that still has data.
  void begin_forward(std::source_location where = std::source_location::current()) {
    enter(where);
    if (open_ == pass::marked && joining_ == nullptr) {
      abandon_pass("it began another pass without finishing this one", where);
      reducer_->settle();
    }
    if (joining_ != nullptr) {
      begin_joined_pass(where);
    } else if (no_sync_depth_ == 0) {
      share_buffers_if_wanted(0, where);
    }
    open_ = pass::begun;
    averages_ = synchronizes();
  }

  /// The gradient of the parameter registered as the `index`-th is final for this backward pass. Once a bucket's last
  /// one is, its reduction starts in the background. Ignored parameters and calls inside `no_sync` do nothing. Throws
  /// usage_error for an index that does not exist or one marked twice.
  void mark_ready(std::size_t index, std::source_location where = std::source_location::current()) {
    if (index >= all_count_) {
      throw usage_error(context(where), "there is no parameter " + std::to_string(index) + "; the model has " +
                                            std::to_string(all_count_));
    }
    enter(where);
    check_joined_pass("mark_ready", where);
    open_ = pass::marked;
    averages_ = synchronizes();
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
    enter(where);
    check_joined_pass("finish", where);
    open_ = pass::none;  // however it ends
    if (joining_ != nullptr) {
      joining_->end_pass();  // however it ends
    }
    if (no_sync_depth_ > 0) {
      reducer_->skip_pass();
      count_pass(false);
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
    count_pass(true);
  }

  /// Instead of `finish`, where an exception ended this rank's forward or backward and the loop goes on:
  ///
  ///     catch (const bad_batch&) { ddp.abandon_pass(); }
  ///
  /// Not collective. The other ranks throw peer_error with `why` in their `finish` of that pass (none where all of this
  /// rank's gradients were marked ready, or inside `no_sync`); all ranks' next passes belong together again. An empty
  /// `why` stands for the exception that is being handled. Nothing happens where no pass is open, so that it may also
  /// handle what `finish` threw. The gradients may be touched again from the next `begin_forward` on.
  ///
  /// Without it the others wait in their `finish` for this rank's next `begin_forward`, which abandons a pass in which
  /// something was marked ready, outside of join scopes. Throws usage_error in the child of a fork.
  void abandon_pass(std::string_view why = {}, std::source_location where = std::source_location::current()) {
    require_home(where);
    if (open_ == pass::none) {
      return;
    }
    reducer_->settle();
    std::string text(why);
    if (text.empty()) {
      text = std::current_exception() ? detail::current_exception_text() : "it abandoned its backward pass";
    }
    open_ = pass::none;
    if (joining_ != nullptr) {
      joining_->end_pass();
    }
    averages_ ? reducer_->abandon(text, where) : reducer_->skip_pass();
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

  /// Whether the next backward pass averages, that is, whether no `no_sync` scope is open.
  [[nodiscard]] bool synchronizes() const noexcept { return no_sync_depth_ == 0; }
  /// The number of backward passes that `finish` has ended without an error, those inside `no_sync` included.
  [[nodiscard]] std::uint64_t finished_passes() const noexcept { return finished_passes_; }
  [[nodiscard]] std::size_t bucket_count() const noexcept { return reducer_->bucket_count(); }
  [[nodiscard]] const process_group& group() const noexcept { return group_; }
  /// The group of its own in which it averages gradients on a device: for `synchronize` and `device_watch`. Throws
  /// usage_error where they are in host memory, and the group is another thread's.
  [[nodiscard]] const process_group& device_group(std::source_location where = std::source_location::current()) const {
    if (own_group_.device_backend() == "none") {
      throw usage_error(context(where), "the parameters are in host memory: nothing of it waits on a device");
    }
    return own_group_;
  }

 private:
  friend class join_scope;
  friend class accumulate;

  enum class pass : std::uint8_t { none, begun, marked };

  static constexpr std::size_t npos = static_cast<std::size_t>(-1);

  [[nodiscard]] error_context context(std::source_location where) const {
    return {group_.rank(), group_.size(), "distributed_data_parallel", 0, where};
  }

  void require_home(std::source_location where) const {
    if (!reducer_->at_home()) {
      throw usage_error(context(where), "made before a fork: the child is not the rank that its parent is");
    }
  }
  void enter(std::source_location where) {
    require_home(where);
    reducer_->settle();
  }

  [[nodiscard]] std::unique_ptr<detail::reducer> make_reducer(std::source_location where) const {
    const auto& wanted = options_;
    if (!parameters_.empty() && parameters_.front().on_device) {
      return std::make_unique<detail::device_reducer>(own_group_, parameters_, wanted.first_bucket_bytes,
                                                      wanted.bucket_bytes, wanted.find_unused_parameters, wanted.stream,
                                                      where);
    }
    return std::make_unique<detail::host_reducer>(own_group_, parameters_, wanted.first_bucket_bytes,
                                                  wanted.bucket_bytes, wanted.find_unused_parameters);
  }

  void share_values(int root, std::source_location where) {
    detail::share_model(parameters_, &ddp_parameter::value, root, group_, own_group_, options_, where);
  }
  void share_buffers(int root, std::source_location where) {
    detail::share_model(buffers_, &ddp_buffer::bytes, root, group_, own_group_, options_, where);
  }
  void share_buffers_if_wanted(int root, std::source_location where) {
    if (options_.broadcast_buffers) {
      share_buffers(root, where);
    }
  }

  void begin_joined_pass(std::source_location where) {
    using plan = detail::join_session::plan;
    if (joining_->over()) {
      throw usage_error(context(where), "the ranks of this join scope have failed together; leave it");
    }
    if (joining_->under_way()) {
      throw usage_error(context(where),
                        "begin_forward was called twice without finish: inside a join scope it begins "
                        "a backward pass that all ranks take part in");
    }
    const bool yields = last_step_ != nullptr && synchronizes();
    const auto round =
        joining_->meet(group_, synchronizes() ? plan::averages : plan::accumulates, yields, reducer_->pass(), where);
    if (yields && !round.averages) {
      last_step_->emplace(*this);
    }
    start_pass(round, where);
    joining_->begin_pass(round.averages);
  }

  void count_pass(bool averaged) noexcept {
    ++finished_passes_;
    if (joining_ != nullptr) {
      joining_->set_left_over(!averaged);
    }
  }

  /// A pass of the ranks that have data, on one that has none.
  detail::join_session::round shadow_pass(std::source_location where) {
    enter(where);
    const auto round = joining_->meet(group_, detail::join_session::plan::out_of_data, false, reducer_->pass(), where);
    start_pass(round, where);
    if (round.averages) {
      reducer_->shadow(joining_->left_over(), where);
      joining_->set_left_over(false);
    } else if (round.live > 0) {
      reducer_->skip_pass();
    }
    return round;
  }

  void start_pass(const detail::join_session::round& round, std::source_location where) {
    if (round.averages) {
      if (round.live > 0) {
        share_buffers_if_wanted(round.leader, where);
      }
      reducer_->divide_by(round.divisor);
    }
    joining_->count_on_each_other();
  }

  /// Inside a join scope the others count on what this rank said in begin_forward.
  void check_joined_pass(const char* what, std::source_location where) const {
    if (joining_ == nullptr) {
      return;
    }
    if (!joining_->under_way()) {
      throw usage_error(context(where), std::string(what) +
                                            " without begin_forward: inside a join scope it begins every backward "
                                            "pass, so that ranks without data can take part");
    }
    if (joining_->averages() != synchronizes()) {
      const char* const places[] = {"inside", "outside"};
      throw usage_error(context(where), std::string("begin_forward was called ") + places[joining_->averages()] +
                                            " no_sync, " + what + ' ' + places[synchronizes()] + " of it");
    }
  }

  /// Tells the ranks that are still in the join scope that this one leaves it, and why. Does not wait for them.
  void leave_join(std::string_view why, std::source_location where) noexcept {
    const auto* joined = std::exchange(joining_, nullptr);
    open_ = pass::none;
    if (joined->over() || !reducer_->at_home()) {
      return;
    }
    try {
      const std::string text(why);
      if (joined->under_way()) {
        joined->averages() ? reducer_->abandon(text, where) : reducer_->skip_pass();
      }
      detail::refuse(group_, {.name = "join_scope", .where = where}, text);
    } catch (...) {
      return;  // the others find out by this rank's end, or their deadline
    }
  }

  process_group group_;
  process_group own_group_;  // for gradients, and for what is on a device
  ddp_options options_;
  std::vector<ddp_parameter> parameters_;  // without the ignored ones
  std::vector<ddp_buffer> buffers_;
  std::unordered_map<std::string, std::size_t> by_name_;  // index as registered
  std::vector<std::size_t> kept_index_;                   // as registered -> in parameters_
  std::size_t all_count_ = 0;
  int no_sync_depth_ = 0;
  std::uint64_t finished_passes_ = 0;
  pass open_ = pass::none;
  bool averages_ = false;                              // the open pass, as far as it went
  std::uint64_t finished_scopes_ = 0;                  // join scopes: they end a cycle of `accumulate`
  std::optional<no_sync_scope>* last_step_ = nullptr;  // of `accumulate`: averages unless others accumulate
  detail::join_session* joining_ = nullptr;            // while a join_scope is open
  std::unique_ptr<detail::reducer> reducer_;
};

}  // namespace hfcomm
