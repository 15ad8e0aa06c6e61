// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <complex>
#include <concepts>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <sys/socket.h>
#include <sys/types.h>

#include <doctest/doctest.h>

#include <hfcomm/comm.hpp>
#include <hfcomm/serialization/encoding.hpp>

/// Whether a call is valid can be asked, of refused ones as well: the answers are constants.
namespace {

using namespace hfcomm;

struct widget {
  int x = 0;
};
struct flagged {
  bool on = false;
};

// One function object for each operation, so that a call can be asked for.
#define CALL(name)                                                     \
  constexpr auto call_##name = []<class... T>(T&&... arguments)        \
    requires requires { hfcomm::name(std::forward<T>(arguments)...); } \
  { return hfcomm::name(std::forward<T>(arguments)...); };             \
  template <class... T>                                                \
  constexpr bool may_##name = std::invocable<decltype(call_##name), T...>
CALL(all_gather);
CALL(all_gather_async);
CALL(gather);
CALL(gather_async);
CALL(broadcast);
CALL(broadcast_async);
CALL(scatter);
CALL(scatter_async);
CALL(all_to_all);
CALL(all_to_all_async);
CALL(reduce_scatter_async);
CALL(all_reduce);
CALL(all_reduce_async);
CALL(reduce);
CALL(reduce_async);
CALL(send);
CALL(isend);
CALL(recv);
CALL(irecv);
CALL(send_receive);
CALL(broadcast_object_list);
CALL(collect_results);
CALL(encode);
#undef CALL

template <class T>
concept may_be_received = requires {
  recv<T>(0);
  recv<T>(any_source);
  irecv<T>(0);
};

// Functions of other libraries stay those of a program with `using namespace hfcomm`.
static_assert(std::same_as<decltype(recv(0, std::declval<char*>(), 8UL, 0)), ::ssize_t>);
static_assert(std::same_as<decltype(send(0, std::declval<const char*>(), 8UL, 0)), ::ssize_t>);
template <class F>
double reduce(const std::vector<double>& values, F op);
static_assert(
    std::same_as<decltype(reduce(std::declval<std::vector<double>&>(), std::declval<double (*)(double, double)>())),
                 double>);

using numbers = std::vector<int>;
using widgets = std::vector<widget>;
using keep_first = decltype([](const widget& a, const widget&) { return a; });

static_assert(!may_all_gather<widget> && !may_all_gather<const widget&> && !may_all_gather_async<widget>);
static_assert(!may_gather<widget, int> && !may_gather_async<widget> && !may_broadcast<widget&>);
static_assert(!may_broadcast_async<widget&> && !may_scatter<widgets> && !may_scatter_async<widgets>);
static_assert(!may_all_to_all<widgets> && !may_all_to_all_async<widgets>);
static_assert(!may_all_reduce<widget, keep_first> && !may_all_reduce_async<widget, keep_first>);
static_assert(!may_reduce<widget, int, keep_first> && !may_reduce_async<widget, int, keep_first>);
static_assert(!may_send<widget, int> && !may_isend<widget, int> && !may_send_receive<widget, int, int>);
static_assert(!may_be_received<widget> && !may_be_received<int*> && !may_be_received<std::shared_ptr<int>>);
static_assert(!may_broadcast_object_list<widgets&> && !may_broadcast_object_list<std::tuple<int&, widget&>>);
static_assert(!may_collect_results<widgets, std::size_t> && !may_encode<widget, std::vector<std::byte>&>);
static_assert(!may_all_gather<std::map<int, std::shared_ptr<int>>> && !may_all_gather<int*> && !may_send<int*, int>);
static_assert(!may_recv<numbers&, int> && !may_irecv<numbers&, int> && !may_send_receive<numbers&, int, numbers&, int>);
static_assert(!may_all_reduce<const numbers&> && !may_all_reduce<std::vector<flagged>&>);
static_assert(!may_all_reduce<std::vector<std::complex<float>>&, decltype(reduce_op::min)>);
static_assert(!may_all_gather_async<numbers, numbers&> && !may_all_to_all_async<numbers, numbers&>);
static_assert(!may_reduce_scatter_async<numbers, numbers&> && !may_all_reduce_async<numbers>);

static_assert(may_all_gather<std::string> && may_all_gather<const numbers&>);
static_assert(may_all_gather<numbers&, numbers&> && may_all_gather_async<numbers&, numbers&>);
static_assert(may_all_gather<std::span<float>, std::span<float>> && may_gather<numbers, numbers&, int>);
static_assert(may_broadcast<numbers&> && may_broadcast<std::span<int>> && !may_broadcast<std::span<widget>>);
static_assert(may_broadcast<std::vector<std::span<float>>&> && may_broadcast_async<std::vector<std::span<float>>&>);
static_assert(may_all_reduce<std::vector<std::span<float>>&> && may_all_reduce_async<std::vector<std::span<float>>>);
static_assert(may_scatter<numbers> && may_scatter<numbers, numbers&, int> && may_all_to_all<numbers, numbers&>);
static_assert(may_all_to_all_async<numbers&, std::vector<std::size_t>, numbers&, std::vector<std::size_t>>);
static_assert(may_all_to_all_async<std::span<std::size_t>, std::vector<std::size_t>, std::span<std::size_t>,
                                   std::vector<std::size_t>>);
static_assert(may_reduce_scatter_async<numbers&, numbers&> && may_send<numbers, int> && may_isend<numbers, int>);
static_assert(may_recv<std::span<int>, int> && may_irecv<std::span<int>, int> && may_be_received<numbers>);
static_assert(may_be_received<std::string> && may_send_receive<std::span<int>, int, std::span<int>, int>);
static_assert(may_broadcast_object_list<numbers&> && may_broadcast_object_list<std::tuple<int&, std::string&>>);
static_assert(may_collect_results<numbers, std::size_t> && may_encode<numbers, std::vector<std::byte>&>);

using add_numbers = decltype([](int a, int b) { return a + b; });
using add_anything = decltype([](auto a, auto b) { return a + b; });
using greatest = decltype([](auto a, auto b) { return std::max(a, b); });
using join = decltype([](numbers a, const numbers& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
});
using join_texts = decltype([](auto a, const auto& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
});
using texts = std::vector<std::string>;

static_assert(!may_all_reduce<numbers, std::plus<>> && !may_all_reduce<numbers, add_numbers>);
static_assert(!may_all_reduce<numbers, add_anything> && !may_all_reduce<numbers, greatest>);
static_assert(!may_all_reduce<numbers, int (*)(int, int)> && !may_all_reduce<numbers, std::function<int(int, int)>>);
static_assert(!may_all_reduce<std::array<int, 2>, greatest> && !may_all_reduce_async<numbers, greatest>);
static_assert(!may_reduce<numbers, int, greatest> && !may_reduce_async<numbers, int, std::plus<>>);
static_assert(!may_all_reduce<std::vector<bool>, std::logical_or<bool>>);

static_assert(may_all_reduce<numbers, join> && may_all_reduce_async<numbers, join> && may_reduce<numbers, int, join>);
static_assert(may_reduce_async<numbers, int, join> && may_all_reduce<texts, join_texts>);
static_assert(may_all_reduce<numbers, numbers (*)(numbers, const numbers&)>);
static_assert(may_all_reduce<numbers, std::function<numbers(const numbers&, const numbers&)>>);
static_assert(may_all_reduce<std::string, std::plus<>> && may_all_reduce<int, greatest> &&
              may_all_reduce<int, add_anything>);
static_assert(may_all_reduce<std::span<int>, greatest> && may_all_reduce<std::span<int>, std::plus<>>);
static_assert(may_all_reduce<numbers&, decltype(reduce_op::max)&> && may_all_reduce<numbers&, reduce_op>);
static_assert(may_all_reduce<const numbers&, numbers&, decltype(reduce_op::max)&> &&
              may_reduce<numbers&, int, reduce_op>);
static_assert(may_all_reduce<double> && may_all_reduce<std::vector<std::complex<float>>&>);

template <class T>
using why = detail::why_no_object<T>;
template <class T>
using refusal = reason::not_serializable<T>;
struct base {
  virtual ~base() = default;
};

static_assert(std::same_as<why<numbers>, reason::none>);
static_assert(
    std::same_as<why<std::map<int, widget>>,
                 refusal<widget>::
                     give_it_a_serialize_member_or_save_and_load_or_enable_raw_bytes_or_include_hfcomm_aggregates_hpp>);
static_assert(std::same_as<why<std::weak_ptr<int>>,
                           refusal<std::weak_ptr<int>>::
                               shared_ownership_could_alias_objects_of_other_types_so_use_the_value_or_a_unique_ptr>);
static_assert(
    std::same_as<why<std::vector<const char*>>,
                 refusal<const char*>::a_raw_pointer_means_nothing_elsewhere_so_use_the_value_a_unique_ptr_or_a_span>);
static_assert(std::same_as<why<std::unique_ptr<int[]>>,
                           refusal<std::unique_ptr<int[]>>::
                               a_unique_ptr_needs_the_default_deleter_and_one_object_so_use_a_vector_for_an_array>);
static_assert(
    std::same_as<why<std::unique_ptr<base>>,
                 refusal<std::unique_ptr<base>>::
                     behind_a_polymorphic_pointer_derived_parts_would_be_lost_so_use_a_final_class_or_a_variant>);
static_assert(std::same_as<why<std::map<int, std::string_view>>,
                           refusal<std::string_view>::a_decoded_view_would_have_nothing_to_view_so_use_a_container>);

TEST_CASE("refused calls: a program can ask whether a call is valid, and go on without it") {
  const auto collected = []<class T>(const T& value) {
    if constexpr (may_all_gather<const T&>) {
      return all_gather(value).size();
    } else {
      return std::size_t{0};
    }
  };
  CHECK(collected(std::string("text")) == 1);
  CHECK(collected(widget()) == 0);
}

}  // namespace
