// SPDX-License-Identifier: MIT
#include "ranks.hpp"

#include <algorithm>
#include <cstdlib>
#include <random>
#include <span>

#include <hfcomm/collectives/recv.hpp>
#include <hfcomm/collectives/send.hpp>

#include "../single_copies.hpp"

namespace {

using namespace hfcomm;
using namespace multi_rank;

/// One message of a plan, which every rank derives from the same seed.
struct planned {
  int number;
  int from;
  int to;
  int tag;
  bool object;
  bool from_any_source;  // how it is received
  std::size_t size;
};

using random_source = std::mt19937_64;

std::size_t pick(random_source& random, std::size_t below) { return static_cast<std::size_t>(random() % below); }

std::size_t pick_size(random_source& random) {
  constexpr auto edges = each_of(0, 1, 55, 56, 57, 16'383, 16'384, 16'385, 65'535, 65'536, 65'537, 81'920);
  switch (pick(random, 8)) {
    case 0: return edges[pick(random, edges.size())];
    case 1: return pick(random, 400'000);
    case 2: return pick(random, 20'000);
    default: return pick(random, 100);
  }
}

/// The tag says whether a message is an object and whether it is received from any_source. So messages with one tag
/// match their receives in the order of the sends.
std::vector<planned> plan(random_source& random, int ranks, int act) {
  std::vector<planned> messages;
  const auto count = static_cast<int>(10 + pick(random, 120));
  for (int number = 0; number < count; ++number) {
    planned one{};
    one.number = number;
    one.from = static_cast<int>(pick(random, as_index(ranks)));
    one.to = static_cast<int>(pick(random, as_index(ranks)));
    one.tag = static_cast<int>(pick(random, 6));
    one.object = one.tag % 2 == 0;
    one.from_any_source = one.tag == 4;
    one.tag += 6 * act;  // acts overlap, so receives from any_source need tags of their own
    one.size = pick_size(random);
    messages.push_back(one);
  }
  return messages;
}

/// First bytes: the message's number; the rest follows from it.
std::vector<std::uint8_t> bytes_of(const planned& message) {
  std::vector<std::uint8_t> bytes(message.size + 4);
  const std::size_t number = as_index(message.number);
  std::uint8_t* const place = bytes.data();
  for (std::size_t i = 0; i < message.size + 4; ++i) {
    place[i] = static_cast<std::uint8_t>(i < 4 ? number >> (8 * i) : i * 37 + i / 199 + number);
  }
  return bytes;
}

/// A rank's part of a plan: its sends and receives, interleaved at random, each kind in the order of the plan.
class plan_runner {
 public:
  plan_runner(const process_group& world, const std::vector<planned>& messages, std::uint64_t seed)
      : world_(world), random_(seed) {
    for (const auto& one : messages) {
      if (one.from == world.rank()) {
        sends_.push_back(one);
      }
      if (one.to == world.rank()) {
        receives_.push_back(one);
      }
    }
    // The order of tags and senders is open; the order within one of them is not.
    auto in_order = receives_;
    std::shuffle(receives_.begin(), receives_.end(), random_);
    for (auto& place : receives_) {
      const auto next = std::find_if(in_order.begin(), in_order.end(),
                                     [&](const auto& one) { return one.tag == place.tag && one.from == place.from; });
      place = *next;
      in_order.erase(next);
    }
    buffers_.resize(receives_.size());
    outgoing_.reserve(sends_.size());
  }

  void run() {
    std::size_t sent = 0;
    std::size_t received = 0;
    while (sent < sends_.size() || received < receives_.size()) {
      const bool sends = received == receives_.size() || (sent < sends_.size() && pick(random_, 2) == 0);
      sends ? start(sends_[sent++]) : start_receive(received++);
      if (pick(random_, 16) == 0) {
        std::this_thread::yield();
      }
      if (pick(random_, 24) == 0 && !going_.empty() && going_.front().done()) {
        going_.erase(going_.begin());
      }
    }
    finish();
  }

 private:
  void start(const planned& message) {
    outgoing_.push_back(bytes_of(message));
    auto& bytes = outgoing_.back();
    going_.push_back(message.object ? isend(bytes, message.to, world_, message.tag)
                                    : isend(std::span(std::as_const(bytes)), message.to, world_, message.tag));
    if (message.object) {
      std::fill(bytes.begin(), bytes.end(), std::uint8_t{0xdd});  // it has been copied
    }
  }

  void start_receive(std::size_t place) {
    const auto& message = receives_[place];
    if (message.from_any_source) {
      anyone_.emplace_back(irecv<std::vector<std::uint8_t>>(any_source, world_, message.tag));
    } else if (message.object) {
      objects_.emplace_back(place, irecv<std::vector<std::uint8_t>>(message.from, world_, message.tag));
    } else {
      buffers_[place].resize(message.size + 4);
      spans_.emplace_back(place, irecv(std::span(buffers_[place]), message.from, world_, message.tag));
    }
  }

  void finish() {
    std::shuffle(spans_.begin(), spans_.end(), random_);
    for (auto& [place, one] : spans_) {
      one.wait();
      CHECK((buffers_[place] == bytes_of(receives_[place])));
    }
    std::shuffle(objects_.begin(), objects_.end(), random_);
    for (auto& [place, one] : objects_) {
      CHECK((one.wait() == bytes_of(receives_[place])));
    }
    // From any_source: each sender's messages arrive in order, and completely.
    std::vector<planned> open;
    std::copy_if(receives_.begin(), receives_.end(), std::back_inserter(open),
                 [](const auto& one) { return one.from_any_source; });
    for (auto& one : anyone_) {
      const auto [bytes, source] = one.wait();
      const auto expected = std::find_if(open.begin(), open.end(), [&](const auto& it) { return it.from == source; });
      REQUIRE(expected != open.end());
      CHECK((bytes == bytes_of(*expected)));
      open.erase(expected);
    }
    for (auto& one : going_) {
      one.wait();
    }
  }

  process_group world_;
  random_source random_;
  std::vector<planned> sends_;
  std::vector<planned> receives_;
  std::vector<std::vector<std::uint8_t>> outgoing_;
  std::vector<std::vector<std::uint8_t>> buffers_;
  std::vector<work<void>> going_;
  std::vector<work<received<std::vector<std::uint8_t>>>> anyone_;
  std::vector<std::pair<std::size_t, work<std::vector<std::uint8_t>>>> objects_;
  std::vector<std::pair<std::size_t, work<void>>> spans_;
};

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

TEST_CASE("messages: random plans deliver every message at 2 to 8 ranks (HFCOMM_TEST_SEED, HFCOMM_TEST_ROUNDS)") {
  const std::uint64_t first = number_from("HFCOMM_TEST_SEED", 20'261'121);
  const std::uint64_t rounds = number_from("HFCOMM_TEST_ROUNDS", 60);
  for (std::uint64_t seed = first; seed < first + rounds; ++seed) {
    const int ranks = 2 + static_cast<int>(seed % 7);
    run_noted(ranks, "with HFCOMM_TEST_SEED=" + std::to_string(seed), [&](const process_group& world) {
      if (world.rank() % 2 == 1) {
        hide_memory(world, world.rank());  // what these ranks send passes through slots
      }
      random_source random(seed);
      for (int act = 0; act < 3; ++act) {
        const auto messages = plan(random, world.size(), act);
        plan_runner(world, messages, seed * 1000 + as_index(world.rank()) * 10 + static_cast<std::uint64_t>(act)).run();
        if (act == 1) {
          check_usable(world);  // otherwise the acts may overlap
        }
      }
    });
  }
}

}  // namespace
