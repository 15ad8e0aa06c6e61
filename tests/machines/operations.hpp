// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include <hfcomm/comm.hpp>

#include "digest.hpp"

namespace hfcomm::test {

template <class T>
void reductions(digest& all, const process_group& group, std::size_t most) {
  for (const std::size_t count : {1UL, 17UL, 1000UL, 5000UL, most}) {
    const auto mine = numbers<T>(count, group.rank());
    auto sum = mine;
    all_reduce(sum, reduce_op::sum, group);
    all.add(sum);
    auto maxima = mine;
    all_reduce(std::span(maxima), reduce_op::max, group);
    all.add(maxima);
    auto rooted = mine;
    hfcomm::reduce(rooted, group.size() - 1, reduce_op::sum, group);
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
    hfcomm::exclusive_scan(mine, until, reduce_op::sum, group);
    all.add(until);
  }
}

/// Reductions of other kinds, of lists, and in shared memory.
inline void special_reductions(digest& all, const process_group& group) {
  const auto mine = numbers<float>(30'011, group.rank());
  auto mean = mine;
  all_reduce(mean, reduce_op::average, group);
  all.add(mean);
  auto weighted = mine;
  all_reduce(weighted, reduce_op::premultiplied_sum(0.25F + static_cast<float>(group.rank())), group);
  all.add(weighted);
  auto folded = mine;
  all_reduce(std::span(folded), [](float one, float other) { return one * 0.5F + other; }, group);
  all.add(folded);
  auto first = numbers<float>(700, group.rank());
  auto second = numbers<float>(90'001, 5 + group.rank());
  const std::vector<std::span<float>> list{std::span(first), std::span(second)};
  all_reduce(list, reduce_op::sum, group);
  broadcast(list, group.size() / 2, group);
  all.add(first);
  all.add(second);
  auto shared = group.allocate<double>(100'003);
  const auto values = numbers<double>(shared.size(), group.rank());
  std::copy(values.begin(), values.end(), shared.begin());
  all_reduce(shared, reduce_op::sum, group);
  all.add(std::span<const double>(shared.data(), shared.size()));
}

inline void movements(digest& all, const process_group& group) {
  const int ranks = group.size();
  for (const std::size_t count : {0UL, 3UL, 20UL, 4000UL, 60'013UL}) {
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
  }
}

/// Parts of different lengths.
inline void uneven_movements(digest& all, const process_group& group) {
  const int ranks = group.size();
  for (const std::size_t count : {7UL, 5000UL, 40'009UL}) {
    const auto data = numbers<float>(count * as_index(1 + group.rank()), group.rank());
    const auto gathered = all_gather_v(data, group);
    all.add(gathered.elements);
    all.add(std::span<const std::size_t>(gathered.counts));
    all.add(gather_v(data, ranks - 1, group).elements);
    std::vector<std::size_t> counts(as_index(ranks), count / as_index(ranks));
    counts.back() += as_index(group.rank());
    const auto sent = numbers<float>(count / as_index(ranks) * as_index(ranks) + as_index(group.rank()), group.rank());
    all.add(all_to_all_v(sent, counts, group).elements);
    std::vector<std::size_t> shares(as_index(ranks));
    for (int rank = 0; rank < ranks; ++rank) {
      shares[as_index(rank)] = count / as_index(1 + rank);
    }
    std::vector<float> share(shares[as_index(group.rank())]);
    std::vector<float> whole;
    for (const std::size_t one : shares) {
      whole.insert(whole.end(), data.begin(), data.begin() + static_cast<std::ptrdiff_t>(one));
    }
    scatter(whole, share, shares, 0, group);
    all.add(share);
    reduce_scatter(whole, share, shares, reduce_op::sum, group);
    all.add(share);
  }
}

inline void objects(digest& all, const process_group& group) {
  const int ranks = group.size();
  for (const std::size_t length : {0UL, 60UL, 900UL, 70'000UL, 300'000UL}) {
    const auto mine = text_of(group.rank(), length * as_index(1 + group.rank()) / as_index(ranks));
    all.add(all_gather(mine, group));
    all.add(gather(mine, ranks / 2, group));
    auto text = mine;
    broadcast(text, ranks - 1, group);
    all.add(text);
    std::vector<std::string> list;
    for (int rank = 0; rank < ranks; ++rank) {
      list.push_back(mine + text_of(rank, length / 3));
    }
    all.add(all_to_all(list, group));
    all.add(scatter(group.rank() == 0 ? list : std::vector<std::string>{}, 0, group));
    all.add(
        all_reduce(mine, [](const std::string& one, const std::string& other) { return one + '|' + other; }, group));
    broadcast_object_list(list, ranks / 2, group);
    all.add(list);
  }
  const auto losses =
      all_reduce_dict(std::map<std::string, double>{{"a", 0.1 * (1 + group.rank())}, {"b", 7.3 / (1 + group.rank())}},
                      reduce_op::sum, group);
  all.add(losses.at("a"));
  all.add(losses.at("b"));
  all.add(collect_results(std::vector<std::string>(3, text_of(group.rank(), 50)), 3 * as_index(ranks) - 1, 0, group));
  const auto seeds = all_gather(shared_random_seed(group), group);
  all.add(static_cast<double>(std::count(seeds.begin(), seeds.end(), seeds.front())));
}

/// Messages to all ranks, to itself too, of tags that are received in another order than they were sent in.
inline void tagged_messages(digest& all, const process_group& group) {
  const int ranks = group.size();
  for (const std::size_t length : {0UL, 5UL, 3000UL, 150'000UL}) {
    std::vector<work<void>> sent;
    std::vector<work<std::string>> received;
    for (const int tag : {9, 2}) {
      for (int other = 0; other < ranks; ++other) {
        sent.push_back(isend(text_of(group.rank() + tag, length + as_index(other)), other, group, tag));
      }
    }
    for (const int tag : {2, 9}) {
      for (int other = 0; other < ranks; ++other) {
        received.push_back(irecv<std::string>(other, group, tag));
      }
    }
    for (auto& one : received) {
      all.add(one.wait());
    }
    wait_all(sent);
  }
}

/// A ring of objects and of buffers.
inline void ring_messages(digest& all, const process_group& group) {
  const int ranks = group.size();
  const int next = (group.rank() + 1) % ranks;
  const int previous = (group.rank() + ranks - 1) % ranks;
  for (const std::size_t count : {0UL, 5UL, 3000UL, 40'009UL}) {
    all.add(send_receive<std::string>(text_of(group.rank(), count), next, previous, group));
    const auto data = numbers<double>(count, group.rank());
    std::vector<double> came(count);
    send_receive(std::span(data), next, std::span(came), previous, group, 6);
    all.add(came);
    std::vector<double> left(count);
    std::vector<double> right(count);
    message_batch batch(group);
    batch.send(std::span(data), next, 1).send(std::span(data), previous, 2);
    batch.recv(std::span(left), previous, 1).recv(std::span(right), next, 2);
    batch.run();
    all.add(left);
    all.add(right);
    const int end = group.rank() + 1 == ranks ? null_rank : next;
    send_receive(std::span(data), end, std::span(left), group.rank() == 0 ? null_rank : previous, group);
    all.add(left);
  }
}

/// Messages whose sender, or length, the receiver does not know.
inline void unknown_messages(digest& all, const process_group& group) {
  const int ranks = group.size();
  if (group.rank() != 0) {
    send(text_of(group.rank(), 10), 0, group, 4);
    const auto data = numbers<double>(1000 * as_index(group.rank()), group.rank());
    send(std::span(data), 0, group, 5);
    isend(text_of(group.rank(), 20), 0, group, 7).wait();
    return;
  }
  std::vector<std::string> texts(as_index(ranks));
  std::vector<std::vector<double>> buffers(as_index(ranks));
  for (int turn = 1; turn < ranks; ++turn) {
    auto text = recv<std::string>(any_source, group, 4);
    texts[as_index(text.source)] = std::move(text.value);
  }
  for (int turn = 1; turn < ranks; ++turn) {
    std::optional<message_info> there;
    while (!(there = try_probe(any_source, group, 5))) {
    }
    auto& buffer = buffers[as_index(there->source)];
    buffer.resize(probe(there->source, group, 5).count<double>());
    recv(std::span(buffer), there->source, group, 5);
  }
  for (int turn = 1; turn < ranks; ++turn) {
    auto text = irecv<std::string>(any_source, group, 7).wait();
    texts[as_index(text.source)] += text.value;
  }
  all.add(texts);
  for (const auto& buffer : buffers) {
    all.add(buffer);
  }
}

/// Messages of which the receiver knows neither sender nor tag. No other messages may be under way.
inline void messages_of_any_tag(digest& all, const process_group& group) {
  barrier(group);
  if (group.rank() == 0) {
    std::vector<std::string> texts(as_index(group.size()));
    for (int turn = 1; turn < group.size(); ++turn) {
      auto text = recv<std::string>(any_source, group, any_tag);
      texts[as_index(text.source)] = std::to_string(text.tag) + text.value;
    }
    all.add(texts);
  } else {
    send(text_of(group.rank(), 90'000), 0, group, 100 + group.rank());
  }
  barrier(group);
}

/// Operations of which many are under way at once, and messages between them.
inline void started(digest& all, const process_group& group) {
  const int ranks = group.size();
  auto sum = numbers<float>(100'000, group.rank());
  auto spread = numbers<float>(50'000, group.rank());
  const auto mine = numbers<float>(9000, group.rank());
  std::vector<float> table(mine.size() * as_index(ranks));
  std::vector<float> exchanged(table.size());
  std::vector<float> part(mine.size());
  std::vector<float> until(mine.size());
  const auto wide = numbers<float>(table.size(), 3 + group.rank());
  std::vector<work<void>> works;
  works.push_back(all_reduce_async(sum, reduce_op::sum, group));
  works.push_back(broadcast_async(std::span(spread), ranks - 1, group));
  works.push_back(all_gather_async(mine, table, group));
  works.push_back(all_to_all_async(wide, exchanged, group));
  works.push_back(reduce_scatter_async(wide, part, reduce_op::sum, group));
  works.push_back(scan_async(mine, until, reduce_op::sum, group));
  works.push_back(barrier_async(group));
  auto texts = all_gather_async(text_of(group.rank(), 100'000), group);
  auto number = all_reduce_async(1.5 * group.rank(), reduce_op::sum, group);
  auto rooted = reduce_async(2.5 * group.rank(), 0, reduce_op::sum, group);
  auto scattered =
      scatter_async(group.rank() == 0 ? std::vector<int>(as_index(ranks), 3) : std::vector<int>{}, 0, group);
  ring_messages(all, group);
  all.add(number.wait());
  all.add(texts.wait());
  all.add(rooted.wait().value_or(-1));
  all.add(static_cast<double>(scattered.wait()));
  wait_all(works);
  for (const auto* const data : {&sum, &spread, &table, &exchanged, &part, &until}) {
    all.add(*data);
  }
}

inline void everything(digest& all, const process_group& group) {
  reductions<float>(all, group, 300'007);
  reductions<double>(all, group, 30'011);
  reductions<bfloat16>(all, group, 50'021);
  reductions<std::int32_t>(all, group, 20'011);
  special_reductions(all, group);
  movements(all, group);
  uneven_movements(all, group);
  objects(all, group);
  tagged_messages(all, group);
  ring_messages(all, group);
  unknown_messages(all, group);
  messages_of_any_tag(all, group);
  started(all, group);
}

/// Adds what depends on the machines; the sums are the same on any.
inline void groups_of_machines(digest& all) {
  const int mine = all_reduce(1, reduce_op::sum, local_group());
  all.add(all_reduce(static_cast<double>(local_size()) / mine, reduce_op::sum));
  const auto leaders = leader_group();
  all.add(static_cast<double>(all_reduce(leaders ? all_reduce(1, reduce_op::sum, *leaders) - node_count() : 0)));
}

/// Returns one hash of what all ranks have received in all operations, in the world and in groups of it. It does not
/// depend on the machines on which the ranks are.
inline std::uint64_t digest_of_operations() {
  digest all;
  everything(all, world());
  const auto halves = world().split(rank() % 2);
  everything(all, halves);
  movements(all, world().split(0, -rank()));
  const std::vector<int> ends{0, world_size() - 1};
  if (const auto group = world().subgroup(std::span(ends).first(world_size() > 1 ? 2 : 1)); group) {
    movements(all, *group);
  }
  groups_of_machines(all);
  {
    const master_first guard;
    all.add(static_cast<double>(rank()));
  }
  digest total;
  total.add(all_gather(all.value()));
  return total.value();
}

}  // namespace hfcomm::test
