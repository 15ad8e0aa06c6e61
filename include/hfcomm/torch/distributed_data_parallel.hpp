// SPDX-License-Identifier: MIT
#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <memory>
#include <string_view>
#include <utility>

#include <hfcomm/core/call_site.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/ddp/ddp_options.hpp>
#include <hfcomm/ddp/distributed_data_parallel.hpp>
#include <hfcomm/ddp/pass_record.hpp>
#include <hfcomm/group/process_group.hpp>
#include <hfcomm/group/session.hpp>

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace hfcomm::torch {

namespace detail {
class module_state;

/// LibTorch's holder of a module, such as `torch::nn::Linear`.
template <class T>
concept module_holder = requires(const T& holder) {
  typename T::ContainedType;
  { holder.is_empty() } -> std::convertible_to<bool>;
  { holder.ptr() } -> std::convertible_to<std::shared_ptr<typename T::ContainedType>>;
};
}  // namespace detail

/// Options of `distributed_data_parallel`. All must be equal on all ranks.
struct data_parallel_options {
  /// Sizes of buckets, unused parameters, static graphs, buffers. `ignore` holds names as `named_parameters` and
  /// `named_buffers` of the module have them. `stream` is for parameters on a device: the stream of all passes; by
  /// default the one that LibTorch uses when distributed_data_parallel is made.
  hfcomm::ddp_options ddp{};
  /// Whether a backward pass finishes by itself. Otherwise `finish` must be called after each one, as models need it
  /// that run backward inside of backward (checkpointing): the inner one would finish too early.
  bool automatic_finish = true;
};

/// The part of `distributed_data_parallel` that is the same for all modules.
class distributed_data_parallel_base {
 public:
  distributed_data_parallel_base(const distributed_data_parallel_base&) = delete;
  distributed_data_parallel_base& operator=(const distributed_data_parallel_base&) = delete;

  /// Ends a backward pass where `automatic_finish` is off; see hfcomm::distributed_data_parallel::finish. Then the
  /// `.grad` of each parameter that any rank used is the average over the ranks. With `automatic_finish` only a
  /// backward pass that reaches no parameter needs it.
  void finish(call_site where = call_site::current());

  /// Ends a pass in which this rank's forward or backward threw; see
  /// hfcomm::distributed_data_parallel::abandon_pass.
  void abandon_pass(std::string_view why = {}, call_site where = call_site::current());

  /// Switches the averaging and the buffer broadcasts off for a scope, in which gradients accumulate. Forward and
  /// backward both belong inside. Does nothing where it is not `is_active`.
  [[nodiscard]] hfcomm::distributed_data_parallel::no_sync_scope no_sync(bool is_active = true) noexcept;
  /// Returns whether the next backward pass averages, that is, whether no `no_sync` scope is open.
  [[nodiscard]] bool synchronizes() const noexcept;

  /// Makes the `.grad` of each parameter that any rank used in the last averaged pass the tensor that holds the
  /// average. Passes do it by themselves, but for those that a rank without data takes part in:
  /// `join_options::on_shadow` calls it before the optimizer steps.
  void bind_gradients(call_site where = call_site::current());

  /// Returns what the last averaged pass did on this rank.
  [[nodiscard]] const ddp_pass_record& last_pass() const noexcept;
  [[nodiscard]] const process_group& group() const noexcept;

  /// Returns the averager of the module's parameters: for `hfcomm::join_scope`, `hfcomm::run_joined` and
  /// `hfcomm::accumulate`. In a group of one it has no parameters, and counts a pass in each `forward`.
  [[nodiscard]] hfcomm::distributed_data_parallel& averager() noexcept;

 protected:
  distributed_data_parallel_base(const ::torch::nn::Module* module, data_parallel_options options,
                                 const process_group& group, call_site where);
  ~distributed_data_parallel_base();

  /// Begins a pass, whose errors name `where`.
  void begin_forward(call_site where);
  /// Begins a pass, whose errors name the line of the constructor.
  void begin_forward();

 private:
  std::unique_ptr<detail::module_state> state_;
};

/// Data-parallel training of a LibTorch module: every rank runs forward and backward on its share of a batch, and the
/// gradients are averaged over the ranks while backward is still running.
///
///     auto net = std::make_shared<Net>();
///     hfcomm::torch::distributed_data_parallel ddp(net);      // every rank gets rank 0's parameters and buffers
///     torch::optim::SGD optimizer(net->parameters(), 0.1);
///     for (...) {
///       optimizer.zero_grad();
///       auto loss = torch::mse_loss(ddp.forward(x), y);
///       loss.backward();                                      // now every `.grad` is the average over the ranks
///       optimizer.step();
///     }
///
/// The constructor is collective. It throws mismatch_error where the ranks' parameters or buffers differ in name, type,
/// sizes or strides, naming the first. It throws usage_error (peer_error on the other ranks) for a null pointer or an
/// empty holder, and where a parameter cannot be averaged: only dense tensors of floating-point or complex types are
/// supported, whose parameters are all in host memory or all on one CUDA device. A tensor that has several names is one
/// parameter. Frozen parameters (`requires_grad` is false) are shared once, and must stay frozen.
///
/// A gradient lies in memory of this object, in which it is reduced; `.grad` becomes a view of it in each pass.
/// `.grad` may outlive this object. A graph that `backward` creates (`create_graph`) does not lead through it.
/// Parameters that no rank used keep the `.grad` that they had, undefined or not; those that another rank used get a
/// defined one (`find_unused_parameters`). A rank that has not used such a parameter since the last averaged pass adds
/// zero, also where its `.grad` still holds an average. So accumulate in `no_sync`, not over averaged passes. (torch's
/// adds that `.grad`.)
///
/// Each `forward` looks whether `torch::load`, `set_data` or `to` have replaced the memory of a parameter or buffer, or
/// what its hook is attached to, and follows. Where its type, sizes or strides have changed, it throws usage_error
/// naming it. Parameters that are registered later are not known to this object.
///
/// The gradients of `torch::nn::Embedding` and `EmbeddingBag` with the option `sparse` are gathered from all ranks,
/// added up and divided by the group's size; not inside a `join_scope`. Sparse gradients of other parameters are a
/// usage_error that names the parameter.
///
/// Errors of a pass come out of `forward` or `backward`, and name the line that called `forward`. Where forward or
/// backward throws something else and training continues, call `abandon_pass` in the handler.
///
/// Parameters on a device are averaged over NCCL, on a stream beside LibTorch's; the host does not wait. A pass must
/// then run on the stream that `data_parallel_options::ddp` says (usage_error). Sparse gradients are not supported on a
/// device. See hfcomm::distributed_data_parallel for lost ranks. (This was run on one GPU that the ranks shared, not on
/// several.)
///
/// In a group of one there are no hooks and no memory: `forward` is the module's.
///
/// Thread-safety: one thread at a time calls. Make no LibTorch tensors before `hfcomm::launch`, whose forked ranks
/// could wait for threads that they do not have. (Semantics of torch's DistributedDataParallel, without `module.` in
/// the names of a checkpoint.)
template <class Module>
class distributed_data_parallel : public distributed_data_parallel_base {
 public:
  explicit distributed_data_parallel(std::shared_ptr<Module> module, data_parallel_options options = {},
                                     const process_group& group = world(), call_site where = call_site::current())
      : distributed_data_parallel_base(module.get(), std::move(options), group, where), module_(std::move(module)) {}
  /// The same with a holder, such as `torch::nn::Sequential`.
  template <detail::module_holder Holder>
    requires std::same_as<typename Holder::ContainedType, Module>
  explicit distributed_data_parallel(const Holder& holder, data_parallel_options options = {},
                                     const process_group& group = world(), call_site where = call_site::current())
      : distributed_data_parallel(holder.is_empty() ? nullptr : holder.ptr(), std::move(options), group, where) {}

  /// Returns the module's forward. Where gradients are recorded, it first gives every rank rank 0's buffers, unless
  /// `broadcast_buffers` is off or inside `no_sync`: collective. Without gradients (`torch::NoGradGuard`) nothing is
  /// communicated, so that one rank alone may evaluate. The errors of the pass name the line of this call.
  auto forward(call_site where = call_site::current()) {
    begin_forward(where);
    return module_->forward();
  }
  template <class First>
  auto forward(First&& first, call_site where = call_site::current()) {
    begin_forward(where);
    return module_->forward(std::forward<First>(first));
  }
  template <class First, class Second>
  auto forward(First&& first, Second&& second, call_site where = call_site::current()) {
    begin_forward(where);
    return module_->forward(std::forward<First>(first), std::forward<Second>(second));
  }
  template <class First, class Second, class Third>
  auto forward(First&& first, Second&& second, Third&& third, call_site where = call_site::current()) {
    begin_forward(where);
    return module_->forward(std::forward<First>(first), std::forward<Second>(second), std::forward<Third>(third));
  }
  template <class First, class Second, class Third, class Fourth>
  auto forward(First&& first, Second&& second, Third&& third, Fourth&& fourth, call_site where = call_site::current()) {
    begin_forward(where);
    return module_->forward(std::forward<First>(first), std::forward<Second>(second), std::forward<Third>(third),
                            std::forward<Fourth>(fourth));
  }
  /// The same with more arguments, behind which no parameter can have a default: the errors of the pass name the line
  /// of the constructor.
  template <class... Arguments>
    requires(sizeof...(Arguments) > 4)
  auto forward(Arguments&&... arguments) {
    begin_forward();
    return module_->forward(std::forward<Arguments>(arguments)...);
  }

  /// Returns the module, for an optimizer, `torch::save`, `train` and `eval`.
  [[nodiscard]] const std::shared_ptr<Module>& module() const noexcept { return module_; }

 private:
  std::shared_ptr<Module> module_;
};

template <detail::module_holder Holder>
distributed_data_parallel(const Holder&, data_parallel_options = {}, const process_group& = world(),
                          call_site = call_site::current())
    -> distributed_data_parallel<typename Holder::ContainedType>;

/// Returns the module of a wrapper; a module that is in none as it is. So code runs with and without.
template <class Module>
[[nodiscard]] const std::shared_ptr<Module>& unwrap(const distributed_data_parallel<Module>& ddp) noexcept {
  return ddp.module();
}
template <class Module>
[[nodiscard]] const std::shared_ptr<Module>& unwrap(const std::shared_ptr<Module>& module) noexcept {
  return module;
}

}  // namespace hfcomm::torch
