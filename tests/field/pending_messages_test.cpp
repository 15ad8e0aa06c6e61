// SPDX-License-Identifier: MIT
#include "../multi_rank/machines.hpp"
#include "../multi_rank/ranks.hpp"

#include <atomic>
#include <cstddef>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <hfcomm/collectives/all_reduce.hpp>
#include <hfcomm/collectives/barrier.hpp>
#include <hfcomm/collectives/probe.hpp>
#include <hfcomm/collectives/recv.hpp>
#include <hfcomm/collectives/send.hpp>
#include <hfcomm/group/wait.hpp>

// More messages under way than a rank has envelopes.
namespace {

using namespace hfcomm;
using namespace multi_rank;

/// A message's elements: some in the envelope, some through a slot, some longer than one.
std::vector<int> content_of(int sender, int tag) {
  constexpr std::size_t lengths[] = {1, 0, 1000, 3, 40000};
  std::vector<int> content(lengths[static_cast<std::size_t>(tag) % std::size(lengths)]);
  std::iota(content.begin(), content.end(), sender * 1000 + tag);
  return content;
}

constexpr int pending = 300;

/// Sends many messages to the next rank, and takes those of the one before, the last ones first.
void pass_many(const process_group& group) {
  const int next = (group.rank() + 1) % group.size();
  const int before = (group.rank() + group.size() - 1) % group.size();
  std::vector<std::vector<int>> sent;
  for (int tag = 0; tag < pending; ++tag) {
    sent.push_back(content_of(group.rank(), tag));
  }
  std::vector<work<>> sends;
  for (int tag = 0; tag < pending; ++tag) {
    sends.push_back(isend(std::span(std::as_const(sent[static_cast<std::size_t>(tag)])), next, group, tag));
  }
  int wrong = 0;
  const auto take = [&](int tag) {
    const auto wanted = content_of(before, tag);
    std::vector<int> got(wanted.size());
    recv(std::span(got), before, group, tag);
    wrong += got == wanted ? 0 : 1;
  };
  for (int tag = pending; tag-- > pending / 2;) {
    take(tag);  // the last ones first
  }
  for (int tag = 0; tag < pending / 2; ++tag) {
    take(tag);
  }
  wait_all(sends);
  CHECK(wrong == 0);
  check_usable(group);
}

TEST_CASE("hundreds of pending messages are received in any order") {
  for (const int ranks : {2, 3, 4, 8}) {
    CAPTURE(ranks);
    run_noted(ranks, {}, [](const process_group& group) { pass_many(group); });
  }
}

TEST_CASE("hundreds of pending messages between machines") {
  on_machines({1, 1}, [](const process_group& group) { pass_many(group); });
  on_machines({2, 1, 1}, [](const process_group& group) { pass_many(group); });
}

TEST_CASE("messages of one tag stay in their order, from any source and with any tag, however many are pending") {
  constexpr int count = 200;
  run_noted(3, {}, [&](const process_group& group) {
    if (group.rank() != 0) {
      std::vector<work<>> sends;
      for (int number = 0; number < count; ++number) {
        sends.push_back(isend(number, 0, group, number % 2));
      }
      sends.push_back(isend(-1, 0, group, 7));
      wait_all(sends);
      check_usable(group);
      return;
    }
    for (const int source : {2, 1}) {
      CHECK(recv<int>(source, group, 7) == -1);  // so the others are noted
    }
    std::vector<int> next(6);  // by source and tag
    int wrong = 0;
    for (int round = 0; round < count; ++round) {
      const auto check = [&](int source, int tag, int value) {
        int& wanted = next[static_cast<std::size_t>(source * 2 + tag)];
        wrong += value == wanted * 2 + tag ? 0 : 1;
        ++wanted;
      };
      const auto first = recv<int>(any_source, group, any_tag);
      check(first.source, first.tag, first.value);
      const auto second = recv<int>(any_source, group, first.tag);
      check(second.source, first.tag, second.value);
    }
    CHECK(wrong == 0);
    CHECK_FALSE(try_probe(any_source, group, any_tag).has_value());
    check_usable(group);
  });
}

TEST_CASE("hundreds of messages to oneself") {
  run_noted(1, {}, [](const process_group& group) {
    constexpr int count = 200;
    std::vector<work<>> sends;
    for (int tag = 0; tag < count; ++tag) {
      sends.push_back(isend(tag, 0, group, tag));
    }
    for (int tag = count; tag-- > 0;) {
      CHECK(irecv<int>(0, group, tag).wait() == tag);
    }
    wait_all(sends);
  });
}

TEST_CASE("a rank that looks at nothing holds up no other one") {
  std::atomic<bool> has_come{false};
  run_noted(3, {}, [&](const process_group& group) {
    constexpr int count = 100;
    if (group.rank() == 0) {
      std::vector<work<>> sends;
      for (int number = 0; number < count; ++number) {
        sends.push_back(isend(number, 1, group));
      }
      sends.push_back(isend(std::string("for you"), 2, group));
      wait_all(sends);
    } else if (group.rank() == 1) {
      has_come.wait(false);
      for (int number = 0; number < count; ++number) {
        CHECK(recv<int>(0, group) == number);
      }
    } else {
      CHECK(recv<std::string>(0, group) == "for you");
      has_come = true;
      has_come.notify_all();
    }
  });
}

TEST_CASE("messages to a rank that looks at nothing may take the rest of the envelopes") {
  std::atomic<bool> has_come{false};
  run_noted(3, {}, [&](const process_group& group) {
    constexpr int count = 61;
    if (group.rank() == 0) {
      std::vector<work<>> sends;
      for (int tag = 0; tag + 1 < count; ++tag) {
        sends.push_back(isend(tag, 1, group, tag));
      }
      for (int number = 0; number < 20; ++number) {
        sends.push_back(isend(number, 2, group));
      }
      sends.push_back(isend(count - 1, 1, group, count - 1));
      wait_all(sends);
    } else if (group.rank() == 1) {
      for (int tag = count; tag-- > 0;) {
        CHECK(recv<int>(0, group, tag) == tag);
      }
      has_come = true;
      has_come.notify_all();
    } else {
      has_come.wait(false);
      for (int number = 0; number < 20; ++number) {
        CHECK(recv<int>(0, group) == number);
      }
    }
  });
}

TEST_CASE("a probe finds a message that was noted, and its receive takes that one") {
  run_noted(2, {}, [](const process_group& group) {
    constexpr int count = 150;
    if (group.rank() == 0) {
      std::vector<work<>> sends;
      for (int tag = 0; tag < count; ++tag) {
        sends.push_back(isend(tag * 3, 1, group, tag));
      }
      wait_all(sends);
    } else {
      CHECK(recv<int>(0, group, count - 1) == (count - 1) * 3);
      const auto found = probe(any_source, group, 5);
      CHECK(found.source == 0);
      CHECK(found.tag == 5);
      CHECK(recv<int>(found.source, group, found.tag) == 15);
      for (int tag = 0; tag < count - 1; ++tag) {
        if (tag != 5) {
          CHECK(recv<int>(0, group, tag) == tag * 3);
        }
      }
    }
  });
}

TEST_CASE("a noted message that does not fit is refused on both sides") {
  run_noted(2, {}, [](const process_group& group) {
    constexpr int count = 150;
    if (group.rank() == 0) {
      std::vector<work<>> sends;
      for (int tag = 0; tag < count; ++tag) {
        sends.push_back(isend(tag, 1, group, tag));
      }
      CHECK(error_of<mismatch_error>([&] { sends[3].wait(); }).second_rank() == 1);
      sends.erase(sends.begin() + 3);
      wait_all(sends);
    } else {
      CHECK(recv<int>(0, group, count - 1) == count - 1);
      CHECK(error_of<mismatch_error>([&] { (void)recv<std::string>(0, group, 3); }).first_rank() == 0);
      for (int tag = 0; tag < count - 1; ++tag) {
        if (tag != 3) {
          CHECK(recv<int>(0, group, tag) == tag);
        }
      }
    }
    check_usable(group);
  });
}

}  // namespace
