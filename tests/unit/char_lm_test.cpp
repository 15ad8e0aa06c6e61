// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "char_lm/adam.hpp"
#include "char_lm/generate.hpp"
#include "char_lm/linear.hpp"
#include "char_lm/model.hpp"
#include "char_lm/random.hpp"
#include "char_lm/sampler.hpp"
#include "char_lm/vocabulary.hpp"

namespace {

using namespace char_lm;

std::string message_of(auto&& call) {
  try {
    call();
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
  return "nothing was thrown";
}

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

std::vector<float> copy_of(std::span<const float> values) { return {values.begin(), values.end()}; }

std::vector<std::vector<float>> gradients_of(const model& network) {
  std::vector<std::vector<float>> all;
  for (const auto& p : network.parameters())
    all.push_back(copy_of(p.gradient));
  return all;
}

std::vector<std::vector<float>> values_of(const model& network) {
  std::vector<std::vector<float>> all;
  for (const auto& p : network.parameters())
    all.push_back(copy_of(p.value));
  return all;
}

/// The examples of all ranks in one step.
std::vector<std::size_t> global_batch(const text_split& split, std::size_t step, std::size_t size, std::uint64_t seed) {
  return batch_sampler(split, size, seed, 0, 1).at(step).positions;
}

// Sizes that are no multiples of a tile, so that every edge of the kernels takes part.
constexpr model_options odd_sizes{.context = 4, .embedding = 3, .hidden = 21, .blocks = 2};
constexpr std::size_t odd_vocabulary = 7;

std::vector<symbol> random_text(std::size_t size, std::size_t vocabulary_size) {
  random_source random(5);
  std::vector<symbol> text(size);
  for (auto& s : text)
    s = static_cast<symbol>(random.below(vocabulary_size));
  return text;
}

const std::vector<symbol>& odd_text() {
  static const std::vector<symbol> text = random_text(40, odd_vocabulary);
  return text;
}

// Initialised parameters have zeros and ones that hide mistakes; these have none.
model scrambled_model() {
  model network(odd_vocabulary, odd_sizes, 11);
  random_source random(12);
  for (const auto& p : network.parameters()) {
    for (float& v : p.value)
      v += random.uniform(0.4F);
  }
  return network;
}

const std::vector<std::size_t> some_positions{4, 9, 10, 11, 17, 20, 20, 33, 39, 5, 6};

struct training {
  model network;
  double first_loss = 0.0;
  double last_loss = 0.0;
  double held_out = 0.0;
};

training train(std::string_view text, std::size_t steps, std::size_t context = 8) {
  const vocabulary symbols(text);
  const auto split = split_text(text.size(), context);
  const auto encoded = symbols.encode(text);
  model network(symbols.size(), {.context = split.context, .embedding = 6, .hidden = 24, .blocks = 1}, 3);
  adam optimiser(network.parameters());
  training result{std::move(network)};
  batch_sampler batches(split, 24, 9, 0, 1);
  for (std::size_t step = 0; step < steps; ++step) {
    const auto positions = batches.at(step).positions;
    result.network.zero_gradients();
    result.last_loss = static_cast<double>(result.network.forward_backward({encoded, positions}));
    if (step == 0)
      result.first_loss = result.last_loss;
    optimiser.step(learning_rate_at(step, steps, 1e-2));
  }
  const auto held_out = held_out_batch(split, share_of(split.held_out_count(), 0, 1));
  result.held_out = result.network.evaluate({encoded, held_out});
  return result;
}

}  // namespace

TEST_CASE("char_lm: a vocabulary is the sorted distinct bytes and encodes both ways") {
  const vocabulary symbols("cabbage\xff");
  CHECK(symbols.bytes() == "abceg\xff");
  CHECK(symbols.size() == 6);
  CHECK(symbols.encode("bag") == std::vector<symbol>{1, 0, 4});
  CHECK(symbols.encode('\xff') == 5);
  CHECK(symbols.decode(symbols.encode("cabbage\xff")) == "cabbage\xff");
  CHECK(symbols.encode("").empty());
  CHECK(contains(message_of([&] { (void)symbols.encode("bad"); }), "byte 100 ('d') does not occur"));
  CHECK_THROWS_AS((void)symbols.decode(symbol{6}), std::out_of_range);

  std::string every_byte;
  for (int byte = 255; byte >= 0; --byte)
    every_byte += static_cast<char>(static_cast<unsigned char>(byte));
  const vocabulary all(every_byte);
  CHECK(all.size() == 256);
  CHECK(all.decode(all.encode(every_byte)) == every_byte);
}

TEST_CASE("char_lm: a text with nothing to learn is an error that says so") {
  CHECK(contains(message_of([] { vocabulary{""}; }), "the text is empty"));
  CHECK(contains(message_of([] { vocabulary{"a"}; }), "only one distinct byte, 97 ('a')"));
  CHECK(contains(message_of([] { vocabulary{std::string(64, '\n')}; }), "only one distinct byte, 10:"));
  CHECK(contains(message_of([] { (void)split_text(1, 16); }), "the text has 1 byte: training needs at least 16"));
  CHECK(contains(message_of([] { (void)split_text(2, 16); }), "the text has 2 bytes: training needs at least 16"));
  CHECK(contains(message_of([] { (void)split_text(15, 16); }), "training needs at least 16"));
  CHECK(contains(message_of([] { (void)split_text(100, 0); }), "context must be at least 1"));
}

TEST_CASE("char_lm: the last tenth is held out, and short texts get a shorter context") {
  const auto large = split_text(1000, 16);
  CHECK(large.context == 16);
  CHECK(large.train_end == 900);
  CHECK(large.train_count() == 884);
  CHECK(large.held_out_count() == 100);
  CHECK(large.note.empty());
  const auto small = split_text(64, 16);
  CHECK(small.context == 14);
  CHECK(small.train_end == 58);
  CHECK(small.held_out_count() == 6);
  CHECK(small.note == "the text has only 64 bytes: the context is 14 characters instead of 16");
  for (std::size_t size = minimum_text_size; size < 200; ++size) {
    const auto split = split_text(size, 16);
    CHECK(split.context >= 1);
    CHECK(split.train_count() >= split.train_end / 2);
    CHECK(split.held_out_count() >= 1);
  }
}

TEST_CASE("char_lm: texts of 16 and of 64 bytes train and generate") {
  for (const std::string_view text :
       {std::string_view("abcabcabcabcabca"),
        std::string_view("one two one two one two one two one two one two one two one two ")}) {
    CAPTURE(text);
    auto result = train(text, 60, 16);
    CHECK(result.last_loss < 0.5 * result.first_loss);
    CHECK(std::isfinite(result.held_out));
    random_source random(1);
    CHECK(generate(result.network, vocabulary(text), "", 10, 1.0, random).size() == 10);
  }
}

TEST_CASE("char_lm: the loss falls on a tiny text and its held-out part, and greedy generation continues the text") {
  std::string text;
  while (text.size() < 400)
    text += "the cat sat on the mat, ";
  auto result = train(text, 120);
  CHECK(result.first_loss > 2.0);  // untrained: about ln 11 = 2.4
  CHECK(result.last_loss < 0.2);
  CHECK(result.held_out < 0.2);
  random_source random(1);
  CHECK(generate(result.network, vocabulary(text), "the cat sat", 17, 0.0, random) == " on the mat, the ");
}

TEST_CASE("char_lm: matrix products match the definition at every size, transposed or not") {
  random_source random(2);
  matrix_multiplier multiplier;
  for (const std::size_t rows : {1U, 4U, 7U}) {
    for (const std::size_t inner : {1U, 5U, 33U}) {
      for (const std::size_t columns : {1U, 8U, 19U}) {
        for (int transposes = 0; transposes < 4; ++transposes) {
          CAPTURE(rows);
          CAPTURE(inner);
          CAPTURE(columns);
          CAPTURE(transposes);
          std::vector<float> a(rows * inner);
          std::vector<float> b(inner * columns);
          std::vector<float> c(rows * columns);
          for (auto* values : {&a, &b, &c}) {
            for (float& v : *values)
              v = random.uniform(1.0F);
          }
          const bool turn_a = (transposes & 1) != 0;
          const bool turn_b = (transposes & 2) != 0;
          const auto view_a = turn_a ? matrix_view::dense(a.data(), inner, rows).transposed()
                                     : matrix_view::dense(a.data(), rows, inner);
          const auto view_b = turn_b ? matrix_view::dense(b.data(), columns, inner).transposed()
                                     : matrix_view::dense(b.data(), inner, columns);
          std::vector<double> expected(c.begin(), c.end());
          for (std::size_t i = 0; i < rows; ++i) {
            for (std::size_t j = 0; j < columns; ++j) {
              for (std::size_t k = 0; k < inner; ++k) {
                const double left = static_cast<double>(turn_a ? a[k * rows + i] : a[i * inner + k]);
                const double right = static_cast<double>(turn_b ? b[j * inner + k] : b[k * columns + j]);
                expected[i * columns + j] += left * right;
              }
            }
          }
          multiplier.multiply_add(view_a, view_b, c.data());
          double worst = 0.0;
          for (std::size_t i = 0; i < c.size(); ++i) {
            worst = std::fmax(worst, std::fabs(expected[i] - static_cast<double>(c[i])));
          }
          // 34 additions of terms below 1 in float32: each rounds by at most 2^-24 of a sum below 34.
          CHECK(worst < 34.0 * 34.0 * 0x1p-24);
        }
      }
    }
  }
}

TEST_CASE("char_lm: every parameter's gradient matches finite differences") {
  model network = scrambled_model();
  const batch examples{odd_text(), some_positions};
  network.zero_gradients();
  (void)network.forward_backward(examples);
  const auto derivative = [&](float& value, float step) {
    const float before = value;
    value = before + step;
    const float up = value;
    const double above = network.evaluate(examples);
    value = before - step;
    const float down = value;
    const double below = network.evaluate(examples);
    value = before;
    return (above - below) / static_cast<double>(up - down);
  };
  for (const auto& p : network.parameters()) {
    CAPTURE(p.name);
    double largest = 0.0;
    double worst = 0.0;
    for (std::size_t i = 0; i < p.value.size(); ++i) {
      // Rounding in a loss near 2 is about 1e-6, so the quotient is good to about 1e-6 / 1e-2 = 1e-4; the step's own
      // error is a sixth of its square, 4e-6, times a third derivative of the order of 10.
      const double expected = derivative(p.value[i], 5e-3F);
      largest = std::fmax(largest, std::fabs(expected));
      worst = std::fmax(worst, std::fabs(expected - static_cast<double>(p.gradient[i])));
    }
    CHECK(largest > 0.01);  // else the comparison would say nothing
    CHECK(worst < 4e-4);
  }
}

TEST_CASE("char_lm: gradients are reported once each, last parameter first, and only when final") {
  for (const std::size_t blocks : {0U, 1U, 3U}) {
    model_options options = odd_sizes;
    options.blocks = blocks;
    model network(odd_vocabulary, options, 4);
    network.zero_gradients();
    std::vector<std::size_t> order;
    std::vector<std::vector<float>> reported(network.parameters().size());
    (void)network.forward_backward({odd_text(), some_positions}, 1.0F, [&](std::size_t i) {
      order.push_back(i);
      reported.at(i) = copy_of(network.parameters()[i].gradient);
    });
    std::vector<std::size_t> expected(network.parameters().size());
    for (std::size_t i = 0; i < expected.size(); ++i)
      expected[i] = expected.size() - 1 - i;
    CHECK(order == expected);
    CHECK(reported == gradients_of(network));
    for (const auto& gradient : reported) {
      CHECK(std::any_of(gradient.begin(), gradient.end(), [](float g) { return g != 0.0F; }));
    }
  }
}

TEST_CASE("char_lm: later layers are reported before earlier ones are computed") {
  model network = scrambled_model();
  network.zero_gradients();
  std::size_t still_zero = 0;
  (void)network.forward_backward({odd_text(), some_positions}, 1.0F, [&](std::size_t i) {
    for (std::size_t earlier = 0; earlier < i; ++earlier) {
      const auto gradient = network.parameters()[earlier].gradient;
      still_zero += std::all_of(gradient.begin(), gradient.end(), [](float g) { return g == 0.0F; }) ? 1U : 0U;
    }
  });
  const std::size_t count = network.parameters().size();
  // Only a block's shift and scale are computed in one go.
  CHECK(still_zero == count * (count - 1) / 2 - odd_sizes.blocks);
}

TEST_CASE("char_lm: gradients accumulate, scaled, until they are zeroed") {
  model network = scrambled_model();
  const batch examples{odd_text(), some_positions};
  network.zero_gradients();
  const float loss = network.forward_backward(examples);
  CHECK(static_cast<double>(loss) == doctest::Approx(network.evaluate(examples)).epsilon(1e-6));
  const auto once = gradients_of(network);
  (void)network.forward_backward(examples, 2.0F);
  const auto thrice = gradients_of(network);
  for (std::size_t i = 0; i < once.size(); ++i) {
    for (std::size_t j = 0; j < once[i].size(); ++j) {
      CHECK(std::fabs(thrice[i][j] - 3.0F * once[i][j]) <= 1e-5F);
    }
  }
  network.zero_gradients();
  (void)network.forward_backward(examples);
  CHECK(gradients_of(network) == once);
}

TEST_CASE("char_lm: equal seeds give equal models, different seeds different ones, and a move keeps the spans") {
  model first(odd_vocabulary, odd_sizes, 1);
  const model second(odd_vocabulary, odd_sizes, 1);
  const model third(odd_vocabulary, odd_sizes, 2);
  CHECK(values_of(first) == values_of(second));
  CHECK(values_of(first) != values_of(third));
  std::size_t total = 0;
  for (const auto& p : first.parameters()) {
    CHECK(p.value.size() == p.gradient.size());
    total += p.value.size();
  }
  CHECK(first.parameter_count() == total);
  CHECK(first.parameters().front().name == "embedding");
  CHECK(first.parameters().back().name == "output.bias");

  const auto span_before = first.parameters()[1].value;
  const model moved = std::move(first);
  CHECK(moved.parameters()[1].value.data() == span_before.data());
  CHECK(values_of(moved) == values_of(second));
}

TEST_CASE("char_lm: training twice gives bitwise equal parameters") {
  const std::string text = "A rose is a rose is a rose, and then some more words to read.";
  const auto first = train(text, 25);
  const auto second = train(text, 25);
  CHECK(first.last_loss == second.last_loss);
  CHECK(values_of(first.network) == values_of(second.network));
}

TEST_CASE("char_lm: invalid shapes and examples are errors that change nothing") {
  CHECK_THROWS_AS(model(1, odd_sizes, 1), std::invalid_argument);
  CHECK_THROWS_AS(model(257, odd_sizes, 1), std::invalid_argument);
  CHECK_THROWS_AS(model(5, {.context = 0}, 1), std::invalid_argument);
  model network = scrambled_model();
  network.zero_gradients();
  const auto before = gradients_of(network);
  const std::vector<std::size_t> too_early{8, 3};
  const std::vector<std::size_t> too_late{8, 40};
  const std::vector<std::size_t> good{8};
  auto foreign = odd_text();
  foreign[6] = odd_vocabulary;
  CHECK(contains(message_of([&] { (void)network.forward_backward({odd_text(), too_early}); }),
                 "position 3 is outside [4, 40)"));
  CHECK(
      contains(message_of([&] { (void)network.evaluate({odd_text(), too_late}); }), "position 40 is outside [4, 40)"));
  CHECK(contains(message_of([&] { (void)network.forward_backward({foreign, good}); }),
                 "symbol 7 is outside the vocabulary of 7"));
  CHECK_THROWS_AS((void)network.predict(std::span(odd_text()).first(3)), std::invalid_argument);
  CHECK(gradients_of(network) == before);
}

TEST_CASE("char_lm: the held-out loss is the mean over all positions") {
  model network = scrambled_model();
  const auto text = random_text(700, odd_vocabulary);
  std::vector<std::size_t> positions;
  double total = 0.0;
  for (std::size_t p = odd_sizes.context; p < text.size(); ++p) {
    positions.push_back(p);
    const auto probabilities = network.predict(std::span(text).first(p));
    total -= std::log(static_cast<double>(probabilities[text[p]]));
  }
  const auto before = values_of(network);
  CHECK(network.evaluate({text, positions}) ==
        doctest::Approx(total / static_cast<double>(positions.size())).epsilon(1e-5));
  CHECK(network.evaluate({text, {}}) == 0.0);
  CHECK(values_of(network) == before);
}

TEST_CASE("char_lm: a batch depends only on step and seed, and stays in the training part") {
  const auto split = split_text(500, 16);
  const auto positions = global_batch(split, 3, 4000, 7);
  CHECK(positions == global_batch(split, 3, 4000, 7));
  CHECK(positions != global_batch(split, 4, 4000, 7));
  CHECK(positions != global_batch(split, 3, 4000, 8));
  const auto [least, most] = std::minmax_element(positions.begin(), positions.end());
  CHECK(*least >= split.context);
  CHECK(*most < split.train_end);
  // Examples 12000 to 16000 over 434 places are eight whole epochs, the end of one and the beginning of another.
  for (std::size_t place = split.context; place < split.train_end; ++place) {
    const auto times = std::count(positions.begin(), positions.end(), place);
    CHECK(times >= 8);
    CHECK(times <= 10);
  }
}

TEST_CASE("char_lm: each epoch covers the text once") {
  const auto split = split_text(500, 16);
  batch_sampler batches(split, 31, 7, 0, 1);
  std::vector<std::size_t> seen;
  for (std::size_t step = 0; step < 28; ++step) {  // 868 examples are two epochs
    const auto batch = batches.at(step).positions;
    seen.insert(seen.end(), batch.begin(), batch.end());
  }
  REQUIRE(seen.size() == 2 * split.train_count());
  const auto middle = seen.begin() + static_cast<std::ptrdiff_t>(split.train_count());
  CHECK(std::set<std::size_t>(seen.begin(), middle).size() == split.train_count());
  CHECK(std::set<std::size_t>(middle, seen.end()).size() == split.train_count());
  CHECK_FALSE(std::equal(seen.begin(), middle, middle));
  // Any step may be asked for at any time.
  CHECK(batches.at(0).positions == std::vector<std::size_t>(seen.begin(), seen.begin() + 31));
}

TEST_CASE("char_lm: the ranks' batches interleave to the global batch") {
  const auto split = split_text(300, 16);
  for (const std::size_t size : {1U, 3U, 12U, 50U, 1000U}) {
    for (const std::size_t step : {0U, 1U, 20U, 21U}) {
      auto whole = global_batch(split, step, size, 5);
      CHECK(whole.size() == size);
      std::sort(whole.begin(), whole.end());
      const std::size_t epochs = size / split.train_count() + 2;
      for (const int world : {1, 2, 4, 5}) {
        std::vector<std::size_t> joined;
        double weights = 0.0;
        for (int rank = 0; rank < world; ++rank) {
          const auto part = batch_sampler(split, size, 5, rank, world).at(step);
          const auto count = part.positions.size();
          CHECK(count + epochs > size / static_cast<std::size_t>(world));
          CHECK(count < size / static_cast<std::size_t>(world) + 1 + epochs);
          CHECK(static_cast<double>(part.weight) ==
                doctest::Approx(static_cast<double>(count) * world / static_cast<double>(size)));
          joined.insert(joined.end(), part.positions.begin(), part.positions.end());
          weights += static_cast<double>(part.weight);
        }
        std::sort(joined.begin(), joined.end());
        CHECK(joined == whole);
        CHECK(weights == doctest::Approx(world));
      }
    }
  }
}

TEST_CASE("char_lm: a rank's passes cover its batch in order, each with its share of the weight") {
  for (const std::size_t size : {0U, 1U, 2U, 7U, 12U}) {
    char_lm::rank_batch mine;
    mine.positions.resize(size);
    std::iota(mine.positions.begin(), mine.positions.end(), std::size_t{100});
    mine.weight = size == 0 ? 0.0F : 1.25F;
    for (const std::size_t passes : {1U, 3U, 5U}) {
      std::vector<std::size_t> joined;
      double weights = 0;
      for (std::size_t pass = 0; pass < passes; ++pass) {
        const auto [positions, weight] = mine.piece(pass, passes);
        joined.insert(joined.end(), positions.begin(), positions.end());
        weights += static_cast<double>(weight);
        CHECK(weight * static_cast<float>(size) == doctest::Approx(mine.weight * static_cast<float>(positions.size())));
      }
      CHECK(joined == mine.positions);
      CHECK(weights == doctest::Approx(static_cast<double>(mine.weight)));
    }
  }
}

TEST_CASE("char_lm: the ranks' shares of the held-out text join to all of it") {
  const auto split = split_text(5000, 16);
  for (const std::size_t size : {1U, 3U, 12U, 50U}) {
    for (const int world : {1, 2, 4, 5}) {
      std::size_t next = 0;
      double weights = 0.0;
      for (int rank = 0; rank < world; ++rank) {
        const auto part = share_of(size, rank, world);
        CHECK(part.first == next);
        CHECK(part.count() + 1 > size / static_cast<std::size_t>(world));
        CHECK(part.count() <= size / static_cast<std::size_t>(world) + 1);
        next = part.last;
        weights += static_cast<double>(part.weight);
        if (size % static_cast<std::size_t>(world) == 0)
          CHECK(part.weight == 1.0F);
      }
      CHECK(next == size);
      CHECK(weights == doctest::Approx(world));
    }
  }
  std::vector<std::size_t> held_out;
  for (int rank = 0; rank < 3; ++rank) {
    const auto part = held_out_batch(split, share_of(split.held_out_count(), rank, 3));
    held_out.insert(held_out.end(), part.begin(), part.end());
  }
  CHECK(held_out == held_out_batch(split, share_of(split.held_out_count(), 0, 1)));
  CHECK(held_out.front() == split.train_end);
  CHECK(held_out.back() == split.size - 1);

  CHECK_THROWS_AS((void)share_of(8, 2, 2), std::invalid_argument);
  CHECK_THROWS_AS((void)share_of(8, -1, 2), std::invalid_argument);
  CHECK_THROWS_AS((void)share_of(8, 0, 0), std::invalid_argument);
  CHECK_THROWS_AS((void)share_of(0, 0, 1), std::invalid_argument);
}

TEST_CASE(
    "char_lm: averaging the ranks' gradients and losses gives those of the global batch, also with empty shares") {
  model network = scrambled_model();
  const auto split = split_text(odd_text().size(), odd_sizes.context);
  for (const std::size_t size : {12U, 10U, 3U}) {
    const auto whole = global_batch(split, 0, size, 1);
    network.zero_gradients();
    const float loss = network.forward_backward({odd_text(), whole});
    const auto expected = gradients_of(network);
    for (const int world : {2, 4}) {
      CAPTURE(size);
      CAPTURE(world);
      std::vector<std::vector<float>> average;
      average.reserve(expected.size());
      for (const auto& gradient : expected)
        average.emplace_back(gradient.size(), 0.0F);
      float average_loss = 0.0F;
      for (int rank = 0; rank < world; ++rank) {
        const auto part = batch_sampler(split, size, 1, rank, world).at(0);
        std::size_t reports = 0;
        network.zero_gradients();
        average_loss +=
            part.weight / static_cast<float>(world) *
            network.forward_backward({odd_text(), part.positions}, part.weight, [&](std::size_t) { ++reports; });
        CHECK(reports == network.parameters().size());
        const auto mine = gradients_of(network);
        for (std::size_t i = 0; i < mine.size(); ++i) {
          for (std::size_t j = 0; j < mine[i].size(); ++j)
            average[i][j] += mine[i][j] / static_cast<float>(world);
        }
      }
      CHECK(average_loss == doctest::Approx(loss).epsilon(1e-5));
      float worst = 0.0F;
      for (std::size_t i = 0; i < expected.size(); ++i) {
        for (std::size_t j = 0; j < expected[i].size(); ++j) {
          worst = std::fmax(worst, std::fabs(average[i][j] - expected[i][j]));
        }
      }
      CHECK(worst < 1e-5F);  // gradients of the order of 1, summed in another order
    }
  }
}

TEST_CASE("char_lm: adam's first steps match the published formulas") {
  std::vector<float> value{1.0F, -2.0F, 3.0F};
  std::vector<float> gradient{0.5F, -1e-3F, 0.0F};
  const std::vector<parameter> parameters{{"p", value, gradient}};
  adam optimiser(parameters, {.beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8, .weight_decay = 0.5});
  optimiser.step(0.1);
  // The first step has the rate's length whatever the gradient's, and decay takes 0.1 * 0.5 of the value.
  CHECK(value[0] == doctest::Approx(0.95 - 0.1).epsilon(1e-5));
  CHECK(value[1] == doctest::Approx(-1.9 + 0.1).epsilon(1e-4));
  CHECK(value[2] == doctest::Approx(2.85).epsilon(1e-6));
  gradient[0] = -0.5F;
  const double before = static_cast<double>(value[0]);
  optimiser.step(0.1);
  // mean = 0.9 * 0.05 - 0.05 = -0.005, corrected by 1 - 0.81; the root of the corrected square stays 0.5.
  CHECK(value[0] == doctest::Approx(0.95 * before + 0.1 * (0.005 / 0.19) / 0.5).epsilon(1e-5));
  CHECK(gradient[0] == -0.5F);
}

TEST_CASE("char_lm: the learning rate rises, falls, and stays above its minimum") {
  CHECK(learning_rate_at(0, 1000, 1.0) == doctest::Approx(0.05));
  CHECK(learning_rate_at(19, 1000, 1.0) == doctest::Approx(1.0));
  for (std::size_t step = 20; step < 1000; ++step) {
    CHECK(learning_rate_at(step, 1000, 1.0) <= learning_rate_at(step - 1, 1000, 1.0));
    CHECK(learning_rate_at(step, 1000, 1.0) >= 0.05);
  }
  CHECK(learning_rate_at(500, 1000, 1.0) == doctest::Approx(500.0 / 981.0));
  CHECK(learning_rate_at(0, 1, 0.5) == 0.5);
}

TEST_CASE("char_lm: generated text depends only on the vocabulary and the random source") {
  const std::string text = "Pack my box with five dozen liquor jugs.\n";
  const vocabulary symbols(text);
  model network(symbols.size(), {.context = 5, .embedding = 3, .hidden = 8, .blocks = 1}, 6);
  const auto sample = [&](std::string_view prefix, double temperature, std::uint64_t seed) {
    random_source random(seed);
    return generate(network, symbols, prefix, 300, temperature, random);
  };
  const auto once = sample("", 1.0, 1);
  CHECK(once.size() == 300);
  CHECK(once.find_first_not_of(symbols.bytes()) == std::string::npos);
  CHECK(once == sample("", 1.0, 1));
  CHECK(once != sample("", 1.0, 2));
  // An untrained model is nearly uniform: 300 draws from 30 symbols miss only a few.
  CHECK(std::set<char>(once.begin(), once.end()).size() > 22);
  CHECK(sample("Pack my box", 0.0, 1) == sample("Pack my box", 0.0, 2));
  CHECK(sample("Pack my box", 1e-3, 1).find_first_not_of(symbols.bytes()) == std::string::npos);
  CHECK_THROWS_AS((void)sample("box 7", 1.0, 1), std::invalid_argument);
  CHECK_THROWS_AS((void)sample("box", -1.0, 1), std::invalid_argument);
  CHECK_THROWS_AS((void)sample("box", std::nan(""), 1), std::invalid_argument);
}

TEST_CASE("char_lm: a low temperature sharpens the distribution, a high one flattens it") {
  const std::vector<float> probabilities{0.1F, 0.6F, 0.0F, 0.3F};
  const auto share_of_symbol = [&](symbol wanted, double temperature) {
    random_source random(8);
    int hits = 0;
    for (int i = 0; i < 20000; ++i)
      hits += draw(probabilities, temperature, random) == wanted ? 1 : 0;
    return hits / 20000.0;
  };
  // Standard deviation of such a share: at most 0.0036.
  CHECK(share_of_symbol(1, 1.0) == doctest::Approx(0.6).epsilon(0.03));
  CHECK(share_of_symbol(0, 1.0) == doctest::Approx(0.1).epsilon(0.11));
  CHECK(share_of_symbol(2, 1.0) == 0.0);
  CHECK(share_of_symbol(1, 0.5) == doctest::Approx(0.36 / 0.46).epsilon(0.03));
  CHECK(share_of_symbol(1, 0.0) == 1.0);
}
