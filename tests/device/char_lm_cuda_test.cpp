// SPDX-License-Identifier: MIT
#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "char_lm/adam.hpp"
#include "char_lm/cuda/adam.hpp"
#include "char_lm/cuda/batch_feed.hpp"
#include "char_lm/cuda/model.hpp"
#include "char_lm/model.hpp"
#include "char_lm/random.hpp"
#include "char_lm_devices.hpp"

namespace {

using namespace char_lm;
using namespace device_ranks;

// No two sizes are equal, so that none can stand for another.
constexpr model_options odd_sizes{.context = 4, .embedding = 3, .hidden = 21, .blocks = 2};
const std::vector<std::size_t> some_positions{4, 9, 10, 11, 17, 20, 20, 33, 39, 5, 6};

// Initialised parameters have zeros and ones that hide mistakes; these have none.
model scrambled_model(const model_options& options = odd_sizes) {
  model network(odd_vocabulary, options, 11);
  random_source random(12);
  for (const auto& p : network.parameters()) {
    for (float& v : p.value)
      v += random.uniform(0.4F);
  }
  return network;
}

batch_feed odd_feed(stream_ref stream) { return {odd_text(), odd_vocabulary, odd_sizes.context, stream}; }

void check_gradients(const device_model& found, const model& expected, stream_ref stream) {
  for (std::size_t i = 0; i < expected.parameters().size(); ++i) {
    INFO(expected.parameters()[i].name);
    CHECK(distance(on_host(found.parameters()[i].gradient, stream), expected.parameters()[i].gradient) < 1e-5);
  }
}

void with_one_device(const std::function<void(stream_ref)>& body) {
  const fake_cuda::install fake;
  run_devices(1, [&](const process_group&, stream_ref stream) { body(stream); });
}

}  // namespace

TEST_CASE("char_lm on a device: parameters and values are those of the host") {
  with_one_device([](stream_ref stream) {
    for (const std::size_t blocks : {0U, 1U, 3U}) {
      const model_options options{.context = 5, .embedding = 3, .hidden = 8, .blocks = blocks};
      const model expected(odd_vocabulary, options, 21);
      device_model network(odd_vocabulary, options, 21, stream);
      CHECK(network.parameter_count() == expected.parameter_count());
      REQUIRE(network.parameters().size() == expected.parameters().size());
      const float* next = network.values().data();
      const float* next_gradient = network.gradients().data();
      for (std::size_t i = 0; i < expected.parameters().size(); ++i) {
        const auto& p = network.parameters()[i];
        CHECK(p.name == expected.parameters()[i].name);
        const auto& value = expected.parameters()[i].value;
        CHECK(on_host(p.value, stream) == std::vector<float>(value.begin(), value.end()));
        CHECK(on_host(p.gradient, stream) == std::vector<float>(value.size()));
        CHECK(p.value.data() == next);
        CHECK(p.gradient.data() == next_gradient);
        next += p.value.size();
        next_gradient += p.gradient.size();
      }
      model copied(odd_vocabulary, options, 1);
      network.copy_values_to(copied);
      CHECK(values_of(copied) == values_of(expected));
      model other(odd_vocabulary, {.context = 5, .embedding = 3, .hidden = 9, .blocks = blocks}, 1);
      CHECK_THROWS_AS(network.copy_values_to(other), std::invalid_argument);
    }
  });
}

TEST_CASE("char_lm on a device: loss, gradients and the order of reports are those of the host") {
  with_one_device([](stream_ref stream) {
    for (const std::size_t blocks : {0U, 1U, 2U}) {
      CAPTURE(blocks);
      auto options = odd_sizes;
      options.blocks = blocks;
      model expected = scrambled_model(options);
      device_model network(expected, stream);
      auto feed = odd_feed(stream);
      // Adds up over passes of different sizes and scales.
      double expected_loss = 0.0;
      for (const auto& [count, scale] : {std::pair<std::size_t, float>{11, 1.0F}, {3, -0.7F}, {100, 0.5F}, {1, 2.0F}}) {
        CAPTURE(count);
        std::vector<std::size_t> positions;
        for (std::size_t i = 0; i < count; ++i)
          positions.push_back(some_positions[i % some_positions.size()] + i / some_positions.size());
        std::vector<std::size_t> expected_order;
        expected_loss += static_cast<double>(scale) *
                         static_cast<double>(expected.forward_backward(
                             {odd_text(), positions}, scale, [&](std::size_t i) { expected_order.push_back(i); }));
        std::vector<std::size_t> order;
        // What is on the stream when a parameter is reported makes its gradient final.
        std::vector<std::vector<float>> at_report(network.parameters().size());
        network.forward_backward(feed.put(positions), scale, [&](std::size_t i) {
          order.push_back(i);
          at_report[i].resize(network.parameters()[i].gradient.size());
          copy(network.parameters()[i].gradient, at_report[i], stream);
        });
        CHECK(order == expected_order);
        CHECK(network.loss() == doctest::Approx(expected_loss).epsilon(1e-5));
        check_gradients(network, expected, stream);
        for (std::size_t i = 0; i < at_report.size(); ++i)
          CHECK(at_report[i] == on_host(network.parameters()[i].gradient, stream));
      }
      network.zero_gradients();
      CHECK(network.loss() == 0.0);
      CHECK(on_host(network.gradients(), stream) == std::vector<float>(network.parameter_count()));
      CHECK(on_host(network.values(), stream) == values_of(expected));
    }
  });
}

TEST_CASE("char_lm on a device: a batch without examples reports all parameters and adds nothing") {
  with_one_device([](stream_ref stream) {
    device_model network(scrambled_model(), stream);
    auto feed = odd_feed(stream);
    network.forward_backward(feed.put(some_positions));
    const auto before = on_host(network.gradients(), stream);
    const double loss = network.loss();
    std::vector<std::size_t> order;
    network.forward_backward(feed.put({}), 1.0F, [&](std::size_t i) { order.push_back(i); });
    std::vector<std::size_t> expected(network.parameters().size());
    std::iota(expected.rbegin(), expected.rend(), std::size_t{0});
    CHECK(order == expected);
    CHECK(on_host(network.gradients(), stream) == before);
    CHECK(network.loss() == loss);
    CHECK(network.evaluate(feed, {}) == 0.0);
  });
}

TEST_CASE("char_lm on a device: evaluation gives the host's loss and changes nothing") {
  with_one_device([](stream_ref stream) {
    model expected = scrambled_model();
    device_model network(expected, stream);
    auto feed = odd_feed(stream);
    network.forward_backward(feed.put(some_positions), 0.25F);
    const auto gradients = on_host(network.gradients(), stream);
    const double loss = network.loss();
    std::vector<std::size_t> positions;  // more than one piece, the last one shorter
    for (std::size_t i = 0; i < 300; ++i)
      positions.push_back(odd_sizes.context + i * i % (odd_text().size() - odd_sizes.context));
    CHECK(network.evaluate(feed, positions) ==
          doctest::Approx(expected.evaluate({odd_text(), positions})).epsilon(1e-5));
    CHECK(network.evaluate(feed, some_positions) ==
          doctest::Approx(expected.evaluate({odd_text(), some_positions})).epsilon(1e-5));
    CHECK(on_host(network.gradients(), stream) == gradients);
    CHECK(on_host(network.values(), stream) == values_of(expected));
    CHECK(network.loss() == loss);
  });
}

TEST_CASE("char_lm on a device: invalid examples, texts and shapes are refused") {
  with_one_device([](stream_ref stream) {
    auto feed = odd_feed(stream);
    CHECK_THROWS_AS((void)feed.put(std::vector<std::size_t>{10, odd_sizes.context - 1}), std::invalid_argument);
    CHECK_THROWS_AS((void)feed.put(std::vector<std::size_t>{odd_text().size()}), std::invalid_argument);
    CHECK_THROWS_AS(batch_feed(odd_text(), odd_vocabulary - 1, odd_sizes.context, stream), std::invalid_argument);
    CHECK_THROWS_AS(device_model(1, odd_sizes, 1, stream), std::invalid_argument);
    device_buffer<float> memory(4);
    CHECK_THROWS_AS(device_adam(memory.span(), memory.span().first(3), stream), std::invalid_argument);
  });
}

TEST_CASE("char_lm on a device: the host runs ahead, but never overwrites a batch that the device has not read") {
  with_one_device([](stream_ref stream) {
    model expected = scrambled_model();
    device_model network(expected, stream);
    auto feed = odd_feed(stream);
    network.forward_backward(feed.put(some_positions));  // so that all memory is there
    network.zero_gradients();
    (void)network.loss();
    std::atomic<bool> open = false;
    std::atomic<std::size_t> put = 0;
    fake_cuda::launch(stream.get(), [&] {
      // Until the host waits; whoever waits too early stays below that number.
      for (int i = 0; i < 20000 && !open; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
    std::thread opener([&] {
      for (int i = 0; i < 20000 && put < batch_feed::slot_count - 1; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      std::this_thread::sleep_for(std::chrono::milliseconds(30));  // for a host that does not wait to go too far
      CHECK(put >= batch_feed::slot_count - 1);
      CHECK(put <= batch_feed::slot_count);
      open = true;
    });
    std::vector<std::size_t> positions(2);
    for (std::size_t i = 0; i < 3 * batch_feed::slot_count; ++i) {
      positions = {odd_sizes.context + i, odd_sizes.context + i / 2};
      network.forward_backward(feed.put(positions));
      ++put;
      expected.forward_backward({odd_text(), positions});
    }
    opener.join();
    check_gradients(network, expected, stream);
  });
}

TEST_CASE("char_lm on a device: the optimizer's steps are those of the host") {
  with_one_device([](stream_ref stream) {
    random_source random(3);
    std::vector<float> value(37);
    std::vector<float> gradient(value.size());
    for (float& v : value)
      v = random.uniform(2.0F);
    device_buffer<float> values = on_device(value, stream);
    device_buffer<float> gradients = on_device(gradient, stream);
    const adam_options options{.beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-3, .weight_decay = 0.3};
    const std::vector<parameter> parameters{{"p", value, gradient}};
    adam expected(parameters, options);
    device_adam found(values.span(), gradients.span(), stream, options);
    for (int step = 0; step < 6; ++step) {
      for (float& g : gradient)
        g = random.uniform(0.5F);
      gradient[0] = 0.0F;
      to_device(gradient, gradients, stream);
      expected.step(0.01 * (step + 1));
      found.step(0.01 * (step + 1));
      CHECK(distance(on_host(values, stream), value) < 1e-6);
      CHECK(on_host(gradients, stream) == gradient);
    }
  });
}
