// SPDX-License-Identifier: MIT
#include "ranks.hpp"
#include "toy_model.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <hfcomm/ddp.hpp>

namespace {

using namespace hfcomm;
using namespace multi_rank;

/// Values without gradients: those lie in the memory of distributed_data_parallel.
struct bare_model {
  explicit bare_model(const std::vector<std::size_t>& counts) {
    for (const std::size_t count : counts) {
      values.emplace_back(count);
    }
  }
  [[nodiscard]] std::vector<ddp_parameter> views() {
    std::vector<ddp_parameter> all;
    for (std::size_t index = 0; index < values.size(); ++index) {
      all.push_back(named_parameter('p' + std::to_string(index), values[index]));
    }
    return all;
  }
  std::vector<std::vector<float>> values;
};

const std::vector<std::size_t> counts{10, 1, 0, 300, 7, 5'000, 70'000, 2};
const std::vector<ddp_options> ways{{.first_bucket_bytes = 1, .bucket_bytes = 1},
                                    {.first_bucket_bytes = 1'000, .bucket_bytes = 30'000},
                                    {},
                                    {.bucket_bytes = 30'000, .find_unused_parameters = true},
                                    {.bucket_bytes = 30'000, .rebuild_buckets = false},
                                    {.bucket_bytes = 30'000, .static_graph = true},
                                    {.bucket_bytes = 30'000, .reduce_on_calling_thread = true}};

void fill(std::span<float> gradient, int rank, std::size_t index, int pass) {
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    gradient[i] = toy_model::gradient_of(rank, index, i, pass);
  }
}

bool is_average(std::span<const float> gradient, int ranks, std::size_t index, int pass) {
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    if (gradient[i] != toy_model::average_of(ranks, index, i, pass)) {
      return false;
    }
  }
  return true;
}

TEST_CASE("ddp gradients: those of its own memory are averaged there, whatever the buckets and the order") {
  at_every_size([](const process_group& world) {
    for (const auto& options : ways) {
      bare_model model(counts);
      distributed_data_parallel ddp(model.views(), {}, options);
      for (int pass = 0; pass < 5; ++pass) {
        ddp.begin_forward();
        for (std::size_t turn = 0; turn < counts.size(); ++turn) {
          const std::size_t index = pass % 2 == 0 ? turn : counts.size() - 1 - turn;
          fill(ddp.gradient<float>(index), world.rank(), index, pass);
          ddp.mark_ready(index);
        }
        ddp.finish();
        for (std::size_t index = 0; index < counts.size(); ++index) {
          CHECK(ddp.gradient<float>(index).size() == counts[index]);
          CHECK(is_average(ddp.gradient<float>(index), world.size(), index, pass));
          CHECK(ddp.used(index));
        }
        CHECK(ddp.last_pass().pass == static_cast<std::uint64_t>(pass) + 1);
        CHECK(ddp.last_pass().bytes == 75'320 * sizeof(float));
        CHECK(ddp.last_pass().buckets == ddp.bucket_count());
        const bool copies = options.find_unused_parameters && world.size() > 1;
        CHECK(ddp.last_pass().copied_bytes == (copies ? ddp.last_pass().bytes : 0));
      }
    }
    check_usable(world);
  });
}

TEST_CASE("ddp gradients: they begin as zeros, and are kept beyond the object") {
  at_every_size([](const process_group& world) {
    bare_model model({100, 3});
    std::shared_ptr<void> keeper;
    std::span<float> gradient;
    {
      distributed_data_parallel ddp(model.views());
      gradient = ddp.gradient<float>(0);
      CHECK(std::ranges::all_of(gradient, [](float element) { return element == 0.0F; }));
      keeper = ddp.gradient_memory(0);
      for (const std::size_t index : each_of(0, 1)) {
        fill(ddp.gradient<float>(index), world.rank(), index, 0);
        ddp.mark_ready(index);
      }
      ddp.finish();
    }
    CHECK(is_average(gradient, world.size(), 0, 0));
  });
}

TEST_CASE("ddp gradients: buckets are filled anew once, in the order of rank 0, and content moves with them") {
  run_ranks(3, [](const process_group& world) {
    bare_model model({100, 100, 100, 100});
    distributed_data_parallel ddp(model.views(), {},
                                  {.first_bucket_bytes = 400, .bucket_bytes = 800});  // {3} {1, 2} {0}
    const auto run_pass = [&](const std::vector<std::size_t>& order, int number) {
      for (const std::size_t index : order) {
        fill(ddp.gradient<float>(index), world.rank(), index, number);
        ddp.mark_ready(index);
      }
      ddp.finish();
    };
    // Only rank 0 is asked for its order: {1} {3, 0} {2}.
    const std::vector<std::size_t> first =
        world.rank() == 0 ? std::vector<std::size_t>{1, 3, 0, 2} : std::vector<std::size_t>{2, 0, 1, 3};
    CHECK(ddp.gradient(1).data() + 400 == ddp.gradient(2).data());
    ddp.begin_forward();
    run_pass(first, 0);
    ddp.begin_forward();
    run_pass(first, 1);
    ddp.begin_forward();
    CHECK(ddp.gradient(0).data() + 400 == ddp.gradient(3).data());
    for (std::size_t index = 0; index < 4; ++index) {
      CHECK(is_average(ddp.gradient<float>(index), world.size(), index, 1));
    }
    const auto* const place = ddp.gradient(0).data();
    for (int pass = 2; pass < 5; ++pass) {
      run_pass({0, 1, 2, 3}, pass);
      ddp.begin_forward();
      CHECK(ddp.gradient(0).data() == place);
    }
    run_pass({3, 2, 1, 0}, 7);
    CHECK(is_average(ddp.gradient<float>(2), world.size(), 2, 7));
  });
}

TEST_CASE("ddp gradients: a gradient from elsewhere is copied; one that is there already is not") {
  at_every_size([](const process_group& world) {
    bare_model model({50, 20});
    distributed_data_parallel ddp(model.views());
    for (int pass = 0; pass < 3; ++pass) {
      ddp.begin_forward();
      {
        std::vector<float> elsewhere(20);
        fill(elsewhere, world.rank(), 1, pass);
        ddp.mark_ready(1, std::as_bytes(std::span(elsewhere)));
        std::ranges::fill(elsewhere, -1.0F);
      }
      fill(ddp.gradient<float>(0), world.rank(), 0, pass);
      ddp.mark_ready(0, ddp.gradient(0));
      ddp.finish();
      CHECK(is_average(ddp.gradient<float>(0), world.size(), 0, pass));
      CHECK(is_average(ddp.gradient<float>(1), world.size(), 1, pass));
      CHECK(ddp.last_pass().copied_bytes == 20 * sizeof(float));
    }
    const std::vector<float> wrong(19);
    CHECK_CONTAINS(error_of<usage_error>([&] { ddp.mark_ready(1, std::as_bytes(std::span(wrong))); }).what(),
                   "the gradient of parameter 1 has 80 bytes, not 76");
    CHECK_CONTAINS(error_of<usage_error>([&] { (void)ddp.gradient<double>(1); }).what(),
                   "parameter \"p1\" is of type float32, not float64");
    CHECK_CONTAINS(error_of<usage_error>([&] { (void)ddp.gradient(2); }).what(), "there is no parameter 2");
  });
}

TEST_CASE("ddp gradients: unused ones stay as they were, and are known; those used elsewhere get the average") {
  at_every_size([](const process_group& world) {
    bare_model model({5, 5, 5});
    distributed_data_parallel ddp(model.views(), {}, {.find_unused_parameters = true});
    for (int pass = 0; pass < 3; ++pass) {
      ddp.begin_forward();
      for (const std::size_t index : each_of(0, 1, 2)) {
        std::ranges::fill(ddp.gradient<float>(index), 7.0F);
      }
      ddp.mark_ready(0);
      if (world.rank() == world.size() - 1) {
        ddp.mark_ready(1);
      }
      ddp.finish();
      CHECK(ddp.used(0));
      CHECK(ddp.used(1));
      CHECK_FALSE(ddp.used(2));
      CHECK(ddp.gradient<float>(0)[4] == 7.0F);
      CHECK(ddp.gradient<float>(1)[4] == 7.0F / static_cast<float>(world.size()));
      CHECK(ddp.gradient<float>(2)[4] == 7.0F);
    }
  });
}

TEST_CASE("ddp gradients: one that was used inside no_sync only is averaged by the next pass, not lost") {
  at_every_size([](const process_group& world) {
    bare_model model({5, 5});
    distributed_data_parallel ddp(model.views(), {}, {.find_unused_parameters = true});
    {
      const auto guard = ddp.no_sync();
      ddp.begin_forward();
      fill(ddp.gradient<float>(0), world.rank(), 0, 0);
      ddp.mark_ready(0);
      ddp.finish();
    }
    ddp.begin_forward();
    fill(ddp.gradient<float>(1), world.rank(), 1, 0);
    ddp.mark_ready(1);
    ddp.finish();
    CHECK(is_average(ddp.gradient<float>(0), world.size(), 0, 0));
    CHECK(is_average(ddp.gradient<float>(1), world.size(), 1, 0));
  });
}

TEST_CASE("ddp gradients: in a static graph one may become ready several times, and another never") {
  at_every_size([](const process_group& world) {
    for (const bool owned : {true, false}) {
      bare_model bare({40, 60, 10});
      toy_model toy({40, 60, 10});
      distributed_data_parallel ddp(owned ? bare.views() : toy.views(), {},
                                    {.first_bucket_bytes = 1, .static_graph = true});
      for (int pass = 0; pass < 4; ++pass) {
        ddp.begin_forward();
        ddp.mark_ready(1);  // the first of two times: not final yet
        fill(ddp.gradient<float>(0), world.rank(), 0, pass);
        ddp.mark_ready(0);
        fill(ddp.gradient<float>(1), world.rank(), 1, pass);
        ddp.mark_ready(1);
        ddp.finish();
        CHECK(is_average(ddp.gradient<float>(0), world.size(), 0, pass));
        CHECK(is_average(ddp.gradient<float>(1), world.size(), 1, pass));
        CHECK(ddp.used(1));
        CHECK_FALSE(ddp.used(2));
      }
      ddp.begin_forward();
      ddp.mark_ready(0);
      CHECK_CONTAINS(error_of<usage_error>([&] { ddp.mark_ready(0); }).what(),
                     "more often than in the first pass, although static_graph is set");
      ddp.mark_ready(1);
      CHECK_CONTAINS(error_of<usage_error>([&] { ddp.finish(); }).what(),
                     "these parameters never became ready in this backward pass: \"p1\"");
      ddp.begin_forward();
      for (const std::size_t index : each_of(1, 0, 1)) {
        ddp.mark_ready(index);
      }
      ddp.finish();
    }
    check_usable(world);
  });
}

TEST_CASE("ddp gradients: a model whose memory has moved is bound anew") {
  at_every_size([](const process_group& world) {
    bare_model model({4});
    std::vector<float> running(3, static_cast<float>(world.rank()));
    distributed_data_parallel ddp(model.views(), {named_buffer("running", running)});
    std::vector<float> moved(3, static_cast<float>(world.rank() + 5));
    ddp.rebind_buffer(0, std::as_writable_bytes(std::span(moved)));
    std::vector<float> value(4);
    ddp.rebind_value(0, std::as_writable_bytes(std::span(value)));
    ddp.begin_forward();
    CHECK(moved[2] == 5.0F);
    CHECK(running[2] == 0.0F);
    CHECK_CONTAINS(error_of<usage_error>([&] { ddp.rebind_buffer(0, {}); }).what(), "buffer 0 has 12 bytes, not 0");
    CHECK_CONTAINS(error_of<usage_error>([&] { ddp.rebind_value(0, {}); }).what(),
                   "the values of parameter 0 has 16 bytes, not 0");
    CHECK_CONTAINS(error_of<usage_error>([&] { ddp.rebind_buffer(1, {}); }).what(), "there is no buffer 1");
  });
}

TEST_CASE("ddp gradients: parameters that share memory, and other layouts, are refused") {
  at_every_size([](const process_group& world) {
    std::vector<float> tied(10);
    const auto problem = error_of<usage_error>([&] {
      distributed_data_parallel ddp({named_parameter("a", tied), named_parameter("b", std::span(tied).subspan(9))});
    });
    CHECK_CONTAINS(problem.what(), "the values of the parameters \"a\" and \"b\" share memory");
    if (world.size() > 1) {
      std::vector<float> values(16);
      ddp_parameter parameter = named_parameter("w", values);
      parameter.layout = {world.rank() == 0 ? std::vector<std::int64_t>{2, 8} : std::vector<std::int64_t>{8, 2}, {}};
      const auto mismatch = error_of<mismatch_error>([&] { distributed_data_parallel ddp({parameter}); });
      CHECK_CONTAINS(mismatch.what(),
                     "rank 0 has \"w\" (16 x float32, sizes 2 x 8), rank 1 has \"w\" (16 x float32, "
                     "sizes 8 x 2)");
    }
    check_usable(world);
  });
}

}  // namespace
