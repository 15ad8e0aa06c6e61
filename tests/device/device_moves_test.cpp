// SPDX-License-Identifier: MIT
#include <array>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "device_ranks.hpp"

namespace {

using namespace hfcomm;
using namespace device_ranks;

/// An element type that reductions do not have, larger than all of theirs.
struct particle {
  std::array<float, 3> place;
  int charge;
  bool operator==(const particle&) const = default;
};

particle particle_of(int rank, std::size_t index) {
  return {{static_cast<float>(rank), static_cast<float>(index), 0.5F}, rank * 100 + static_cast<int>(index)};
}
std::vector<particle> particles_of(int rank, std::size_t count) {
  std::vector<particle> made(count);
  for (std::size_t index = 0; index < count; ++index) {
    made[index] = particle_of(rank, index);
  }
  return made;
}

TEST_CASE("device broadcast: every rank gets the root's elements") {
  at_every_size([](const process_group& world, stream_ref stream) {
    for (int root = 0; root < world.size(); ++root) {
      for (const std::size_t count : each_of(0, 1, 1000)) {
        auto data = on_device(particles_of(world.rank(), count), stream);
        broadcast(data, stream, root, world);
        CHECK((on_host(data, stream) == particles_of(root, count)));
      }
    }
  });
}

TEST_CASE("device all_gather: parts may be equal, in place and uneven") {
  at_every_size([](const process_group& world, stream_ref stream) {
    const auto n = as_index(world.size());
    const auto me = as_index(world.rank());
    std::vector<particle> want;
    for (int rank = 0; rank < world.size(); ++rank) {
      const auto theirs = particles_of(rank, 7);
      want.insert(want.end(), theirs.begin(), theirs.end());
    }
    auto in = on_device(particles_of(world.rank(), 7), stream);
    device_buffer<particle> out(7 * n);
    all_gather(in, out, stream, world);
    CHECK((on_host(out, stream) == want));
    const auto mine = particles_of(world.rank(), 7);
    copy(mine, out.span().subspan(7 * me, 7), stream);
    all_gather(out.span().subspan(7 * me, 7), out, stream, world);
    CHECK((on_host(out, stream) == want));

    std::vector<std::size_t> counts(n);
    std::vector<std::int64_t> wanted;
    for (std::size_t rank = 0; rank < n; ++rank) {
      counts[rank] = rank % 3;
      wanted.insert(wanted.end(), counts[rank], static_cast<std::int64_t>(rank));
    }
    auto part = on_device(std::vector<std::int64_t>(counts[me], world.rank()), stream);
    device_buffer<std::int64_t> all(wanted.size());
    all_gather(part, all, counts, stream, world);
    CHECK((on_host(all, stream) == wanted));
  });
}

TEST_CASE("device gather and scatter: parts may be equal and uneven") {
  at_every_size([](const process_group& world, stream_ref stream) {
    const auto n = as_index(world.size());
    const auto me = as_index(world.rank());
    const int root = world.size() - 1;
    const bool leads = world.rank() == root;
    auto in = on_device(std::vector<float>(4, static_cast<float>(world.rank())), stream);
    device_buffer<float> out(leads ? 4 * n : 0);
    gather(in, out, stream, root, world);
    if (leads) {
      const auto got = on_host(out, stream);
      for (std::size_t rank = 0; rank < n; ++rank) {
        CHECK(got[4 * rank + 3] == static_cast<float>(rank));
      }
    }
    device_buffer<float> back(4);
    scatter(out, back, stream, root, world);
    CHECK((on_host(back, stream) == std::vector<float>(4, static_cast<float>(world.rank()))));

    std::vector<std::size_t> counts(n);
    std::iota(counts.begin(), counts.end(), std::size_t{0});
    const std::size_t total = n * (n - 1) / 2;
    auto part = on_device(std::vector<int>(me, world.rank()), stream);
    device_buffer<int> parts(leads ? total : 0);
    gather(part, parts, leads ? std::span<const std::size_t>(counts) : std::span<const std::size_t>(), stream, root,
           world);
    if (leads) {
      std::vector<int> want;
      for (std::size_t rank = 0; rank < n; ++rank) {
        want.insert(want.end(), rank, static_cast<int>(rank));
      }
      CHECK((on_host(parts, stream) == want));
    }
    device_buffer<int> returned(me);
    scatter(parts, returned, leads ? std::span<const std::size_t>(counts) : std::span<const std::size_t>(), stream,
            root, world);
    CHECK((on_host(returned, stream) == std::vector<int>(me, world.rank())));
  });
}

TEST_CASE("device all_to_all: parts may be equal and uneven") {
  at_every_size([](const process_group& world, stream_ref stream) {
    const auto n = as_index(world.size());
    std::vector<int> mine;
    std::vector<int> want;
    for (int other = 0; other < world.size(); ++other) {
      mine.insert(mine.end(), 3, world.rank() * 10 + other);
      want.insert(want.end(), 3, other * 10 + world.rank());
    }
    auto in = on_device(mine, stream);
    device_buffer<int> out(3 * n);
    all_to_all(in, out, stream, world);
    CHECK((on_host(out, stream) == want));

    // rank a sends a + 2 b elements to rank b
    std::vector<std::size_t> sent(n);
    std::vector<std::size_t> received(n);
    std::vector<std::int16_t> values;
    std::vector<std::int16_t> expected;
    for (std::size_t other = 0; other < n; ++other) {
      const auto me = as_index(world.rank());
      sent[other] = me + 2 * other;
      received[other] = other + 2 * me;
      values.insert(values.end(), sent[other], static_cast<std::int16_t>(me * 100 + other));
      expected.insert(expected.end(), received[other], static_cast<std::int16_t>(other * 100 + me));
    }
    auto from = on_device(values, stream);
    device_buffer<std::int16_t> to(expected.size());
    all_to_all(from, sent, to, received, stream, world);
    CHECK((on_host(to, stream) == expected));
  });
}

TEST_CASE("device messages: they go around a ring, to oneself and one way") {
  at_every_size([](const process_group& world, stream_ref stream) {
    connect_device(world);
    const int next = (world.rank() + 1) % world.size();
    const int before = (world.rank() + world.size() - 1) % world.size();
    auto mine = on_device(std::vector<double>(9, world.rank()), stream);
    device_buffer<double> theirs(9);
    send_receive(mine, next, theirs, before, stream, world);
    CHECK((on_host(theirs, stream) == std::vector<double>(9, before)));
    send_receive(mine, world.rank(), theirs, world.rank(), stream, world);
    CHECK((on_host(theirs, stream) == std::vector<double>(9, world.rank())));
    if (world.size() > 1 && world.rank() == 0) {
      send(mine, stream, 1, world);
    } else if (world.rank() == 1) {
      recv(theirs, stream, 0, world);
      CHECK((on_host(theirs, stream) == std::vector<double>(9, 0.0)));
    }
    barrier(stream, world);
    if (world.size() > 1 && world.rank() < 2) {
      auto work = world.rank() == 0 ? isend(mine, stream, 1, world) : irecv(theirs, stream, 0, world);
      work.synchronize();
      CHECK(work.done());
      CHECK((on_host(world.rank() == 0 ? mine : theirs, stream) == std::vector<double>(9, 0.0)));
    }
    synchronize(stream, world);
  });
}

TEST_CASE("device operations: a subgroup and several groups may be used") {
  at_every_size(
      [](const process_group& world, stream_ref stream) {
        const auto half = world.split(world.rank() % 2);
        auto data = on_device(std::vector<int>(5, 1), stream);
        all_reduce(data, stream, reduce_op::sum, half);
        CHECK((on_host(data, stream) == std::vector<int>(5, half.size())));
        all_reduce(data, stream, reduce_op::max, world);
        CHECK((on_host(data, stream) == std::vector<int>(5, (world.size() + 1) / 2)));
        CHECK(half.device_backend() == (half.size() == 1 ? "cuda" : "nccl"));
        CHECK(world.device_backend() == "nccl");
      },
      2);
}

}  // namespace
