// SPDX-License-Identifier: MIT
// The asynchronous forms of operations with more than one exchange.
#include "ranks.hpp"

#include <filesystem>
#include <fstream>
#include <map>
#include <span>
#include <variant>

#include <unistd.h>

#include <hfcomm/collectives/collect_results_in_files.hpp>
#include <hfcomm/ddp.hpp>

namespace {

using namespace hfcomm;
using namespace multi_rank;

class temporary_directory {
 public:
  temporary_directory()
      : path_(std::filesystem::temp_directory_path() / ("hfcomm_async_results_" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(path_);
  }
  temporary_directory(const temporary_directory&) = delete;
  temporary_directory& operator=(const temporary_directory&) = delete;
  ~temporary_directory() { std::filesystem::remove_all(path_); }
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace

TEST_CASE("async: dictionaries are reduced") {
  at_every_size([](const process_group& world) {
    const double mean = (world.size() - 1) / 2.0;
    const std::map<std::string, double> mine{{"loss", world.rank()}};
    auto everywhere = all_reduce_dict_async(mine, reduce_op::average, world);
    auto at_root = reduce_dict_async(mine, reduce_op::average, 0, world);
    CHECK(at_root.wait().at("loss") == (world.rank() == 0 ? mean : world.rank()));
    CHECK(everywhere.wait().at("loss") == mean);
    const std::map<std::string, std::variant<double, int>> mixed{{"a", 1.0}, {"b", 2}};
    CHECK(std::get<int>(all_reduce_dict_async(mixed, reduce_op::sum, world).wait().at("b")) == 2 * world.size());
    auto wrong = all_reduce_dict_async(std::map<int, float>{{world.rank(), 1.0F}}, reduce_op::sum, world);
    if (world.size() > 1) {
      CHECK_THROWS_AS(wrong.wait(), mismatch_error);
    } else {
      CHECK(wrong.wait().size() == 1);
    }
    check_usable(world);
  });
}

TEST_CASE("async: lists of objects and of spans are broadcast and reduced") {
  at_every_size([](const process_group& world) {
    std::vector<std::string> list{std::to_string(world.rank())};
    int number = world.rank();
    std::string text = std::to_string(world.rank());
    auto lists = broadcast_object_list_async(list, 0, world);
    auto several = broadcast_object_list_async(std::tie(number, text), 0, world);
    std::vector<float> long_one(1000, 1.0F);
    std::vector<float> short_one(3, 2.0F);
    auto sums = all_reduce_async(std::vector<std::span<float>>{long_one, short_one}, reduce_op::sum, world);
    several.wait();
    CHECK(number == 0);
    CHECK(text == "0");
    lists.wait();
    CHECK(list == std::vector<std::string>{"0"});
    sums.wait();
    CHECK(long_one == std::vector<float>(1000, static_cast<float>(world.size())));
    CHECK(short_one == std::vector<float>(3, 2.0F * static_cast<float>(world.size())));
    short_one[0] = static_cast<float>(world.rank());
    broadcast_async(std::vector<std::span<float>>{short_one}, world.size() - 1, world).wait();
    CHECK(short_one[0] == static_cast<float>(world.size() - 1));
  });
}

TEST_CASE("async: lists take options, and models reduce gradients and values") {
  at_every_size([](const process_group& world) {
    std::vector<float> first(100, 1.0F);
    std::vector<float> second(7, static_cast<float>(world.rank()));
    const std::vector<std::span<float>> list{first, second};
    all_reduce_async(list, reduce_op::sum, coalesce_options{.chunk_bytes = 64}, world).wait();
    CHECK(first == std::vector<float>(100, static_cast<float>(world.size())));
    second[0] = static_cast<float>(world.rank());
    broadcast_async(list, world.size() - 1, coalesce_options{.chunk_bytes = 64}, world).wait();
    CHECK(second[0] == static_cast<float>(world.size() - 1));

    std::vector<double> values(5, world.rank());
    std::vector<double> gradients(5, 2.0 * world.rank());
    const std::vector<ddp_parameter> parameters{named_parameter("weights", values, gradients)};
    auto reduced = all_reduce_params_async(parameters, reduce_op::sum, 1 << 20, world);
    auto averaged = all_reduce_param_values_async(parameters, reduce_op::average, 1 << 20, world);
    averaged.wait();
    reduced.wait();
    CHECK(gradients == std::vector<double>(5, world.size() * (world.size() - 1.0)));
    CHECK(values == std::vector<double>(5, (world.size() - 1) / 2.0));
  });
}

TEST_CASE("async: collect_results works in memory and through files") {
  const temporary_directory directory;
  at_every_size([&](const process_group& world) {
    const auto total = as_index(3 * world.size() - 1);
    std::vector<std::string> part;
    std::vector<std::size_t> indices;
    for (int i = 0; i < 3; ++i) {
      indices.push_back(as_index(i * world.size() + world.rank()) % total);
      part.push_back("result " + std::to_string(indices.back()));
    }
    std::vector<std::string> expected;
    for (std::size_t i = 0; world.rank() == 0 && i < total; ++i) {
      expected.push_back("result " + std::to_string(i));
    }
    auto in_turn = collect_results_async(part, total, 0, world);
    auto by_index = collect_results_async(indices, part, total, 0, world);
    auto in_files = collect_results_in_files_async(part, total, directory.path(), 0, world);
    CHECK(in_files.wait() == expected);
    CHECK(by_index.wait() == expected);
    CHECK(in_turn.wait() == expected);
    CHECK(std::filesystem::is_empty(directory.path()));
  });
}

TEST_CASE("async: read_file_dist works whole and piece by piece") {
  const temporary_directory directory;
  const auto file = directory.path() / "file";
  const std::string contents = text_of(1, 100'000);
  std::ofstream(file) << contents;
  at_every_size([&](const process_group& world) {
    auto whole = read_file_dist_async(file, world);
    std::string collected;
    auto pieces = read_file_dist_async(
        file,
        [&](std::span<const std::byte> piece) {
          collected.append(reinterpret_cast<const char*>(piece.data()), piece.size());
        },
        world);
    auto missing = read_file_dist_async(directory.path() / "none", world);
    CHECK_THROWS_AS(missing.wait(), error);
    CHECK(pieces.wait() == contents.size());
    CHECK(collected == contents);
    CHECK(whole.wait() == contents);
    check_usable(world);
  });
}
