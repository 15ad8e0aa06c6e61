// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <vector>

#include <hfcomm/core/element_type.hpp>
#include <hfcomm/core/stream_ref.hpp>
#include <hfcomm/ddp/parameter.hpp>
#include <hfcomm/engine/reduction/kernel.hpp>
#include <hfcomm/group/process_group.hpp>
#include <hfcomm/group/work.hpp>
#include <hfcomm/group/work_coroutine.hpp>

namespace hfcomm {

/// A parameter's part of a gradient_bucket.
struct bucket_gradient {
  const std::string& name;
  const tensor_layout& layout;  ///< Of the parameter; empty where it was not given.
  std::size_t begin;            ///< Its first element in the bucket.
  std::size_t count;            ///< Elements.
};

namespace detail {

/// Tells which averages of a hook have failed on this rank.
struct hook_outcome {
  std::atomic<bool> failed_on_all{false};     ///< One in the group of the buckets: on all ranks.
  std::atomic<bool> failed_elsewhere{false};  ///< One in another group: the ranks outside of it do not know.
};

}  // namespace detail

/// Gradients of one element type that are averaged together, as a communication_hook gets them. All ranks have the same
/// buckets in the same order. Valid until the hook's work is done.
class gradient_bucket {
 public:
  /// The parts of a bucket.
  struct description {
    std::span<std::byte> data{};
    element_type type = element_type::none;
    detail::reduction_kernel kernel = nullptr;  // not used on a device
    std::span<const bucket_gradient> gradients{};
    std::size_t index = 0;
    std::uint64_t pass = 0;
    int divisor = 1;
    std::optional<stream_ref> stream{};  // on a device
    process_group group;
    std::source_location where;
    std::shared_ptr<detail::hook_outcome> outcome{};
  };
  explicit gradient_bucket(const description& what) : what_(&what) {}

  /// Returns its place among the buckets of the pass, from 0. Buckets may be filled anew after the first pass, see
  /// `ddp_options::rebuild_buckets`: what is kept from pass to pass belongs to a parameter's name.
  [[nodiscard]] std::size_t index() const noexcept { return what_->index; }
  /// Returns the number of the backward pass, from 1; those inside `no_sync` count.
  [[nodiscard]] std::uint64_t pass() const noexcept { return what_->pass; }
  [[nodiscard]] element_type type() const noexcept { return what_->type; }
  /// Returns the parameters whose gradients lie here, in the order of their memory.
  [[nodiscard]] std::span<const bucket_gradient> gradients() const noexcept { return what_->gradients; }
  /// Returns the bytes of the gradients: this rank's, and the averages when the hook's work is done. On a device where
  /// `on_device`.
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return what_->data; }
  /// The same as elements. T must be of `type`: float, double, float16 or bfloat16.
  template <detail::gradient_element T>
  [[nodiscard]] std::span<T> elements() const {
    require_type(element_type_of<T>);
    return {reinterpret_cast<T*>(bytes().data()), bytes().size() / sizeof(T)};
  }
  /// Returns by what a sum over the ranks is to be divided: the number of ranks, or of those that a join_scope counts.
  [[nodiscard]] int divisor() const noexcept { return what_->divisor; }
  /// Returns the group in which the hook communicates. Nobody else uses it.
  [[nodiscard]] const process_group& group() const noexcept { return what_->group; }
  [[nodiscard]] bool on_device() const noexcept { return what_->stream.has_value(); }
  /// Returns the stream on which the gradients of a device are final, and on which the averages must be. Empty in host
  /// memory.
  [[nodiscard]] const std::optional<stream_ref>& stream() const noexcept { return what_->stream; }
  [[nodiscard]] std::source_location where() const noexcept { return what_->where; }

  /// Starts to average elements in host memory, of any length that is equal on all ranks: their sum (see reduce_op),
  /// divided by `divisor`. 16-bit elements are summed in float and rounded once. In place; the work is done when every
  /// element is the average.
  template <detail::gradient_element T>
  [[nodiscard]] work<void> average(std::span<T> values) const {
    constexpr element_type type = element_type_of<T>;
    return average_bytes(type, &detail::reduce_elements<type>, std::as_writable_bytes(values));
  }
  /// Starts to average the bucket's gradients, as without a hook.
  [[nodiscard]] work<void> average() const;
  /// Starts to average the bucket's gradients in host memory over the ranks of another group, which nobody else uses
  /// meanwhile.
  [[nodiscard]] work<void> average_within(const process_group& other) const;

 private:
  void require_type(element_type wanted) const;
  [[nodiscard]] work<void> average_bytes(element_type type, detail::reduction_kernel kernel,
                                         std::span<std::byte> bytes) const;

  const description* what_;
};

/// A function that distributed_data_parallel calls for each bucket instead of averaging it. When its work is done, the
/// bucket must hold the averages, the same bits on all ranks. It is usually a coroutine:
///
///     hfcomm::work<void> halve_and_average(hfcomm::gradient_bucket bucket) {
///       for (float& one : bucket.elements<float>()) one /= 2;
///       co_await bucket.average();
///     }
///
/// The next bucket's call comes when the work is done, so the ranks communicate in one order, and what a hook keeps
/// needs no lock. It is called on the thread that reduces, while backward continues on the caller's; for gradients on a
/// device on the caller's thread. Not in a group of one. It may call every operation of `gradient_bucket::group`,
/// blocking ones too. Every pass ends with one more operation of that group, in which the ranks tell each other whether
/// a hook has failed.
///
/// An exception of a hook ends the pass: `finish` throws it on this rank, and peer_error with its text on the others.
/// An error of hfcomm that tells of an operation is taken for one of `gradient_bucket::group`, which the others have as
/// well. So use `average_within` in another group, or throw another exception. On a device `mark_ready` may throw it,
/// and the others' devices wait for this rank: see distributed_data_parallel.
///
/// The destructor of distributed_data_parallel ends operations of `gradient_bucket::group`; a hook that waits in
/// another group is waited for, until that group's deadline. (torch's register_comm_hook; there, futures of several
/// buckets overlap.)
using communication_hook = std::function<work<void>(gradient_bucket)>;

namespace detail {

/// Throws usage_error where the gradients are on a device.
void require_host_bucket(const gradient_bucket& bucket, const char* hook);

template <class Narrow, class Wide>
[[nodiscard]] work<void> average_narrowed(gradient_bucket bucket) {
  const auto gradients = bucket.elements<Wide>();
  std::vector<Narrow> sent(gradients.size());
  std::ranges::transform(gradients, sent.begin(), [](Wide value) { return Narrow(static_cast<float>(value)); });
  co_await bucket.average(std::span(sent));
  std::ranges::transform(sent, gradients.begin(), [](Narrow value) { return static_cast<Wide>(float(value)); });
}

}  // namespace detail

/// Returns a hook that sends gradients of 32 and 64 bits as float16 or bfloat16: half the bytes, or a quarter. Each
/// rank's gradients are rounded, and their average once more. Values beyond 65504 become infinity in float16; bfloat16
/// has the range of float, and 8 significant bits instead of 11. Gradients of 16 bits are sent as they are. For host
/// memory (usage_error otherwise). (torch's fp16_compress_hook and bf16_compress_hook, which sum in 16 bits.)
template <class Narrow>
  requires detail::gradient_element<Narrow> && (sizeof(Narrow) == 2)
[[nodiscard]] communication_hook compress_gradients() {
  return [](gradient_bucket bucket) {
    detail::require_host_bucket(bucket, "compress_gradients");
    switch (bucket.type()) {
      case element_type::float32: return detail::average_narrowed<Narrow, float>(bucket);
      case element_type::float64: return detail::average_narrowed<Narrow, double>(bucket);
      default: return bucket.average();
    }
  };
}

}  // namespace hfcomm
