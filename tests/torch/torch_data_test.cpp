// SPDX-License-Identifier: MIT
#include "torch_ranks.hpp"

#include <algorithm>
#include <sstream>

namespace {

using namespace torch_ranks;
namespace ht = hfcomm::torch;

/// A data set of its own indices.
struct numbers_dataset : torch::data::datasets::Dataset<numbers_dataset, std::size_t> {
  std::size_t get(std::size_t index) override { return index; }
  torch::optional<std::size_t> size() const override { return 11; }
};

TEST_CASE("torch sampler: a data loader's batches are this rank's share, in another order in every epoch") {
  at_each_size([](const process_group& world) {
    ht::distributed_sampler sampler(11, {.seed = 5});
    hfcomm::distributed_sampler expected(11, {.seed = 5});
    auto loader = torch::data::make_data_loader(numbers_dataset(), sampler, 3);
    CHECK(sampler.size() == expected.size());
    std::vector<std::vector<std::size_t>> epochs;
    for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
      sampler.set_epoch(epoch);
      expected.set_epoch(epoch);
      std::vector<std::size_t> seen;
      for (const auto& batch : *loader) {
        CHECK(batch.size() <= 3);
        seen.insert(seen.end(), batch.begin(), batch.end());
      }
      CHECK(std::ranges::equal(seen, expected.indices()));
      epochs.push_back(seen);
    }
    CHECK((epochs[0] != epochs[1]));
    CHECK((epochs[1] != epochs[2]));
    std::vector<std::size_t> all;
    for (const auto& part : hfcomm::all_gather(epochs[0])) {
      all.insert(all.end(), part.begin(), part.end());
    }
    for (std::size_t item = 0; item < 11; ++item) {
      CHECK(std::ranges::count(all, item) >= 1);
    }
    CHECK(all.size() == as_index(world.size()) * sampler.size());
  });
}

TEST_CASE("torch sampler: it continues where it was saved, and follows another size") {
  at_each_size([](const process_group& /*world*/) {
    ht::distributed_sampler sampler(30);
    sampler.set_epoch(4);
    sampler.reset();
    (void)sampler.next(3);
    std::stringstream file;
    {
      torch::serialize::OutputArchive archive;
      sampler.save(archive);
      archive.save_to(file);
    }
    const auto expected = sampler.next(100);
    CHECK_FALSE(sampler.next(1).has_value());
    ht::distributed_sampler resumed(30);
    torch::serialize::InputArchive archive;
    archive.load_from(file);
    resumed.load(archive);
    const auto rest = resumed.next(100);
    REQUIRE(rest.has_value());
    REQUIRE(expected.has_value());
    CHECK((*rest == *expected));
    resumed.reset(60);
    CHECK(resumed.size() == 2 * sampler.size());
    ht::distributed_sampler shorter(1);
    torch::serialize::InputArchive again;
    file.seekg(0);
    again.load_from(file);
    CHECK_CONTAINS(error_of<hfcomm::usage_error>([&] { shorter.load(again); }).what(), "position 3 is beyond");
    CHECK(shorter.next(5) == std::vector<std::size_t>{0});  // as if it had not been tried
  });
}

}  // namespace
