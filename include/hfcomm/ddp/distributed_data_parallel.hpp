// SPDX-License-Identifier: MIT
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <hfcomm/core/call_site.hpp>
#include <hfcomm/core/config.hpp>
#include <hfcomm/core/element_type.hpp>
#include <hfcomm/ddp/ddp_options.hpp>
#include <hfcomm/ddp/parameter.hpp>
#include <hfcomm/ddp/pass_record.hpp>
#include <hfcomm/group/process_group.hpp>
#include <hfcomm/group/session.hpp>

namespace hfcomm {

namespace detail {
class ddp_state;
}  // namespace detail

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
/// The constructor is collective. It checks that all ranks have the same parameters (mismatch_error naming the
/// parameter and both ranks), then gives every rank rank 0's values. The gradients are what a single process would have
/// computed on the whole batch if every rank's loss is the mean over an equal share.
///
/// Parameters on a device: the loop is the same, and the host does not wait for the device. Every operation is ordered
/// after the work that `ddp_options::stream` has when the function is called. Gradients are averaged on another stream
/// while backward continues on the caller's. Work put on the caller's stream after `finish` sees the averages, so
/// memory may be touched in that stream's order.
///
/// The device that is current in the constructor holds all parameters, one process for each device. Gradients of the
/// model that are contiguous in memory, in the order of registration, are reduced in place; others of the model are
/// copied into buckets and back.
/// `finish` and `abandon_pass` do not wait for the device, so they throw less. A lost rank, or one that does not finish
/// its pass, leaves work waiting on the device. `hfcomm::synchronize(stream, ddp.device_group())` then frees the device
/// and throws, as does a `device_watch` of that group; afterwards the object cannot be used. Ranks that are in
/// different passes are detected only where the group has device checks (see process_group::with_device_checks).
///
/// With `ddp_options::host_reduce` gradients on a device are averaged on the CPU. Then `finish` waits for the CPU's
/// sums, and the caller's stream for the copies of the averages. A pass that a rank does not finish is an error on all,
/// as for host memory, and the next one works.
///
/// Thread-safety: one thread at a time calls. Where the CPU reduces, a second thread, made here, communicates in
/// a group of its own. The memory that the parameters name must outlive this object, and no gradient may be touched
/// between its `mark_ready` and `finish`. (Semantics of torch's DistributedDataParallel and haiscale's, without the
/// module.)
class distributed_data_parallel {
 public:
  explicit distributed_data_parallel(std::vector<ddp_parameter> parameters, std::vector<ddp_buffer> buffers = {},
                                     ddp_options options = {}, const process_group& group = world(),
                                     call_site where = call_site::current());
  /// The same for a model without buffers. A template, so that `{}` stands for no buffers.
  template <std::same_as<ddp_options> Options>
  distributed_data_parallel(std::vector<ddp_parameter> parameters, Options options,
                            const process_group& group = world(), call_site where = call_site::current())
      : distributed_data_parallel(std::move(parameters), {}, std::move(options), group, where) {}
  distributed_data_parallel(const distributed_data_parallel&) = delete;
  distributed_data_parallel& operator=(const distributed_data_parallel&) = delete;
  ~distributed_data_parallel();

  /// To be called before each forward pass. Gives every rank rank 0's buffers, unless `broadcast_buffers` is off or
  /// inside `no_sync`. Collective: it counts the ranks' passes. Where one rank leaves a backward pass out, and does not
  /// call `abandon_pass` in it, all get mismatch_error in the passes from the next one on. Inside a `join_scope` the
  /// ranks agree here on the pass that begins, so every pass needs it. The buffers are then those of the lowest rank
  /// that still has data.
  ///
  /// Throws usage_error where a gradient of the pass before was marked ready, and the pass was neither finished nor
  /// abandoned. This abandons it: the other ranks throw peer_error in their `finish` of it. (As torch does.)
  void begin_forward(call_site where = call_site::current());

  /// Declares the gradient of the `index`-th registered parameter final for this backward pass. Once all gradients of a
  /// bucket are, its reduction starts in the background. Ignored parameters and calls inside `no_sync` do nothing.
  /// Throws usage_error for an index that does not exist or one marked twice.
  void mark_ready(std::size_t index, call_site where = call_site::current());

  /// The same for the parameter of that name.
  void mark_ready(std::string_view name, call_site where = call_site::current());

  /// The same for a gradient that lies at `source`, which is copied, unless that is its memory. `source` has the
  /// gradient's length (usage_error otherwise) and may be changed afterwards; on a device, in stream order.
  void mark_ready(std::size_t index, std::span<const std::byte> source, call_site where = call_site::current());

  /// Returns the memory of the gradient of the `index`-th registered parameter: the model's, or, where it gives none,
  /// memory of this object, which begins as zeros. Then no copy is needed to reduce it. Valid until the next
  /// `begin_forward`, which may move it with its content (see `ddp_options::rebuild_buckets`); ask for it after that.
  /// Throws usage_error for an index that does not exist, and for an ignored parameter.
  [[nodiscard]] std::span<std::byte> gradient(std::size_t index, call_site where = call_site::current());

  /// The same as elements. Throws usage_error where T is not the parameter's type.
  template <class T>
  [[nodiscard]] std::span<T> gradient(std::size_t index, call_site where = call_site::current()) {
    const auto bytes = typed_gradient(index, element_type_of<T>, where);
    return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
  }

  /// Returns what keeps that memory, beyond this object's life and beyond `begin_forward`; null where it is the
  /// model's.
  [[nodiscard]] std::shared_ptr<void> gradient_memory(std::size_t index, call_site where = call_site::current()) const;

  /// Returns whether any rank used the parameter in the last averaged pass: with `find_unused_parameters` and
  /// `static_graph` some may not. True for all others that take part.
  [[nodiscard]] bool used(std::size_t index, call_site where = call_site::current()) const;

  /// Says that the values of a parameter, or a buffer, lie elsewhere now, as many bytes (usage_error otherwise). Not
  /// collective, and not during a pass.
  void rebind_value(std::size_t index, std::span<std::byte> value, call_site where = call_site::current());
  void rebind_buffer(std::size_t index, std::span<std::byte> bytes, call_site where = call_site::current());

  /// Returns what the last averaged pass did on this rank.
  [[nodiscard]] const ddp_pass_record& last_pass() const noexcept;

  /// Ends a backward pass: waits for the reductions; afterwards every gradient is the average over the ranks, with the
  /// same bits on all of them. Call it once per backward pass, inside `no_sync` too (where it only counts the pass).
  ///
  /// Throws usage_error naming the parameters that never became ready, unless `find_unused_parameters` (the other ranks
  /// throw peer_error with the same names); mismatch_error where the ranks are not in the same backward pass; and the
  /// errors of the reductions. With `find_unused_parameters` a gradient that no rank used stays as it was.
  void finish(call_site where = call_site::current());

  /// Ends a backward pass instead of `finish`, where an exception ended this rank's forward or backward and the loop
  /// continues:
  ///
  ///     catch (const bad_batch&) { ddp.abandon_pass(); }
  ///
  /// Not collective. The other ranks throw peer_error with `why` in their `finish` of that pass. They throw nothing if
  /// all of this rank's gradients were marked ready, or inside `no_sync`. In the next pass all ranks are together
  /// again. An empty `why` stands for the text of the exception that is being handled. Nothing happens where no pass is
  /// open, so a handler may call this for errors of `finish` as well. The gradients may be touched again from the next
  /// `begin_forward` on.
  ///
  /// Without it the others wait in their `finish` for this rank's next `begin_forward`. Throws usage_error in the child
  /// of a fork.
  void abandon_pass(std::string_view why = {}, call_site where = call_site::current());

  /// Switches the averaging and the buffer broadcasts off for a scope; nestable. The destructor switches them on again,
  /// also where an exception leaves the scope. Gradients that accumulate inside are averaged by the first pass outside.
  /// Forward and backward both belong inside.
  class no_sync_scope {
   public:
    explicit no_sync_scope(distributed_data_parallel& ddp, bool is_active = true) noexcept;
    no_sync_scope(const no_sync_scope&) = delete;
    no_sync_scope& operator=(const no_sync_scope&) = delete;
    ~no_sync_scope();

   private:
    distributed_data_parallel* ddp_;  // null: the scope does nothing
  };
  /// Opens such a scope, which does nothing where it is not `is_active`:
  ///
  ///     const auto off = ddp.no_sync(step + 1 < steps);
  [[nodiscard]] no_sync_scope no_sync(bool is_active = true) noexcept { return no_sync_scope(*this, is_active); }

  /// Returns whether the next backward pass averages, that is, whether no `no_sync` scope is open.
  [[nodiscard]] bool synchronizes() const noexcept;
  /// Returns the number of backward passes that `finish` has ended without an error, those inside `no_sync` included.
  [[nodiscard]] std::uint64_t finished_passes() const noexcept;
  [[nodiscard]] std::size_t bucket_count() const noexcept;
  [[nodiscard]] const process_group& group() const noexcept;
  /// Returns the separate group in which gradients on a device are averaged: for `synchronize` and `device_watch`.
  /// Throws usage_error where they are in host memory, or are averaged there, because another thread uses the group
  /// then.
  [[nodiscard]] const process_group& device_group(call_site where = call_site::current()) const;

 private:
  friend class join_scope;
  friend class accumulate;

  [[nodiscard]] std::span<std::byte> typed_gradient(std::size_t index, element_type type, call_site where);

  std::unique_ptr<detail::ddp_state> state_;
};

}  // namespace hfcomm
