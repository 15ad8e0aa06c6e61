// SPDX-License-Identifier: MIT
#include "../multi_rank/ranks.hpp"

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include <hfcomm/collectives/all_gather.hpp>
#include <hfcomm/collectives/all_gather_v.hpp>
#include <hfcomm/collectives/all_reduce.hpp>
#include <hfcomm/collectives/all_to_all.hpp>
#include <hfcomm/collectives/broadcast.hpp>
#include <hfcomm/collectives/coalesced.hpp>
#include <hfcomm/collectives/exclusive_scan.hpp>
#include <hfcomm/collectives/gather.hpp>
#include <hfcomm/collectives/recv.hpp>
#include <hfcomm/collectives/reduce.hpp>
#include <hfcomm/collectives/reduce_scatter.hpp>
#include <hfcomm/collectives/scan.hpp>
#include <hfcomm/collectives/scatter.hpp>
#include <hfcomm/collectives/send.hpp>
#include <hfcomm/collectives/send_receive.hpp>

// An array of arrays is the memory of its innermost elements.
namespace {

using namespace hfcomm;
using namespace multi_rank;

template <class Array>
void fill(Array& array, double value) {
  for (auto& row : array) {
    std::fill(std::begin(row), std::end(row), value);
  }
}
template <class Array>
bool is_all(const Array& array, double value) {
  return std::all_of(std::begin(array), std::end(array), [&](const auto& row) {
    return std::all_of(std::begin(row), std::end(row), [&](double element) { return element == value; });
  });
}

TEST_CASE("arrays: reductions take double[2][3]") {
  at_every_size([](const process_group& world) {
    const double ranks = world.size();
    double in[2][3];
    double out[2][3];
    fill(in, 1);
    all_reduce(in, out, world);
    CHECK(is_all(out, ranks));
    all_reduce(out, reduce_op::max, world);
    CHECK(is_all(out, ranks));
    all_reduce_async(out, world).wait();
    CHECK(is_all(out, ranks * ranks));
    reduce(in, out, 0, world);
    CHECK(is_all(out, world.rank() == 0 ? ranks : ranks * ranks));
    scan(in, out, world);
    CHECK(is_all(out, world.rank() + 1));
    fill(out, 0);
    exclusive_scan(in, out, world);
    CHECK(is_all(out, world.rank()));
    all_reduce(std::span<double[3]>(out), [](double a, double b) { return a > b ? a : b; }, world);
    CHECK(is_all(out, ranks - 1));
    float cube[2][2][2] = {{{1, 2}, {3, 4}}, {{5, 6}, {7, 8}}};
    all_reduce(cube, world);
    CHECK(cube[1][0][1] == 6 * static_cast<float>(world.size()));
  });
}

TEST_CASE("arrays: what moves elements takes them, and spans of arrays") {
  run_ranks(2, [](const process_group& world) {
    const double mine = world.rank() + 1;
    double in[2][3];
    double all[4][3];
    double part[2][3];
    fill(in, mine);
    all_gather(in, all, world);
    CHECK(all[1][2] == 1);
    CHECK(all[2][0] == 2);
    fill(all, 0);
    gather(in, all, world);
    CHECK(all[3][2] == (world.rank() == 0 ? 2 : 0));
    all_gather(in, all, std::vector<int>{6, 6}, world);
    scatter(all, part, world);
    CHECK(is_all(part, mine));
    reduce_scatter(all, part, world);
    CHECK(is_all(part, 2 * mine));
    fill(all, mine);
    double came[4][3];
    all_to_all(all, came, world);
    CHECK(came[1][2] == 1);
    CHECK(came[2][0] == 2);
    CHECK(all_gather_v(part, world).counts == std::vector<std::size_t>{6, 6});

    const std::span<double[3]> rows = part;
    broadcast(rows, world);
    CHECK(is_all(part, 2));
    std::vector<std::span<double[3]>> list = {rows};
    all_reduce(list, reduce_op::sum, world);
    CHECK(is_all(part, 4));
    fill(in, mine);
    const int other = 1 - world.rank();
    send_receive(std::span<double[3]>(in), other, rows, other, world);
    CHECK(is_all(part, 3 - mine));
    if (world.rank() == 0) {
      send(std::span<const double[3]>(in), 1, world);
    } else {
      recv(rows, 0, world);
      CHECK(is_all(part, 1));
    }
  });
}

}  // namespace
