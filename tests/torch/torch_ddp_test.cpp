// SPDX-License-Identifier: MIT
#include "nets.hpp"

#include <set>
#include <sstream>
#include <stdexcept>

namespace {

using namespace torch_ranks;
using hfcomm::mismatch_error;
using hfcomm::peer_error;
using hfcomm::usage_error;
namespace ht = hfcomm::torch;

/// Returns an input of which each rank has another one.
at::Tensor input_of(const process_group& world, std::int64_t width) {
  return numbers({4, width}, at::kFloat, world.rank());
}

/// Returns the mean over the ranks of what `make(rank)` returns.
template <class Make>
at::Tensor mean_over_ranks(const process_group& world, Make make) {
  at::Tensor sum = make(0);
  for (int rank = 1; rank < world.size(); ++rank) {
    sum = sum + make(rank);
  }
  return sum / world.size();
}

/// Returns the expected gradient of a linear layer's weight whose outputs are added up.
at::Tensor expected_weight_gradient(const process_group& world) {
  return mean_over_ranks(world,
                         [](int rank) { return numbers({4, 4}, at::kFloat, rank).sum(0).expand({2, 4}).contiguous(); });
}

/// A pass that uses all of a `two_parts`.
void run_pass(ht::distributed_data_parallel<two_parts>& ddp, const process_group& world) {
  ddp.forward(input_of(world, 4), true, true).backward();
}

bool is_averaged(const at::Tensor& parameter, const process_group& world) {
  return parameter.grad().defined() && difference(parameter.grad(), expected_weight_gradient(world)) < 1e-6;
}

TEST_CASE("torch ddp: every rank begins with the parameters and buffers of rank 0") {
  at_each_size([](const process_group& world) {
    auto net = make_net<cnn>(world.rank());
    net->norm->running_mean.fill_(world.rank() + 1);
    const ht::distributed_data_parallel ddp(net);
    for (const auto& parameter : net->parameters()) {
      check_same_tensor(parameter, world);
    }
    CHECK(net->norm->running_mean[0].item<float>() == 1.0F);
    CHECK(ddp.module() == net);
    CHECK(ht::unwrap(ddp) == net);
    CHECK(ht::unwrap(net) == net);
    CHECK(ddp.group() == world);
  });
}

TEST_CASE("torch ddp: a gradient lies where it is reduced, and is copied only where zero_grad dropped it") {
  at_each_size(
      [](const process_group& world) {
        for (const bool drops : {false, true}) {
          auto net = make_net<two_parts>(0);
          ht::distributed_data_parallel ddp(net, {.ddp = {.rebuild_buckets = false}});
          for (int pass = 0; pass < 3; ++pass) {
            for (auto& parameter : net->parameters()) {
              if (drops) {
                parameter.mutable_grad().reset();
              } else if (parameter.grad().defined()) {
                parameter.mutable_grad().zero_();
              }
            }
            run_pass(ddp, world);
            CHECK(is_averaged(net->one->weight, world));
            CHECK(ddp.last_pass().bytes == 20 * sizeof(float));
            CHECK(ddp.last_pass().copied_bytes == (drops || pass == 0 ? 20 * sizeof(float) : 0));
          }
        }
      },
      2);
}

TEST_CASE("torch ddp: a gradient follows its memory when buckets are filled anew, and keeps its content") {
  at_each_size(
      [](const process_group& world) {
        auto net = make_net<two_parts>(0);
        ht::distributed_data_parallel ddp(net, {.ddp = {.first_bucket_bytes = 40, .bucket_bytes = 40}});
        const auto pass_in_order_of_registration = [&] {
          const at::Tensor x = input_of(world, 4);
          const at::Tensor other = ddp.forward(x, false, true);
          (other + net->one->forward(x).sum()).backward();
        };
        std::set<const void*> places;
        for (int pass = 1; pass < 6; ++pass) {
          {
            const auto guard = ddp.no_sync();
            pass_in_order_of_registration();
            CHECK_FALSE(ddp.synchronizes());
          }
          pass_in_order_of_registration();
          places.insert(net->one->weight.grad().data_ptr());
          CHECK(ddp.last_pass().copied_bytes == (pass == 1 ? 20 * sizeof(float) : 0));
          for (const auto& weight : {net->one->weight, net->other->weight}) {
            CHECK(difference(weight.grad(), expected_weight_gradient(world) * 2 * pass) < 1e-5);
            check_same_tensor(weight.grad(), world);
          }
        }
        CHECK(places.size() == 2);
      },
      2);
}

TEST_CASE("torch ddp: torch::load into the module keeps the averaging") {
  at_each_size([](const process_group& world) {
    std::stringstream file;
    torch::save(make_net<cnn>(7), file);
    auto net = make_net<cnn>(world.rank());
    ht::distributed_data_parallel ddp(net);
    const auto pass = [&] {
      net->zero_grad();
      loss_of(ddp.forward(numbers({6, 2, 5, 5}, at::kFloat, world.rank())), numbers({6, 3})).backward();
      for (const auto& parameter : net->parameters()) {
        check_same_tensor(parameter.grad(), world);
      }
    };
    pass();
    const void* const before = net->last->weight.data_ptr();
    torch::load(net, file);
    CHECK(net->last->weight.data_ptr() != before);
    net->norm->running_mean.fill_(world.rank());
    pass();
    pass();
    CHECK(difference(net->last->weight, make_net<cnn>(7)->last->weight) == 0);
    net->eval();
    (void)ddp.forward(numbers({6, 2, 5, 5}));  // gives every rank the buffers of rank 0, in their new memory
    check_same_tensor(net->norm->running_mean, world);
  });
}

TEST_CASE("torch ddp: a module of another type or shape is a usage_error that names the parameter") {
  at_each_size(
      [](const process_group& world) {
        auto net = make_net<two_parts>(0);
        ht::distributed_data_parallel ddp(net);
        run_pass(ddp, world);
        if (world.rank() == 0) {
          net->to(at::kDouble);
          const auto problem = error_of<usage_error>([&] { ddp.forward(input_of(world, 4), true, true); });
          CHECK_CONTAINS(problem.what(), "\"one.weight\" was Float on cpu of sizes [2, 4]");
          CHECK_CONTAINS(problem.what(), "and is Double on cpu");
          net->to(at::kFloat);
        } else {
          const auto problem = error_of<peer_error>([&] { run_pass(ddp, world); });
          CHECK_CONTAINS(problem.what(), "make distributed_data_parallel anew");
          CHECK(problem.peer() == 0);
        }
        net->zero_grad();
        run_pass(ddp, world);
        CHECK(is_averaged(net->one->weight, world));
        check_usable(world);
      },
      2);
}

TEST_CASE("torch ddp: what no rank used stays undefined, and what another rank used is defined here") {
  at_each_size(
      [](const process_group& world) {
        auto net = make_net<two_parts>(0);
        net->register_module("never", torch::nn::Linear(1, 1));
        ht::distributed_data_parallel ddp(net, {.ddp = {.find_unused_parameters = true}});
        for (int pass = 0; pass < 3; ++pass) {
          for (auto& parameter : net->parameters()) {
            parameter.mutable_grad().reset();
          }
          ddp.forward(input_of(world, 4), true, world.rank() == 1).backward();
          CHECK(is_averaged(net->one->weight, world));
          const at::Tensor expected = numbers({4, 4}, at::kFloat, 1).sum(0).expand({2, 4}) / world.size();
          REQUIRE(net->other->weight.grad().defined());
          CHECK(difference(net->other->weight.grad(), expected) < 1e-6);
          for (const auto& item : net->named_parameters()) {
            CHECK(item.value().grad().defined() == (item.key().find("never") == std::string::npos));
          }
        }
      },
      2);
}

TEST_CASE("torch ddp: an unused parameter is an error out of backward that names it, and the next pass works") {
  at_each_size(
      [](const process_group& world) {
        auto net = make_net<two_parts>(0);
        ht::distributed_data_parallel ddp(net);
        const at::Tensor loss = ddp.forward(input_of(world, 4), true, world.rank() != 0);
        if (world.rank() == 0) {
          const auto problem = error_of<usage_error>([&] { loss.backward(); });
          CHECK_CONTAINS(problem.what(), "\"other.weight\", \"other.bias\"; set find_unused_parameters");
          CHECK_CONTAINS(problem.what(), "torch_ddp_test.cpp:");
        } else {
          CHECK_CONTAINS(error_of<peer_error>([&] { loss.backward(); }).what(), "\"other.weight\", \"other.bias\"");
        }
        net->zero_grad();
        run_pass(ddp, world);
        CHECK(is_averaged(net->other->weight, world));
      },
      2);
}

/// Fails in backward.
struct failing_function : torch::autograd::Function<failing_function> {
  static at::Tensor forward(torch::autograd::AutogradContext* /*context*/, const at::Tensor& x) { return x.clone(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* /*context*/,
                                                 const torch::autograd::variable_list& /*gradients*/) {
    throw std::domain_error("no gradient today");
  }
};

/// Returns a loss whose backward fails, before any parameter has its gradient or in the middle.
at::Tensor failing_loss(ht::distributed_data_parallel<two_parts>& ddp, const at::Tensor& x, bool fails_early) {
  const auto failure = [] { return failing_function::apply(torch::ones({1}, at::requires_grad())).sum(); };
  if (fails_early) {
    const at::Tensor both = ddp.forward(x, true, true);
    return both + failure();  // backward runs the parts in the reverse of their order here
  }
  const at::Tensor one = ddp.forward(x, true, false);
  const at::Tensor between = failure();
  return one + between + ddp.module()->other->forward(x).sum();
}

TEST_CASE("torch ddp: an exception of the user's backward passes, and the next pass works") {
  at_each_size(
      [](const process_group& world) {
        for (const bool fails_early : {true, false}) {
          for (const bool abandons : {true, false}) {
            auto net = make_net<two_parts>(0);
            ht::distributed_data_parallel ddp(net);
            if (world.rank() == 1) {
              const at::Tensor loss = failing_loss(ddp, input_of(world, 4), fails_early);
              CHECK_THROWS_AS(loss.backward(), std::domain_error);
              if (abandons) {
                ddp.abandon_pass("no gradient today");
              } else if (!fails_early) {
                CHECK_CONTAINS(error_of<usage_error>([&] { run_pass(ddp, world); }).what(), "before finish");
              }
            } else if (abandons || !fails_early) {
              const auto problem = error_of<peer_error>([&] { run_pass(ddp, world); });
              CHECK_CONTAINS(problem.what(), abandons ? "no gradient today" : "began another pass without finishing");
            }
            net->zero_grad();
            if (world.size() > 1 && fails_early && !abandons) {
              // Rank 1 has failed before any gradient, and said nothing: the others have not begun that pass.
              CHECK_CONTAINS(error_of<mismatch_error>([&] { run_pass(ddp, world); }).what(), "backward pass 2");
            } else {
              run_pass(ddp, world);
              CHECK(is_averaged(net->one->weight, world));
            }
            check_usable(world);
          }
        }
      },
      2);
}

TEST_CASE("torch ddp: frozen and ignored parameters get no gradient of others, and must stay so") {
  at_each_size([](const process_group& world) {
    auto net = make_net<two_parts>(world.rank());
    net->one->weight.set_requires_grad(false);
    ht::distributed_data_parallel ddp(net, {.ddp = {.ignore = {"other.weight"}}});
    check_same_tensor(net->one->weight, world);
    CHECK(difference(net->other->weight, make_net<two_parts>(world.rank())->other->weight) == 0);
    run_pass(ddp, world);
    CHECK_FALSE(net->one->weight.grad().defined());
    const at::Tensor own = input_of(world, 4).sum(0).expand({2, 4});
    CHECK(difference(net->other->weight.grad(), own) < 1e-6);
    check_same_tensor(net->other->bias.grad(), world);
    net->one->weight.set_requires_grad(true);
    if (world.size() > 1) {
      const auto problem = error_of<usage_error>([&] { ddp.forward(input_of(world, 4), true, true); });
      CHECK_CONTAINS(problem.what(), "parameter \"one.weight\" was frozen, and is not any more");
    }
  });
}

TEST_CASE("torch ddp: buffers are those of rank 0 before each forward with gradients, and evaluation is alone") {
  at_each_size([](const process_group& world) {
    auto net = make_net<cnn>(0);
    ht::distributed_data_parallel ddp(net);
    for (int pass = 0; pass < 2; ++pass) {
      net->zero_grad();
      loss_of(ddp.forward(numbers({6, 2, 5, 5}, at::kFloat, world.rank())), numbers({6, 3})).backward();
    }
    if (world.rank() == world.size() - 1) {
      const at::NoGradGuard no_grad;
      net->eval();
      CHECK(ddp.forward(numbers({6, 2, 5, 5})).size(0) == 6);
      net->train();
    }
    net->eval();
    if (world.size() > 1) {
      const auto own = hfcomm::all_gather(net->norm->running_mean[0].item<float>());
      CHECK(own[0] != own[1]);
    }
    (void)ddp.forward(numbers({6, 2, 5, 5}));
    check_same_tensor(net->norm->running_mean, world);
    CHECK(net->norm->num_batches_tracked.item<std::int64_t>() == 2);
  });
}

TEST_CASE("torch ddp: one graph may run backward twice, and finish may be called by hand") {
  at_each_size([](const process_group& world) {
    for (const bool by_hand : {false, true}) {
      auto net = make_net<two_parts>(0);
      ht::distributed_data_parallel ddp(net, {.automatic_finish = !by_hand});
      const at::Tensor loss = ddp.forward(input_of(world, 4), true, true);
      for (const bool keeps : {true, false}) {
        loss.backward({}, keeps);
        if (by_hand) {
          ddp.finish();
        }
      }
      CHECK(difference(net->one->weight.grad(), expected_weight_gradient(world) * 2) < 1e-6);
      check_same_tensor(net->other->weight.grad(), world);
    }
  });
}

TEST_CASE("torch ddp: a gradient outlives the wrapper, and later passes of the module are its own") {
  at_each_size([](const process_group& world) {
    auto net = make_net<two_parts>(0);
    at::Tensor loss;
    {
      ht::distributed_data_parallel ddp(net);
      run_pass(ddp, world);
      loss = ddp.forward(input_of(world, 4), true, true);
    }
    CHECK(is_averaged(net->one->weight, world));
    loss.backward();
    const at::Tensor own = input_of(world, 4).sum(0).expand({2, 4});
    CHECK(difference(net->one->weight.grad(), expected_weight_gradient(world) + own) < 1e-6);
  });
}

TEST_CASE("torch ddp: weights of other strides than row by row are averaged") {
  at_each_size([](const process_group& world) {
    auto net = make_net<cnn>(0);
    net->convolution->weight.set_data(net->convolution->weight.contiguous(at::MemoryFormat::ChannelsLast));
    REQUIRE_FALSE(net->convolution->weight.is_contiguous());
    net->eval();
    ht::distributed_data_parallel ddp(net);
    loss_of(ddp.forward(share_of(numbers({6, 2, 5, 5}), world)), share_of(numbers({6, 3}), world)).backward();
    auto single = make_net<cnn>(0);
    single->eval();
    loss_of(single->forward(numbers({6, 2, 5, 5})), numbers({6, 3})).backward();
    CHECK(difference(net->convolution->weight.grad(), single->convolution->weight.grad()) < 1e-5);
    CHECK(net->convolution->weight.grad().strides() == net->convolution->weight.strides());
  });
}

TEST_CASE("torch ddp: models that differ, and tensors that cannot be averaged, are refused by their names") {
  at_each_size(
      [](const process_group& world) {
        const std::int64_t width = world.rank() == 1 ? 8 : 2;
        auto differing = std::make_shared<torch::nn::LinearImpl>(16 / width, width);
        const auto mismatch = error_of<mismatch_error>([&] { ht::distributed_data_parallel ddp(differing); });
        CHECK_CONTAINS(mismatch.what(), "\"weight\" (16 x float32, sizes 2 x 8, strides 8 1)");
        auto net = make_net<two_parts>(0);
        net->one->weight.set_requires_grad(world.rank() == 0);
        CHECK_CONTAINS(error_of<mismatch_error>([&] { ht::distributed_data_parallel ddp(net); }).what(),
                       "\"one.weight\"");
        net->one->weight.set_requires_grad(true);
        if (world.rank() == 0) {
          net->other->weight.set_data(at::zeros({2, 8}).slice(1, 0, 8, 2));
          CHECK_CONTAINS(error_of<usage_error>([&] { ht::distributed_data_parallel ddp(net); }).what(),
                         "the tensor \"other.weight\" has gaps or overlaps in memory");
        } else {
          CHECK_CONTAINS(error_of<peer_error>([&] { ht::distributed_data_parallel ddp(net); }).what(),
                         "the tensor \"other.weight\" has gaps");
        }
        check_usable(world);
      },
      2);
}

TEST_CASE("torch ddp: a holder is wrapped as its module") {
  at_each_size([](const process_group& world) {
    torch::nn::Sequential net(torch::nn::Linear(4, 3), torch::nn::ReLU(), torch::nn::Linear(3, 1));
    set_parameters(*net, world.rank());
    ht::distributed_data_parallel ddp(net, {.ddp = {.bucket_bytes = 16}}, world);
    ddp.forward(input_of(world, 4)).sum().backward();
    for (const auto& parameter : net->parameters()) {
      check_same_tensor(parameter, world);
      check_same_tensor(parameter.grad(), world);
    }
    CHECK(ddp.module() == net.ptr());
  });
}

/// One parameter, and each rank's gradient of it is `factor` everywhere.
struct factor_net : torch::nn::Module {
  explicit factor_net(at::ScalarType type) {
    value = register_parameter("value", torch::ones({3, 4}, type));
    steps = register_buffer("steps", torch::zeros({1}, at::kLong));
  }
  at::Tensor forward(double factor) { return torch::real((value * factor).sum()); }

  at::Tensor value, steps;
};

TEST_CASE("torch ddp: gradients of every floating-point and complex type are averaged") {
  at_each_size([](const process_group& world) {
    for (const auto type : {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble, at::kComplexFloat, at::kComplexDouble}) {
      auto net = std::make_shared<factor_net>(type);
      ht::distributed_data_parallel ddp(net);
      for (int pass = 1; pass <= 2; ++pass) {  // `.grad` is not dropped
        ddp.forward(2 * world.rank()).backward();
        CHECK(at::equal(net->value.grad(), torch::full({3, 4}, pass * (world.size() - 1), type)));
      }
    }
    if (world.size() > 1) {
      auto integers = std::make_shared<factor_net>(at::kFloat);
      integers->register_parameter("number", torch::ones({2}, at::kComplexHalf));
      CHECK_CONTAINS(error_of<usage_error>([&] { ht::distributed_data_parallel ddp(integers); }).what(),
                     "whose gradients cannot be averaged");
    }
  });
}

TEST_CASE("torch ddp: a gradient of other strides or other memory is copied") {
  at_each_size([](const process_group& world) {
    auto net = std::make_shared<factor_net>(at::kFloat);
    ht::distributed_data_parallel ddp(net);
    ddp.forward(0).backward();
    const at::Tensor added = at::arange(12, at::kFloat).reshape({4, 3}).t();
    net->value.mutable_grad() = added.clone();
    REQUIRE(net->value.grad().strides() != net->value.strides());
    ddp.forward(2 * world.rank()).backward();
    CHECK(at::equal(net->value.grad(), added + (world.size() - 1)));
  });
}

/// A complex parameter whose gradient is the conjugate of (1 + 2i), which LibTorch conjugates lazily.
struct conjugate_net : torch::nn::Module {
  conjugate_net() { value = register_parameter("value", torch::ones({3}, at::kComplexDouble)); }
  at::Tensor forward() {
    const at::Tensor factor = torch::complex(torch::ones({3}, at::kDouble), torch::full({3}, 2.0, at::kDouble));
    return torch::real((value.conj() * factor).sum());
  }

  at::Tensor value;
};

TEST_CASE("torch ddp: a gradient that LibTorch conjugates lazily is averaged as it is read") {
  at_each_size([](const process_group& /*world*/) {
    auto single = std::make_shared<conjugate_net>();
    single->forward().backward();
    REQUIRE(single->value.grad().is_conj());
    auto net = std::make_shared<conjugate_net>();
    ht::distributed_data_parallel ddp(net);
    ddp.forward().backward();
    CHECK(at::equal(net->value.grad().resolve_conj(), single->value.grad().resolve_conj()));
  });
}

TEST_CASE("torch ddp: a gradient that was dropped after no_sync does not come back") {
  at_each_size(
      [](const process_group& world) {
        auto net = make_net<two_parts>(0);
        ht::distributed_data_parallel ddp(net, {.ddp = {.find_unused_parameters = true}});
        {
          const auto guard = ddp.no_sync();
          run_pass(ddp, world);
        }
        for (auto& parameter : net->parameters()) {
          parameter.mutable_grad().reset();
        }
        ddp.forward(input_of(world, 4), true, world.rank() == 1).backward();
        const at::Tensor expected = numbers({4, 4}, at::kFloat, 1).sum(0).expand({2, 4}) / world.size();
        CHECK(difference(net->other->weight.grad(), expected) < 1e-6);
        CHECK(is_averaged(net->one->weight, world));
      },
      2);
}

/// The second layer of a `two_parts`, whose forward runs again in backward: a backward inside of backward.
struct recomputed_part : torch::autograd::Function<recomputed_part> {
  static inline thread_local two_parts* net = nullptr;

  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    return net->other->forward(x).sum();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const at::AutoGradMode records(true);
    const at::Tensor x = context->get_saved_variables()[0].detach().set_requires_grad(true);
    net->other->forward(x).sum().backward(gradients[0]);
    return {x.grad()};
  }
};

TEST_CASE("torch ddp: backward inside of backward works where finish is called by hand") {
  at_each_size([](const process_group& world) {
    auto net = make_net<two_parts>(0);
    recomputed_part::net = net.get();
    ht::distributed_data_parallel ddp(net, {.automatic_finish = false});
    for (int pass = 1; pass <= 3; ++pass) {
      const at::Tensor x = input_of(world, 4).set_requires_grad(true);
      const at::Tensor one = ddp.forward(x, true, false);
      (one + recomputed_part::apply(x)).backward();
      ddp.finish();
      for (const auto& weight : {net->one->weight, net->other->weight}) {
        CHECK(difference(weight.grad(), expected_weight_gradient(world) * pass) < 1e-5);
        check_same_tensor(weight.grad(), world);
      }
    }
  });
}

TEST_CASE("torch ddp: two forwards may come before their two backwards") {
  at_each_size([](const process_group& world) {
    auto net = make_net<two_parts>(0);
    ht::distributed_data_parallel ddp(net, {.ddp = {.first_bucket_bytes = 40, .bucket_bytes = 40}});
    for (int pass = 1; pass < 4; ++pass) {
      const at::Tensor first = ddp.forward(input_of(world, 4), true, true);
      const at::Tensor second = ddp.forward(input_of(world, 4), true, true);
      first.backward();
      second.backward();
      CHECK(difference(net->one->weight.grad(), expected_weight_gradient(world) * 2 * pass) < 1e-5);
      check_same_tensor(net->other->weight.grad(), world);
    }
  });
}

TEST_CASE("torch ddp: ignored buffers stay each rank's own, also after they were replaced") {
  at_each_size([](const process_group& world) {
    for (const bool ignores : {true, false}) {
      auto net = std::make_shared<factor_net>(at::kFloat);
      ht::distributed_data_parallel ddp(
          net, {.ddp = {.ignore = ignores ? std::vector<std::string>{"steps"} : std::vector<std::string>{}}});
      net->steps.set_data(torch::full({1}, world.rank() + 5, at::kLong));
      ddp.forward(1).backward();
      CHECK(net->steps.item<std::int64_t>() == (ignores ? world.rank() + 5 : 5));
    }
  });
}

/// A parameter times a buffer, which the gradient needs.
struct scaled_net : torch::nn::Module {
  scaled_net() {
    value = register_parameter("value", torch::ones({3}));
    scale = register_buffer("scale", torch::full({3}, 2.0));
  }
  at::Tensor forward() { return (value * scale).sum(); }

  at::Tensor value, scale;
};

TEST_CASE("torch ddp: a backward that needs buffers which a later forward has changed throws") {
  at_each_size(
      [](const process_group& world) {
        auto net = std::make_shared<scaled_net>();
        ht::distributed_data_parallel ddp(net);
        const at::Tensor first = ddp.forward();
        if (world.rank() == 0) {
          net->scale.mul_(2);
        }
        const at::Tensor second = ddp.forward();
        CHECK_THROWS_AS(first.backward(), c10::Error);
        second.backward();
        CHECK(at::equal(net->value.grad(), at::full({3}, 4.0)));
      },
      2);
}

TEST_CASE("torch ddp: two forwards with equal buffers may come before their two backwards") {
  at_each_size([](const process_group& world) {
    auto net = std::make_shared<scaled_net>();
    ht::distributed_data_parallel ddp(net);
    const at::Tensor first = ddp.forward();
    const at::Tensor second = ddp.forward();
    first.backward();
    second.backward();
    CHECK(at::equal(net->value.grad(), at::full({3}, 4.0)));
    check_same_tensor(net->value.grad(), world);
  });
}

TEST_CASE("torch ddp: a null module and an empty holder are a usage_error") {
  at_each_size([](const process_group& world) {
    const bool is_last = world.rank() == world.size() - 1;
    const auto check_refused = [&](auto&& wrap) {
      CHECK_CONTAINS(is_last ? error_of<usage_error>(wrap).what() : error_of<peer_error>(wrap).what(),
                     "the module is null, or its holder empty");
      check_usable(world);
    };
    const auto module = is_last ? nullptr : std::make_shared<scaled_net>();
    check_refused([&] { ht::distributed_data_parallel ddp(module); });
    const torch::nn::Linear holder = is_last ? torch::nn::Linear(nullptr) : torch::nn::Linear(3, 2);
    check_refused([&] { ht::distributed_data_parallel ddp(holder); });
  });
}

}  // namespace
