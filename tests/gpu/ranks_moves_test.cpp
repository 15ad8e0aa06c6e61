// SPDX-License-Identifier: MIT
// Operations that only move data, among several ranks on one GPU.
#include <array>
#include <cstdint>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "ranks.hpp"

namespace {

using namespace hfcomm;
using gpu::as_index;
using gpu::each_of;
using gpu::require;

/// A type that reductions do not know, of an odd size.
struct particle {
  std::array<std::int16_t, 3> place;
  std::uint8_t charge;
  std::uint8_t colour;
  std::uint16_t turn;
  bool operator==(const particle&) const = default;
};

template <class T>
T value_of(int rank, std::size_t index) {
  if constexpr (std::is_same_v<T, particle>) {
    const auto low = static_cast<std::int16_t>(index % 30'011);
    return {{low, static_cast<std::int16_t>(rank), static_cast<std::int16_t>(index >> 10U)},
            static_cast<std::uint8_t>(rank),
            static_cast<std::uint8_t>(index),
            static_cast<std::uint16_t>(index * 7)};
  } else {
    return static_cast<T>(static_cast<std::uint64_t>(index * 31 + as_index(rank) * 97 + 1));
  }
}

/// `count` values of a rank, from `first` on.
template <class T>
std::vector<T> values_of(int rank, std::size_t count, std::size_t first = 0) {
  std::vector<T> values(count);
  for (std::size_t index = 0; index < count; ++index) {
    values[index] = value_of<T>(rank, first + index);
  }
  return values;
}

template <class T>
void append(std::vector<T>& all, const std::vector<T>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

template <class T>
void check(const std::vector<T>& got, const std::vector<T>& want, const char* what) {
  require(got == want, std::string(what) + " of " + std::to_string(want.size()) + " elements of " +
                           std::to_string(sizeof(T)) + " bytes");
}

constexpr auto lengths = each_of(0, 1, 3, 20'011);

template <class T>
void check_equal_parts(const gpu::stream& stream) {
  const int ranks = world().size();
  const int me = world().rank();
  const auto n = as_index(ranks);
  for (const std::size_t count : lengths) {
    std::vector<T> all;
    for (int rank = 0; rank < ranks; ++rank) {
      append(all, values_of<T>(rank, count));
    }
    const auto mine = gpu::on_device(values_of<T>(me, count), stream);
    for (const int root : {0, ranks - 1}) {
      auto data = gpu::on_device(values_of<T>(me, count), stream);
      broadcast(data, stream, root);
      check(gpu::on_host(data, stream), values_of<T>(root, count), "broadcast");

      device_buffer<T> gathered(me == root ? count * n : 0);
      gather(mine, gathered, stream, root);
      if (me == root) {
        check(gpu::on_host(gathered, stream), all, "gather");
      }
      device_buffer<T> back(count);
      scatter(gathered, back, stream, root);
      check(gpu::on_host(back, stream), values_of<T>(me, count), "scatter");
    }
    device_buffer<T> everyone(count * n);
    all_gather(mine, everyone, stream);
    check(gpu::on_host(everyone, stream), all, "all_gather");
    auto own = gpu::on_device(std::vector<T>(count * n), stream);
    copy(mine, own.span().subspan(count * as_index(me), count), stream);
    all_gather(own.span().subspan(count * as_index(me), count), own, stream);
    check(gpu::on_host(own, stream), all, "all_gather in place");

    std::vector<T> want;
    for (int rank = 0; rank < ranks; ++rank) {
      append(want, values_of<T>(rank, count, count * as_index(me)));
    }
    const auto parts = gpu::on_device(values_of<T>(me, count * n), stream);
    all_to_all(parts, everyone, stream);
    check(gpu::on_host(everyone, stream), want, "all_to_all");
  }
}

template <class T>
void check_uneven_parts(const gpu::stream& stream) {
  const int ranks = world().size();
  const auto n = as_index(ranks);
  const auto me = as_index(world().rank());
  std::vector<std::size_t> counts(n);
  std::vector<T> all;
  for (std::size_t rank = 0; rank < n; ++rank) {
    counts[rank] = rank * 3001 % 4097;  // rank 0 has nothing
    append(all, values_of<T>(static_cast<int>(rank), counts[rank]));
  }
  const std::span<const std::size_t> nobody;
  const auto mine = gpu::on_device(values_of<T>(world().rank(), counts[me]), stream);
  device_buffer<T> everyone(all.size());
  all_gather(mine, everyone, counts, stream);
  check(gpu::on_host(everyone, stream), all, "uneven all_gather");
  for (const int root : {0, ranks - 1}) {
    const bool leads = world().rank() == root;
    device_buffer<T> gathered(leads ? all.size() : 0);
    gather(mine, gathered, leads ? std::span<const std::size_t>(counts) : nobody, stream, root);
    if (leads) {
      check(gpu::on_host(gathered, stream), all, "uneven gather");
    }
    device_buffer<T> back(counts[me]);
    scatter(gathered, back, leads ? std::span<const std::size_t>(counts) : nobody, stream, root);
    check(gpu::on_host(back, stream), values_of<T>(world().rank(), counts[me]), "uneven scatter");
  }
  // Rank a sends 5 a + 11 b elements to rank b; its own part of the input begins behind those of the ranks before.
  const auto length = [](std::size_t from, std::size_t to) { return 5 * from + 11 * to; };
  std::vector<std::size_t> sent(n);
  std::vector<std::size_t> received(n);
  std::vector<T> want;
  for (std::size_t other = 0; other < n; ++other) {
    sent[other] = length(me, other);
    received[other] = length(other, me);
    std::size_t first = 0;
    for (std::size_t before = 0; before < me; ++before) {
      first += length(other, before);
    }
    append(want, values_of<T>(static_cast<int>(other), received[other], first));
  }
  const auto total = std::accumulate(sent.begin(), sent.end(), std::size_t{0});
  const auto parts = gpu::on_device(values_of<T>(world().rank(), total), stream);
  device_buffer<T> out(want.size());
  all_to_all(parts, sent, out, received, stream);
  check(gpu::on_host(out, stream), want, "uneven all_to_all");
}

void check_messages(const gpu::stream& stream) {
  const int ranks = world().size();
  const int me = world().rank();
  const int next = (me + 1) % ranks;
  const int before = (me + ranks - 1) % ranks;
  connect_device();
  for (const std::size_t count : each_of(1, 20'011)) {
    const auto mine = gpu::on_device(values_of<double>(me, count), stream);
    device_buffer<double> theirs(count);
    send_receive(mine, next, theirs, before, stream);
    check(gpu::on_host(theirs, stream), values_of<double>(before, count), "a ring");
    send_receive(mine, me, theirs, me, stream);
    check(gpu::on_host(theirs, stream), values_of<double>(me, count), "a message to oneself");
    // From rank to rank, one after the other.
    if (me > 0) {
      recv(theirs, stream, before);
      check(gpu::on_host(theirs, stream), values_of<double>(0, count), "a chain");
    }
    if (me < ranks - 1) {
      send(theirs, stream, next);
    }
    synchronize(stream);
    // Both ways in pairs, in one scope.
    device_buffer<double> swapped(count);
    {
      const nccl_group_scope together;
      send(mine, stream, me ^ 1);
      recv(swapped, stream, me ^ 1);
    }
    check(gpu::on_host(swapped, stream), values_of<double>(me ^ 1, count), "a pair");
    // Started ones: those of a pair are called in the same order, one way after the other.
    const auto there = [&] { isend(mine, stream, me ^ 1).synchronize(); };
    const auto here = [&] { irecv(swapped, stream, me ^ 1).synchronize(); };
    me % 2 == 0 ? there() : here();
    me % 2 == 0 ? here() : there();
    check(gpu::on_host(swapped, stream), values_of<double>(me ^ 1, count), "a started pair");
  }
}

TEST_CASE("ranks on a GPU: equal parts are exchanged") {
  gpu::at_two_and_four("ranks on a GPU: equal parts are exchanged", [](const gpu::stream& stream) {
    check_equal_parts<std::uint8_t>(stream);
    check_equal_parts<std::int16_t>(stream);
    check_equal_parts<float>(stream);
    check_equal_parts<particle>(stream);
  });
}

TEST_CASE("ranks on a GPU: uneven parts are exchanged") {
  gpu::at_two_and_four("ranks on a GPU: uneven parts are exchanged", [](const gpu::stream& stream) {
    check_uneven_parts<std::uint8_t>(stream);
    check_uneven_parts<std::int64_t>(stream);
    check_uneven_parts<particle>(stream);
  });
}

TEST_CASE("ranks on a GPU: messages are exchanged") {
  gpu::at_two_and_four("ranks on a GPU: messages are exchanged", check_messages);
}

TEST_CASE("barrier: on a stream it holds early devices, and not the host") {
  if (gpu::without_ranks("barrier: on a stream it holds early devices, and not the host")) {
    return;
  }
  gpu::run_ranks("barrier", 2, [](const gpu::stream& stream) {
    barrier(stream);
    synchronize(stream);
    if (world().rank() == 0) {
      barrier(stream);
      const bool busy = stream.busy();
      barrier();  // rank 1 has not come to the one on the stream before this one
      require(busy, "the stream did not wait for rank 1");
    } else {
      barrier();
      barrier(stream);
    }
    synchronize(stream);
  });
}

TEST_CASE("device checks: different operations are a mismatch_error and not a hang") {
  if (gpu::without_ranks("device checks: different operations are a mismatch_error and not a hang")) {
    return;
  }
  gpu::run_ranks("checks", 2, [](const gpu::stream& stream) {
    const auto checked = world().with_device_checks();
    auto data = gpu::on_device(std::vector<float>(64, 1.0F), stream);
    all_reduce(data, stream, reduce_op::sum, checked);
    synchronize(stream, checked);
    const auto length = as_index(world().rank()) + 5;
    (void)gpu::expect_error<mismatch_error>(
        [&] { all_reduce(data.span().first(length), stream, reduce_op::sum, checked); });
    gpu::drain(stream);
  });
}

TEST_CASE("device dictionaries: ranks on a GPU reduce maps of numbers") {
  if (gpu::without_ranks("device dictionaries: ranks on a GPU reduce maps of numbers")) {
    return;
  }
  gpu::run_ranks("maps", 2, [](const gpu::stream& stream) {
    const float mine = static_cast<float>(world().rank() + 1);
    auto loss = gpu::on_device(std::vector<float>{mine}, stream);
    auto error = gpu::on_device(std::vector<float>{10 * mine}, stream);
    std::map<std::string, device_span<float>> values{{"error", error.span()}, {"loss", loss.span()}};
    all_reduce_dict(values, stream, reduce_op::sum);
    synchronize(stream);
    require(gpu::on_host(loss, stream).front() == 3.0F, "loss");
    require(gpu::on_host(error, stream).front() == 30.0F, "error");
  });
}

}  // namespace
