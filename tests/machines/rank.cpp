// SPDX-License-Identifier: MIT
// A rank of a job on several machines. What it does is its first argument; see machines_test.py.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <hfcomm/comm.hpp>

namespace {

using namespace hfcomm;

std::size_t as_index(int number) { return static_cast<std::size_t>(number); }

/// A hash of everything that a rank has received.
class digest {
 public:
  template <plain T>
  void add(std::span<const T> values) {
    for (const std::byte byte : std::as_bytes(values)) {
      hash_ = (hash_ ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001b3ULL;
    }
  }
  template <plain T>
  void add(const std::vector<T>& values) {
    add(std::span(values));
  }
  void add(const std::vector<std::string>& texts) {
    for (const auto& text : texts) {
      add(std::span(text));
    }
  }
  void add(double value) { add(std::span<const double>(&value, 1)); }
  [[nodiscard]] std::uint64_t value() const { return hash_; }

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325ULL;
};

/// Numbers whose sum depends on the order in which they are added.
template <class T>
std::vector<T> numbers(std::size_t count, int seed) {
  std::vector<T> result(count);
  std::uint32_t state = 12345U + 977U * static_cast<std::uint32_t>(seed);
  for (T& value : result) {
    state = state * 1664525U + 1013904223U;
    value = static_cast<T>(static_cast<float>(state >> 8) / static_cast<float>(1 + state % 1000) - 100.0F);
  }
  return result;
}

template <class T>
void reductions(digest& all, const process_group& group) {
  for (const std::size_t count : {1UL, 17UL, 1000UL, 5000UL, 300'007UL}) {
    const auto mine = numbers<T>(count, group.rank());
    auto sum = mine;
    all_reduce(sum, reduce_op::sum, group);
    all.add(sum);
    auto most = mine;
    all_reduce(std::span(most), reduce_op::max, group);
    all.add(most);
    auto rooted = mine;
    reduce(rooted, group.size() - 1, reduce_op::sum, group);
    all.add(rooted);
    std::vector<T> whole;
    for (int rank = 0; rank < group.size(); ++rank) {
      whole.insert(whole.end(), mine.begin(), mine.end());
    }
    std::vector<T> part(count);
    reduce_scatter(whole, part, reduce_op::sum, group);
    all.add(part);
    std::vector<T> until(count);
    scan(mine, until, reduce_op::sum, group);
    all.add(until);
  }
}

void movements(digest& all, const process_group& group) {
  const int ranks = group.size();
  for (const std::size_t count : {0UL, 3UL, 20UL, 4000UL, 200'003UL}) {
    const int root = static_cast<int>(count) % ranks;
    auto data = numbers<double>(count, group.rank());
    std::vector<double> table(count * as_index(ranks));
    all_gather(data, table, group);
    all.add(table);
    std::fill(table.begin(), table.end(), 0);
    gather(data, table, root, group);
    all.add(table);
    std::vector<double> out(count);
    const auto parts = numbers<double>(count * as_index(ranks), 31 + group.rank());
    scatter(parts, out, root, group);
    all.add(out);
    std::vector<double> exchanged(parts.size());
    all_to_all(parts, exchanged, group);
    all.add(exchanged);
    broadcast(std::span(data), root, group);
    all.add(data);
    const auto uneven = all_gather_v(std::span(data).first(count / (1 + as_index(group.rank()))), group);
    all.add(uneven.elements);
    all.add(std::span<const std::size_t>(uneven.counts));
  }
}

std::string text_of(int rank, std::size_t length) {
  return std::string(length, static_cast<char>('a' + rank % 26)) + std::to_string(rank);
}

void objects(digest& all, const process_group& group) {
  const int ranks = group.size();
  for (const std::size_t length : {0UL, 60UL, 900UL, 70'000UL, 700'000UL}) {
    const auto mine = text_of(group.rank(), length * as_index(1 + group.rank()) / as_index(ranks));
    all.add(all_gather(mine, group));
    all.add(gather(mine, ranks / 2, group));
    auto text = mine;
    broadcast(text, ranks - 1, group);
    all.add(std::vector<std::string>{text});
    std::vector<std::string> list;
    for (int rank = 0; rank < ranks; ++rank) {
      list.push_back(mine + text_of(rank, length / 3));
    }
    all.add(all_to_all(list, group));
    all.add(std::vector<std::string>{scatter(group.rank() == 0 ? list : std::vector<std::string>{}, 0, group)});
    all.add(std::vector<std::string>{
        all_reduce(mine, [](const std::string& one, const std::string& other) { return one + '|' + other; }, group)});
  }
  const auto losses =
      all_reduce_dict(std::map<std::string, double>{{"a", 0.1 * (1 + group.rank())}, {"b", 7.3 / (1 + group.rank())}},
                      reduce_op::sum, group);
  all.add(losses.at("a"));
  all.add(losses.at("b"));
}

void messages(digest& all, const process_group& group) {
  const int ranks = group.size();
  const int next = (group.rank() + 1) % ranks;
  const int previous = (group.rank() + ranks - 1) % ranks;
  for (const std::size_t length : {0UL, 5UL, 3000UL, 400'000UL}) {
    all.add(std::vector<std::string>{send_receive<std::string>(text_of(group.rank(), length), next, previous, group)});
    std::vector<work<void>> sent;
    std::vector<work<std::string>> received;
    for (int other = 0; other < ranks; ++other) {
      sent.push_back(isend(text_of(group.rank(), length + as_index(other)), other, group, 9));
      received.push_back(irecv<std::string>(other, group, 9));
    }
    for (auto& one : received) {
      all.add(std::vector<std::string>{one.wait()});
    }
    wait_all(sent);
  }
  if (group.rank() == 0) {
    std::vector<std::string> any(as_index(ranks));
    for (int turn = 1; turn < ranks; ++turn) {
      const auto message = recv<std::string>(any_source, group, 4);
      any[as_index(message.source)] = message.value;
    }
    all.add(any);
  } else {
    send(text_of(group.rank(), 10), 0, group, 4);
  }
}

void started(digest& all, const process_group& group) {
  auto data = numbers<float>(100'000, group.rank());
  auto first = all_reduce_async(data, reduce_op::sum, group);
  auto second = all_gather_async(text_of(group.rank(), 100), group);
  auto third = all_reduce_async(1.5 * group.rank(), reduce_op::sum, group);
  all.add(third.wait());
  all.add(second.wait());
  first.wait();
  all.add(data);
}

void training(digest& all, const process_group& group) {
  auto weights = numbers<float>(50'000, 3);
  std::vector<float> gradients(weights.size());
  std::vector<ddp_parameter> parameters{named_parameter("weight", std::span(weights), std::span(gradients))};
  distributed_data_parallel ddp(parameters, {}, {}, group);
  for (int step = 0; step < 3; ++step) {
    const auto mine = numbers<float>(weights.size(), 100 * step + group.rank());
    std::copy(mine.begin(), mine.end(), gradients.begin());
    ddp.mark_ready(0);
    ddp.finish();
    for (std::size_t index = 0; index < weights.size(); ++index) {
      weights[index] -= 0.01F * gradients[index];
    }
  }
  all.add(weights);
}

void everything(digest& all, const process_group& group) {
  reductions<float>(all, group);
  reductions<double>(all, group);
  reductions<bfloat16>(all, group);
  reductions<std::int32_t>(all, group);
  movements(all, group);
  objects(all, group);
  messages(all, group);
  started(all, group);
  training(all, group);
}

/// Prints one hash of what all ranks have received in all operations, in the world and in groups of it.
void operations() {
  digest all;
  everything(all, world());
  const auto halves = world().split(rank() % 2);
  everything(all, halves);
  const auto reversed = world().split(0, -rank());
  movements(all, reversed);
  {
    const master_first guard;
    all.add(static_cast<double>(rank()));
  }
  const auto hashes = all_gather(all.value());
  digest total;
  total.add(hashes);
  if (rank() == 0) {
    std::printf("digest %016llx\n", static_cast<unsigned long long>(total.value()));
  }
}

/// Works until an error tells that a rank is lost, and prints it.
void until_error() {
  try {
    std::vector<float> data(10'000, 1.0F);
    for (int step = 0;; ++step) {
      all_reduce(data, reduce_op::average);
      if (step == 20 && rank() == 0) {
        std::puts("working");
        std::fflush(stdout);
      }
    }
  } catch (const peer_error& problem) {
    std::printf("rank %d blames %d: %s\n", rank(), problem.peer(), problem.what());
  }
  std::fflush(stdout);
}

/// Waits for a message that does not come, until an error tells that its rank is lost.
void message_until_error() {
  barrier();
  if (rank() == 0) {
    std::puts("working");
    std::fflush(stdout);
  }
  try {
    if (rank() == world_size() - 1) {
      std::this_thread::sleep_for(std::chrono::seconds(60));
    }
    static_cast<void>(recv<int>(world_size() - 1));
  } catch (const peer_error& problem) {
    std::printf("rank %d blames %d: %s\n", rank(), problem.peer(), problem.what());
  }
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view task = argc > 1 ? argv[1] : "operations";
  init_options options;
  options.start_timeout = std::chrono::seconds(20);
  if (const char* path = std::getenv("TEST_FILE"); path != nullptr) {
    options.init_method = std::string("file://") + path;
    options.rank = std::atoi(std::getenv("TEST_RANK"));
    options.world_size = std::atoi(std::getenv("TEST_SIZE"));
  }
  if (const char* text = std::getenv("TEST_SILENCE_MS"); text != nullptr) {
    options.silence_limit = std::chrono::milliseconds(std::atoi(text));
  }
  try {
    const auto session = init(options);
    std::printf("rank %d of %d is pid %d, node %d of %d, %d of %d there\n", rank(), world_size(),
                static_cast<int>(::getpid()), node_rank(), node_count(), local_rank(), local_size());
    std::fflush(stdout);
    if (task == "operations") {
      operations();
    } else if (task == "until-error") {
      until_error();
    } else if (task == "message-until-error") {
      message_until_error();
    } else if (task == "throw") {
      if (rank() == world_size() - 1) {
        throw std::runtime_error("the disk is full");
      }
      barrier();
    } else if (task == "mismatch") {
      auto values = numbers<float>(3, 0);
      rank() == 0 ? barrier() : broadcast(std::span(values), 0);
    } else if (task != "start") {
      return 2;
    }
  } catch (const std::exception& problem) {
    std::printf("error: %s\n", problem.what());
    return 1;
  }
}
