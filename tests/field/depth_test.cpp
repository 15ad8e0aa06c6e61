// SPDX-License-Identifier: MIT
#include "../multi_rank/ranks.hpp"

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <tuple>

#include <hfcomm/collectives/all_gather.hpp>
#include <hfcomm/collectives/broadcast.hpp>
#include <hfcomm/collectives/broadcast_object_list.hpp>
#include <hfcomm/collectives/message_batch.hpp>
#include <hfcomm/collectives/recv.hpp>
#include <hfcomm/collectives/send.hpp>
#include <hfcomm/collectives/send_receive.hpp>
#include <hfcomm/group/connect.hpp>
#include <hfcomm/group/launch.hpp>

#include "../chain.hpp"
#include "../process/processes.hpp"

namespace {

using namespace hfcomm;
using namespace multi_rank;

/// Returns the text of the usage_error that `call` throws where an object is too deep.
template <class Call>
std::string text_of_error(Call call) {
  try {
    call();
  } catch (const usage_error& problem) {
    return problem.what();
  }
  return "nothing";
}

TEST_CASE("depth: the error on the rank itself names the call and its line, and the limit") {
  run_ranks(2, [](const process_group& world) {
    const bool is_odd = world.rank() == 0;
    chain deep = chain_of(is_odd ? 300 : 3);
    const auto check = [&](const std::string& operation, const auto& call) {
      if (is_odd) {
        const std::string text = text_of_error(call);
        INFO(text);
        CHECK(text.find("rank 0/2: " + operation) == 0);
        CHECK(text.find("depth_test.cpp:") != std::string::npos);
        CHECK(text.find("nested more than 256 deep; init_options::max_depth raises that limit") != std::string::npos);
      } else {
        CHECK_THROWS_AS(call(), peer_error);
      }
    };
    check("all_gather<", [&] { (void)all_gather(deep, world); });
    check("broadcast<", [&] { broadcast(deep, world); });
    check("all_gather<", [&] { all_gather_async(chain_of(is_odd ? 300 : 3), world).wait(); });
    check("broadcast_object_list", [&] {
      int number = 1;
      auto objects = std::tie(deep, number);
      broadcast_object_list(objects, world);
    });
    if (is_odd) {
      check("send<", [&] { send(deep, 1, world); });
      check("isend<", [&] { isend(deep, 1, world).wait(); });
      check("message_batch::send<", [&] {
        message_batch batch(world);
        batch.send(deep, 1).run();
      });
    } else {
      check("recv<", [&] { (void)recv<chain>(0, world); });
      check("recv<", [&] { (void)recv<chain>(0, world); });
      check("recv<", [&] { (void)recv<chain>(0, world); });
    }
    check("send_receive<", [&] { (void)send_receive(deep, 1 - world.rank(), 1 - world.rank(), world); });
    CHECK(all_gather(1, world).size() == 2);
  });
}

TEST_CASE("depth: launch, init and connect raise the limit") {
  constexpr std::size_t depth = 5000;
  processes::child_processes parent(1, [&](int) {
    launch_options options;
    options.processes = 2;
    options.max_depth = depth;
    const int status = launch(options, [&] {
      chain value = chain_of(rank() == 0 ? depth : 1);
      broadcast(value);
      processes::report("depth " + std::to_string(depth_of(value)));
      const auto group =
          connect({.init_method = "job://deeper", .rank = rank(), .world_size = 2, .max_depth = 2 * depth});
      processes::report("of a group " + std::to_string(depth_of(all_gather(chain_of(2 * depth), group)[0])));
      const auto other = connect({.init_method = "job://as_it_was", .rank = rank(), .world_size = 2});
      processes::report("as it was " + std::to_string(depth_of(all_gather(chain_of(2 * depth), other)[0])));
    });
    processes::report("status " + std::to_string(status));
  });
  const auto done = parent.wait(std::chrono::seconds(60)).front();
  INFO(done.output);
  CHECK(processes::count_of(done.output, "depth 5000\n") == 2);
  CHECK(processes::count_of(done.output, "of a group 10000\n") == 2);
  CHECK(processes::count_of(done.output, "as it was 10000\n") == 2);
  CHECK(processes::count_of(done.output, "status 0\n") == 1);
}

}  // namespace
