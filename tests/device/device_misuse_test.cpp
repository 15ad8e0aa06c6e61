// SPDX-License-Identifier: MIT
#include <string>
#include <string_view>
#include <vector>

#include "device_ranks.hpp"

namespace {

using namespace hfcomm;
using namespace device_ranks;

TEST_CASE("device operations: a mistake made on every rank is a usage_error, and the group stays usable") {
  at_every_size([](const process_group& world, stream_ref stream) {
    connect_device(world);
    device_buffer<float> data(4);
    device_buffer<float> longer(5);
    CHECK(says(error_of<usage_error>([&] { all_reduce(data, longer, stream, reduce_op::sum, world); }),
               "the output has 5 elements, the input 4"));
    CHECK(says(error_of<usage_error>([&] { broadcast(data, stream, world.size(), world); }), "is not a rank"));
    CHECK(says(error_of<usage_error>([&] { reduce(data, stream, -1, reduce_op::sum, world); }), "root -1"));
    CHECK(says(error_of<usage_error>(
                   [&] { all_reduce(data.span().first(3), data.span().subspan(1, 3), stream, reduce_op::sum, world); }),
               "overlaps"));
    CHECK(
        says(error_of<usage_error>([&] { all_reduce(device_span<float>(nullptr, 4), stream, reduce_op::sum, world); }),
             "at address 0"));
    CHECK(says(error_of<usage_error>([&] { send(data, stream, world.rank(), world); }), "oneself"));
    CHECK(says(error_of<usage_error>([&] { recv(data, stream, world.size(), world); }), "is not a rank"));
    device_buffer<int> whole(4);
    CHECK(says(error_of<usage_error>([&] { all_reduce(whole, stream, reduce_op::bit_or, world); }), "bitwise or"));
    CHECK(says(error_of<usage_error>([&] { all_reduce(whole, stream, reduce_op::logical_or, world); }), "logical or"));
    const std::vector<float> ones(4, 1.0F);
    copy(ones, data, stream);
    all_reduce(data, stream, reduce_op::sum, world);
    CHECK((on_host(data, stream) == std::vector<float>(4, static_cast<float>(world.size()))));
    CHECK_FALSE(world.broken());
  });
}

TEST_CASE("device operations: counts that exceed any memory are a usage_error") {
  at_every_size([](const process_group& world, stream_ref stream) {
    connect_device(world);
    device_buffer<float> data(4);
    const device_span<float> huge(data.data(), ~std::size_t{0} / sizeof(float));
    const std::vector<std::size_t> counts(as_index(world.size()), 1);
    const auto refuses = [&](auto operation) {
      CHECK_CONTAINS(error_of<usage_error>(operation).what(), "no memory has room for");
      CHECK_FALSE(world.broken());
    };
    refuses([&] { all_reduce(huge, stream, reduce_op::sum, world); });
    refuses([&] { all_reduce(data, huge, stream, reduce_op::sum, world); });
    refuses([&] { reduce(huge, stream, 0, reduce_op::sum, world); });
    refuses([&] { reduce_scatter(huge, data, stream, reduce_op::sum, world); });
    refuses([&] { reduce_scatter(huge, data, counts, stream, reduce_op::sum, world); });
    refuses([&] { broadcast(huge, stream, 0, world); });
    refuses([&] { all_gather(huge, data, stream, world); });
    refuses([&] { all_gather(data, huge, counts, stream, world); });
    refuses([&] { gather(huge, data, stream, 0, world); });
    refuses([&] { gather(huge, data, counts, stream, 0, world); });
    refuses([&] { scatter(data, huge, stream, 0, world); });
    refuses([&] { scatter(data, huge, counts, stream, 0, world); });
    refuses([&] { all_to_all(huge, data, stream, world); });
    refuses([&] { all_to_all(data, counts, huge, counts, stream, world); });
    refuses([&] { send_receive(huge, world.rank(), data, world.rank(), stream, world); });
    refuses([&] { (void)broadcast_async(huge, stream, 0, world); });
  });
}

TEST_CASE("device operations: an empty list of counts does not mean equal parts") {
  at_every_size([](const process_group& world, stream_ref stream) {
    connect_device(world);
    device_buffer<float> whole(2 * as_index(world.size()));
    device_buffer<float> part(2);
    const std::vector<std::size_t> none;
    const std::string text = " has 0 counts for " + std::to_string(world.size()) + " ranks";
    CHECK_CONTAINS(
        error_of<usage_error>([&] { reduce_scatter(whole, part, none, stream, reduce_op::sum, world); }).what(),
        "the input" + text);
    CHECK_CONTAINS(error_of<usage_error>([&] { all_gather(part, whole, none, stream, world); }).what(),
                   "the output" + text);
    CHECK_FALSE(world.broken());
  });
}

TEST_CASE("device operations: errors about parts have the texts of the host's forms") {
  at_every_size([](const process_group& world, stream_ref stream) {
    connect_device(world);
    const auto ranks = as_index(world.size());
    device_buffer<float> longer(2 * ranks + 1);
    device_buffer<float> whole(2 * ranks);
    device_buffer<float> part(2);
    device_buffer<float> other(3);
    const auto refuses = [&](const std::string& text, auto operation) {
      CHECK_CONTAINS(error_of<usage_error>(operation).what(), text);
      CHECK_FALSE(world.broken());
    };
    const std::string each = " elements, but " + std::to_string(world.size()) + " ranks ";
    refuses("the input has " + std::to_string(2 * ranks + 1) + each + "get 2 each",
            [&] { reduce_scatter(longer, part, stream, reduce_op::sum, world); });
    refuses("the output has " + std::to_string(2 * ranks + 1) + each + "contribute 2 each",
            [&] { all_gather(part, longer, stream, world); });
    refuses("the output has " + std::to_string(2 * ranks + 1) + " elements, the input " + std::to_string(2 * ranks),
            [&] { all_to_all(whole, longer, stream, world); });
    const std::vector<std::size_t> twos(ranks, 2);
    refuses("the input has 3 elements, the count of rank " + std::to_string(world.rank()) + " is 2",
            [&] { all_gather(other, whole, twos, stream, world); });
    refuses("the output has 3 elements, the count of rank " + std::to_string(world.rank()) + " is 2",
            [&] { reduce_scatter(whole, other, twos, stream, reduce_op::sum, world); });
  });
}

TEST_CASE("device operations: memory that is not the device's is an error before NCCL sees it") {
  at_every_size([](const process_group& world, stream_ref stream) {
    connect_device(world);
    std::vector<float> ordinary(4, 1.0F);
    CHECK(says(error_of<usage_error>(
                   [&] { all_reduce(device_span<float>(ordinary.data(), 4), stream, reduce_op::sum, world); }),
               "host memory"));
    pinned_buffer<float> pinned(4);
    CHECK(says(error_of<usage_error>([&] { broadcast(device_span<float>(pinned.data(), 4), stream, 0, world); }),
               "pinned host memory"));
    if (world.size() > 1) {
      const auto& api = cuda::runtime();
      REQUIRE(api.cudaSetDevice((world.rank() + 1) % world.size()) == cudaSuccess);
      device_buffer<float> elsewhere(4);
      REQUIRE(api.cudaSetDevice(world.rank()) == cudaSuccess);
      CHECK(says(error_of<usage_error>([&] { all_reduce(elsewhere, stream, reduce_op::sum, world); }),
                 "for which this group has no communicator"));
      device_buffer<float> here(4);
      CHECK(says(error_of<usage_error>([&] { all_reduce(here, elsewhere, stream, reduce_op::sum, world); }),
                 "the input is on device"));
    }
  });
}

TEST_CASE("device operations: two ranks on one GPU are an error that names both") {
  const fake_cuda::install fake;
  testing::run_ranks(3, [](const process_group& world) {
    REQUIRE(cuda::runtime().cudaSetDevice(world.rank() == 2 ? 0 : world.rank()) == cudaSuccess);
    const auto problem = error_of<usage_error>([&] { connect_device(world); });
    CHECK(says(problem, "ranks 0 and 2 use the same GPU"));
    CHECK_FALSE(world.broken());
    REQUIRE(cuda::runtime().cudaSetDevice(world.rank()) == cudaSuccess);
    connect_device(world);
    connect_device(world);  // again: nothing happens
    CHECK(world.device_backend() == "nccl");
  });
  CHECK(fake_cuda::live().communicators == 0);
}

TEST_CASE("device operations: with device checks the ranks compare them over the host plane") {
  const fake_cuda::install fake;
  run_devices(3, [](const process_group& world, stream_ref stream) {
    const auto checked = world.with_device_checks();
    device_buffer<float> data(8);
    const auto count = world.rank() == 2 ? 7U : 8U;
    const auto problem =
        error_of<mismatch_error>([&] { all_reduce(data.span().first(count), stream, reduce_op::sum, checked); });
    CHECK(problem.first_rank() == 0);
    CHECK(problem.second_rank() == 2);
    CHECK(says(problem, "device_misuse_test.cpp"));
    const auto ops = error_of<mismatch_error>([&] {
      world.rank() == 1 ? broadcast(data, stream, 0, checked) : all_reduce(data, stream, reduce_op::sum, checked);
    });
    CHECK(says(ops, "device broadcast"));
    CHECK(says(ops, "device all_reduce"));
    CHECK((error_of<mismatch_error>([&] { broadcast(data, stream, world.rank() % 2, checked); }).second_rank() == 1));
    const auto kinds = error_of<mismatch_error>([&] {
      world.rank() == 1 ? all_reduce(data, stream, reduce_op::max, checked)
                        : all_reduce(data, stream, reduce_op::min, checked);
    });
    CHECK(says(kinds, "8 x float32, min"));
    CHECK(says(kinds, "8 x float32, max"));
    device_buffer<std::int32_t> integers(8);
    const auto types = error_of<mismatch_error>([&] {
      world.rank() == 2 ? all_reduce(integers, stream, reduce_op::max, checked)
                        : all_reduce(data, stream, reduce_op::max, checked);
    });
    CHECK(says(types, "8 x int32"));
    CHECK(types.second_rank() == 2);
    all_reduce(data, stream, reduce_op::min, checked);
    synchronize(stream, world);
  });
}

TEST_CASE("device operations: with device checks the ranks compare the lengths of uneven parts") {
  const fake_cuda::install fake;
  run_devices(3, [](const process_group& world, stream_ref stream) {
    const auto checked = world.with_device_checks();
    const int me = world.rank();
    device_buffer<float> data(12);
    device_buffer<float> other(12);
    using counts = std::vector<std::size_t>;
    const auto differ = [&](int first, int second, const char* text, auto operation) {
      INFO(text);
      const auto problem = error_of<mismatch_error>(operation);
      CHECK(problem.first_rank() == first);
      CHECK(problem.second_rank() == second);
      CHECK_CONTAINS(problem.what(), text);
      CHECK_CONTAINS(problem.what(), "rank " + std::to_string(first) + " called device ");
      CHECK_CONTAINS(problem.what(), "device_misuse_test.cpp");
    };
    const auto first = [](auto& buffer, std::size_t size) { return buffer.span().first(size); };
    const std::size_t mine = as_index(me) + 1;
    const counts right = {1, 2, 3};
    const counts wrong = {1, 2, 4};

    differ(2, 0, "rank 2 sends 3 x float32 to rank 0, which expects 4 x float32 from it", [&] {
      gather(first(data, mine), first(other, me == 0 ? 7 : 0), me == 0 ? wrong : counts(), stream, 0, checked);
    });
    differ(0, 2, "rank 0 sends 4 x float32 to rank 2, which expects 3 x float32 from it", [&] {
      scatter(first(data, me == 0 ? 7 : 0), first(other, mine), me == 0 ? wrong : counts(), stream, 0, checked);
    });
    differ(2, 1, "rank 2 sends 3 x float32 to rank 1, which expects 4 x float32 from it", [&] {
      all_gather(first(data, mine), first(other, me == 1 ? 7 : 6), me == 1 ? wrong : right, stream, checked);
    });
    differ(1, 2, "rank 1 sends 4 x float32 to rank 2, which expects 3 x float32 from it", [&] {
      reduce_scatter(first(data, me == 1 ? 7 : 6), first(other, mine), me == 1 ? wrong : right, stream, reduce_op::sum,
                     checked);
    });
    differ(0, 1, "rank 0 sends 3 x float32 to rank 1, which expects 2 x float32 from it", [&] {
      const counts sent = me == 0 ? counts{1, 3, 2} : counts{1, 2, 2};
      const counts expected = me == 1 ? counts{2, 2, 2} : me == 0 ? counts{1, 1, 1} : counts{2, 2, 2};
      all_to_all(first(data, me == 0 ? 6 : 5), sent, first(other, me == 0 ? 3 : 6), expected, stream, checked);
    });

    // One rank takes the form for equal parts.
    const auto forms = error_of<mismatch_error>([&] {
      me == 2 ? reduce_scatter(first(data, 6), first(other, 2), stream, reduce_op::sum, checked)
              : reduce_scatter(first(data, 6), first(other, mine), right, stream, reduce_op::sum, checked);
    });
    CHECK_CONTAINS(forms.what(), "device reduce_scatter(6 x float32 in uneven parts, sum)");
    CHECK_CONTAINS(forms.what(), "device reduce_scatter(6 x float32, sum)");

    // What a rank can see alone is its own mistake, which the others hear of before anything is on their devices.
    const auto own = [&](int culprit, const char* text, auto operation) {
      INFO(text);
      if (me == culprit) {
        CHECK_CONTAINS(error_of<usage_error>(operation).what(), text);
      } else {
        const auto problem = error_of<peer_error>(operation);
        CHECK(problem.peer() == culprit);
        CHECK_CONTAINS(problem.what(), text);
      }
    };
    own(1, "the output has 2 counts for 3 ranks",
        [&] { all_gather(first(data, mine), first(other, 6), me == 1 ? counts{1, 2} : right, stream, checked); });
    own(2, "the part for itself has 3 elements where it is sent and 4 where it is received", [&] {
      all_gather(first(data, mine), first(other, me == 2 ? 7 : 6), me == 2 ? wrong : right, stream, checked);
    });
    own(0, "the root's output has 6 elements, its counts add up to 7", [&] {
      gather(first(data, mine), first(other, me == 0 ? 6 : 0), me == 0 ? wrong : counts(), stream, 0, checked);
    });
    own(2, "the part for itself has 4 elements where it is sent and 3 where it is received", [&] {
      scatter(first(data, me == 2 ? 7 : 0), first(other, mine), me == 2 ? wrong : counts(), stream, 2, checked);
    });
    own(1, "whose sum no number can hold", [&] {
      const counts huge = {1, ~std::size_t{0}, 2};
      all_to_all(first(data, 6), me == 1 ? huge : counts{2, 2, 2}, first(other, 6), counts{2, 2, 2}, stream, checked);
    });

    to_device(std::vector<float>(12, static_cast<float>(me)), data, stream);
    all_gather(first(data, mine), first(other, 6), right, stream, checked);
    gather(first(data, mine), first(other, me == 2 ? 6 : 0), me == 2 ? right : counts(), stream, 2, checked);
    scatter(first(other, 6), first(data, mine), right, stream, 2, checked);
    reduce_scatter(first(other, 6), first(data, mine), right, stream, reduce_op::sum, checked);
    all_to_all(first(data, 6), counts{2, 2, 2}, first(other, 6), counts{2, 2, 2}, stream, checked);
    synchronize(stream, world);
    CHECK_FALSE(world.broken());
  });
}

TEST_CASE("device operations: a rank that refuses its part is named on those that wait for it") {
  const fake_cuda::install fake;
  testing::run_ranks(3, [](const process_group& world) {
    const rank_stream stream(world);
    connect_device(world);
    device_buffer<float> data(8);
    barrier(world);
    if (world.rank() == 1) {
      device_buffer<float> shorter(3);
      CHECK(says(error_of<usage_error>([&] { all_reduce(data, shorter, stream, reduce_op::sum, world); }),
                 "the output has 3 elements"));
    } else {
      // The first to wait breaks the group, perhaps before another of them has begun.
      const auto problem = error_of<peer_error>([&] {
        all_reduce(data, stream, reduce_op::sum, world);
        synchronize(stream, world);
      });
      CHECK(problem.peer() == 1);
      CHECK(says(problem, "the output has 3 elements"));
    }
    if (world.rank() != 1) {
      CHECK(world.broken());
      CHECK(error_of<peer_error>([&] { all_reduce(data, stream, reduce_op::sum, world); }).peer() == 1);
    }
  });
  CHECK(fake_cuda::live().communicators == 0);
}

TEST_CASE("device operations: a program without the device plane gets an error that names the header") {
  const auto factory = hfcomm::detail::device_engines().exchange(nullptr);
  testing::run_ranks(2, [](const process_group& world) {
    device_buffer<float> none;
    const auto problem =
        error_of<usage_error>([&] { all_reduce(none, stream_ref::legacy_default(), reduce_op::sum, world); });
    CHECK(says(problem, "include <hfcomm/nccl.hpp>"));
  });
  hfcomm::detail::device_engines().store(factory);
}

}  // namespace
