// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <hfcomm/call/announce_failure.hpp>
#include <hfcomm/core/detail/concat.hpp>
#include <hfcomm/ddp/ddp_options.hpp>
#include <hfcomm/ddp/detail/chunk_ring.hpp>
#include <hfcomm/ddp/detail/connect_model.hpp>
#include <hfcomm/ddp/detail/join_session.hpp>
#include <hfcomm/ddp/detail/make_reducer.hpp>
#include <hfcomm/ddp/detail/model_shape.hpp>
#include <hfcomm/ddp/detail/registered_model.hpp>
#include <hfcomm/ddp/detail/share_model.hpp>
#include <hfcomm/ddp/parameter.hpp>
#include <hfcomm/ddp/pass_record.hpp>
#include <hfcomm/group/detail/group_state.hpp>

namespace hfcomm::detail {

/// Implementation of distributed_data_parallel, where its functions are documented. join_scope and accumulate use the
/// functions under their names.
class ddp_state {
 public:
  ddp_state(std::vector<ddp_parameter> parameters, std::vector<ddp_buffer> buffers, ddp_options options,
            const process_group& group, std::source_location where)
      : group_(group),
        options_(std::move(options)),
        model_(std::move(parameters), std::move(buffers), options_.ignore) {
    check_model_shape(model_.parameters(), model_.buffers(), model_.has_repeated_names(), group_, where);
    own_group_ = group_.split(0, group_.rank(), where);
    ring_ = connect_model(model_, options_, own_group_, where);
    share_values(0, where);
    share_buffers(0, where);
    reducer_ = make_reducer(own_group_, model_.parameters(), options_, ring_, where);
    group_access::engine(own_group_).set_caller(engines::caller_state::rests);
  }
  ddp_state(const ddp_state&) = delete;
  ddp_state& operator=(const ddp_state&) = delete;
  ~ddp_state() {
    if (!reducer_->in_creating_process()) {
      (void)
          reducer_.release();  // NOLINT(*unused-return-value): its thread runs in the parent and cannot be joined here
    }
  }

  void begin_forward(std::source_location where) {
    enter(where);
    if (joined_ != nullptr) {
      begin_joined_pass(where);
    } else {
      end_last_pass(where);
      if (synchronizes()) {
        share_buffers_if_wanted(0, where);
      }
    }
    group_access::engine(own_group_).set_caller(engines::caller_state::rests);
    stage_ = stage::begun;
    pass_averages_ = synchronizes();
  }

  /// `source` is where the gradient lies; null: in its own memory.
  void mark_ready(std::size_t number, const std::span<const std::byte>* source, std::source_location where) {
    require_parameter(number, where);
    enter(where);
    require_joined_pass("mark_ready", where);
    stage_ = stage::marked;
    pass_averages_ = synchronizes();
    const auto index = model_.index_of(number);
    if (!index) {
      return;
    }
    if (synchronizes() && reducer_->gradient_marks().is_complete(*index)) {
      throw_error<usage_error>(context(where),
                               {"parameter \"", model_.parameters()[*index].name, "\" was marked ready ",
                                options_.static_graph ? "more often than in the first pass, although "
                                                        "static_graph is set"
                                                      : "twice in one backward pass"});
    }
    if (source != nullptr) {
      set_gradient(*index, *source, where);
    }
    synchronizes() ? reducer_->mark_ready(*index, where) : reducer_->mark_accumulated(*index);
  }

  void mark_ready(std::string_view name, std::source_location where) {
    const auto number = model_.find(name);
    if (!number) {
      throw_error<usage_error>(context(where),
                               {"there is no parameter called \"", name, "\"; there are ", model_.names_text()});
    }
    mark_ready(*number, nullptr, where);
  }

  [[nodiscard]] std::span<std::byte> gradient(std::size_t number, std::source_location where) {
    return parameter(number, "gradient", where).gradient;
  }
  [[nodiscard]] std::span<std::byte> gradient(std::size_t number, element_type type, std::source_location where) {
    const ddp_parameter& one = parameter(number, "gradient", where);
    if (one.type != type) {
      throw_error<usage_error>(
          context(where), {"parameter \"", one.name, "\" is of type ", to_string(one.type), ", not ", to_string(type)});
    }
    return one.gradient;
  }
  [[nodiscard]] std::shared_ptr<void> gradient_memory(std::size_t number, std::source_location where) const {
    require_parameter(number, where);
    const auto index = model_.index_of(number);
    return index ? reducer_->gradient_memory(*index) : nullptr;
  }
  [[nodiscard]] bool used(std::size_t number, std::source_location where) const {
    require_parameter(number, where);
    const auto index = model_.index_of(number);
    return index && reducer_->was_used(*index);
  }

  void rebind_value(std::size_t number, std::span<std::byte> value, std::source_location where) {
    auto& bound = parameter(number, "rebind_value", where).value;
    require_length(value.size(), bound.size(), "the values of parameter", number, where);
    bound = value;
  }
  void rebind_buffer(std::size_t number, std::span<std::byte> bytes, std::source_location where) {
    if (number >= model_.registered_buffer_count()) {
      throw_error<usage_error>(context(where),
                               {"there is no buffer ", number, "; the model has ", model_.registered_buffer_count()});
    }
    const auto index = model_.buffer_index_of(number);
    if (!index) {
      return;  // nothing is done with an ignored one
    }
    auto& bound = model_.buffers()[*index].bytes;
    require_length(bytes.size(), bound.size(), "buffer", number, where);
    bound = bytes;
  }

  void finish(std::source_location where) {
    enter(where);
    require_joined_pass("finish", where);
    close_pass();  // also where this throws
    if (!synchronizes()) {
      reducer_->skip_pass();
      count_pass(false);
      return;
    }
    if (!options_.find_unused_parameters && !reducer_->gradient_marks().are_learning()) {
      require_all_ready(where);
    }
    reducer_->finish(where);
    count_pass(true);
  }

  void abandon_pass(std::string_view why, std::source_location where) {
    require_creating_process(where);
    if (stage_ == stage::none) {
      return;
    }
    reducer_->prepare();
    std::string text(why);
    if (text.empty()) {
      text = std::current_exception() ? current_exception_text() : "it abandoned its backward pass";
    }
    close_pass();
    pass_averages_ ? reducer_->abandon(text, where) : reducer_->skip_pass();
  }

  void enter_no_sync() noexcept { ++no_sync_depth_; }
  void leave_no_sync() noexcept { --no_sync_depth_; }

  [[nodiscard]] bool synchronizes() const noexcept { return no_sync_depth_ == 0; }
  [[nodiscard]] std::uint64_t finished_passes() const noexcept { return finished_passes_; }
  [[nodiscard]] std::size_t bucket_count() const noexcept { return reducer_->bucket_count(); }
  [[nodiscard]] const ddp_pass_record& last_pass() const noexcept { return reducer_->last_record(); }
  [[nodiscard]] const process_group& group() const noexcept { return group_; }
  [[nodiscard]] const process_group& device_group(std::source_location where) const {
    if (ring_ != nullptr) {
      throw_error<usage_error>(
          context(where), {"with host_reduce no work on the device waits for other ranks: wait for the stream itself"});
    }
    if (own_group_.device_backend() == "none") {
      throw_error<usage_error>(context(where), {"the parameters are in host memory: nothing of it waits on a device"});
    }
    return own_group_;
  }
  [[nodiscard]] error_context context(std::source_location where) const {
    return {group_.rank(), group_.size(), "distributed_data_parallel", 0, where};
  }

  // accumulate

  /// Returns the number of join scopes that have finished.
  [[nodiscard]] std::uint64_t finished_joins() const noexcept { return finished_joins_; }

  /// Opens the last step of a cycle, which averages unless the other ranks of a join scope only accumulate. In that
  /// case the next `begin_forward` sets `accumulates` and enters `no_sync`, which the step then has to leave.
  void open_last_step(bool& accumulates) noexcept { last_step_accumulates_ = &accumulates; }
  /// Closes the step that was opened with `accumulates`. Does nothing where it was not.
  void close_last_step(const bool& accumulates) noexcept {
    if (last_step_accumulates_ == &accumulates) {
      last_step_accumulates_ = nullptr;
    }
  }

  // join_scope

  /// Begins a join scope. `session` must live until `finish_join` or `leave_join`.
  void open_join(join_session& session, std::source_location where) {
    if (joined_ != nullptr) {
      throw_error<usage_error>(context(where), {"a join scope of this distributed_data_parallel is open already"});
    }
    joined_ = &session;
  }
  [[nodiscard]] bool is_joined(const join_session& session) const noexcept { return joined_ == &session; }

  /// Takes part, without data, in a pass of the ranks that have data. Returns what the ranks agreed on.
  join_session::agreed_pass shadow_pass(std::source_location where) {
    enter(where);
    const auto agreed =
        joined_->agree_on_pass(group_, join_session::pass_kind::out_of_data, false, reducer_->pass_number(), where);
    start_joined_pass(agreed, where);
    if (agreed.averages) {
      reducer_->shadow(joined_->has_left_over(), where);
      joined_->set_left_over(false);
    } else if (agreed.live > 0) {
      reducer_->skip_pass();
    }
    return agreed;
  }

  /// Ends the join scope after all data was used up, and shares the final model if that is wanted.
  void finish_join(std::source_location where) {
    const auto* joined = std::exchange(joined_, nullptr);
    ++finished_joins_;
    if (joined->options().synchronize_final_model) {
      share_values(joined->leader(), where);
      share_buffers_if_wanted(joined->leader(), where);
    }
  }

  /// Ends the join scope, and tells the ranks that are still in it why this one leaves. Does not wait for them.
  void leave_join(std::string_view why, std::source_location where) noexcept {
    const auto* joined = std::exchange(joined_, nullptr);
    stage_ = stage::none;
    if (joined->has_failed() || !reducer_->in_creating_process()) {
      return;
    }
    try {
      const std::string text(why);
      if (joined->is_in_pass()) {
        joined->averages() ? reducer_->abandon(text, where) : reducer_->skip_pass();
      }
      announce_failure(group_, {.name = "join_scope", .where = where}, text);
    } catch (...) {
      return;  // the others learn it when this rank ends, or by their deadline
    }
  }

 private:
  /// How far the current pass has come on this rank.
  enum class stage : std::uint8_t { none, begun, marked };

  void require_creating_process(std::source_location where) const {
    if (!reducer_->in_creating_process()) {
      throw_error<usage_error>(context(where), {"made before a fork: the child is not the rank that its parent is"});
    }
  }
  /// Begins every function of a pass. Where buckets that are filled anew find no memory, the other ranks are told.
  void enter(std::source_location where) {
    require_creating_process(where);
    try {
      reducer_->prepare();
    } catch (...) {
      reducer_->abandon(concat({"it has no memory for its buckets: ", current_exception_text()}), where);
      throw;
    }
  }

  /// Counts a pass that was begun and had no backward. Throws usage_error for one that was marked and not finished; the
  /// other ranks throw peer_error in their `finish` of it.
  void end_last_pass(std::source_location where) {
    if (stage_ == stage::begun) {
      stage_ = stage::none;
      reducer_->skip_pass();
    } else if (stage_ == stage::marked) {
      abandon_pass("it began another pass without finishing this one", where);
      reducer_->prepare();
      throw_error<usage_error>(context(where),
                               {"begin_forward came before finish: the gradients of the last pass were marked ready, "
                                "but not averaged. Call finish() before the optimizer's step, or abandon_pass() where "
                                "an exception has ended a pass"});
    }
  }

  void require_parameter(std::size_t number, std::source_location where) const {
    if (number >= model_.registered_count()) {
      throw_error<usage_error>(context(where),
                               {"there is no parameter ", number, "; the model has ", model_.registered_count()});
    }
  }
  /// Returns a parameter that takes part. Throws usage_error where there is none, or it is ignored.
  [[nodiscard]] ddp_parameter& parameter(std::size_t number, const char* function, std::source_location where) {
    require_parameter(number, where);
    const auto index = model_.index_of(number);
    if (!index) {
      throw_error<usage_error>(context(where), {function, ": parameter ", number, " is ignored"});
    }
    return model_.parameters()[*index];
  }
  void require_length(std::size_t bytes, std::size_t wanted, const char* what, std::size_t number,
                      std::source_location where) const {
    if (bytes != wanted) {
      throw_error<usage_error>(context(where), {what, ' ', number, " has ", wanted, " bytes, not ", bytes});
    }
  }
  void set_gradient(std::size_t index, std::span<const std::byte> source, std::source_location where) {
    require_length(source.size(), model_.parameters()[index].gradient.size(), "the gradient of parameter", index,
                   where);
    reducer_->set_gradient(index, source, where);
  }

  void share_values(int root, std::source_location where) {
    share_model(model_.parameters(), &ddp_parameter::value, root, group_, own_group_, options_, ring_.get(), where);
  }
  void share_buffers(int root, std::source_location where) {
    share_model(model_.buffers(), &ddp_buffer::bytes, root, group_, own_group_, options_, ring_.get(), where);
  }
  void share_buffers_if_wanted(int root, std::source_location where) {
    if (options_.broadcast_buffers) {
      share_buffers(root, where);
    }
  }

  void close_pass() noexcept {
    stage_ = stage::none;
    if (joined_ != nullptr) {
      joined_->end_pass();
    }
  }

  void count_pass(bool averaged) noexcept {
    ++finished_passes_;
    if (joined_ != nullptr) {
      joined_->set_left_over(!averaged);
    }
  }

  /// Throws usage_error naming the parameters that never became ready; the other ranks throw peer_error.
  void require_all_ready(std::source_location where) {
    std::string missing;
    for (std::size_t index = 0; index < model_.parameters().size(); ++index) {
      if (!reducer_->gradient_marks().is_complete(index)) {
        append(missing, {missing.empty() ? "\"" : ", \"", model_.parameters()[index].name, '"'});
      }
    }
    if (!missing.empty()) {
      const std::string text = concat({"these parameters never became ready in this backward pass: ", missing,
                                       "; set find_unused_parameters if the loss does not depend on them"});
      reducer_->abandon(text, where);
      reducer_->prepare();
      throw_error<usage_error>(context(where), {text});
    }
  }

  void begin_joined_pass(std::source_location where) {
    using kind = join_session::pass_kind;
    joined_->require_can_begin(context(where));
    const bool yields = last_step_accumulates_ != nullptr && synchronizes();
    const auto agreed = joined_->agree_on_pass(group_, synchronizes() ? kind::averages : kind::accumulates, yields,
                                               reducer_->pass_number(), where);
    if (yields && !agreed.averages) {
      *last_step_accumulates_ = true;
      enter_no_sync();
    }
    start_joined_pass(agreed, where);
    joined_->begin_pass(agreed.averages);
  }

  void start_joined_pass(const join_session::agreed_pass& agreed, std::source_location where) {
    if (agreed.averages) {
      if (agreed.live > 0) {
        share_buffers_if_wanted(agreed.leader, where);
      }
      reducer_->divide_by(agreed.divisor);
    }
    joined_->set_working();
  }

  void require_joined_pass(const char* function, std::source_location where) const {
    if (joined_ != nullptr) {
      joined_->require_in_pass(function, synchronizes(), context(where));
    }
  }

  process_group group_;
  process_group own_group_;           // reduces gradients, and carries everything that is on a device
  std::shared_ptr<chunk_ring> ring_;  // with host_reduce, of gradients on a device
  ddp_options options_;
  registered_model model_;
  int no_sync_depth_ = 0;
  std::uint64_t finished_passes_ = 0;
  std::uint64_t finished_joins_ = 0;
  stage stage_ = stage::none;
  bool pass_averages_ = false;             // of the current pass; valid once it has begun
  bool* last_step_accumulates_ = nullptr;  // while the last step of an `accumulate` is open
  join_session* joined_ = nullptr;         // while a join_scope is open
  std::unique_ptr<reducer> reducer_;
};

}  // namespace hfcomm::detail
