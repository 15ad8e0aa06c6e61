// SPDX-License-Identifier: MIT
#include "torch_ranks.hpp"

#include <atomic>
#include <stdexcept>

namespace {

using namespace torch_ranks;
using hfcomm::peer_error;
using hfcomm::reduce_op;
using hfcomm::usage_error;
namespace ht = hfcomm::torch;

/// Returns numbers that differ from rank to rank, three rows of four.
at::Tensor own(int rank) { return at::arange(12, at::kLong).reshape({3, 4}).add(100 * rank); }

/// Returns a tensor that is not contiguous, with the same elements.
at::Tensor scattered_copy(const at::Tensor& tensor) { return at::stack({tensor, tensor}, -1).select(-1, 0); }

at::Tensor sum_of_all(int ranks) {
  return at::arange(12, at::kLong).reshape({3, 4}) * ranks + 50 * ranks * (ranks - 1);
}

TEST_CASE("torch async: the started collectives give what the blocking ones do, contiguous or not") {
  at_each_size([](const process_group& world) {
    const int ranks = world.size();
    const int last = ranks - 1;
    std::vector<at::Tensor> everyone;
    for (int rank = 0; rank < ranks; ++rank) {
      everyone.push_back(own(rank));
    }
    for (const bool is_contiguous : {true, false}) {
      const auto made = [&](const at::Tensor& tensor) {
        at::Tensor copy = is_contiguous ? tensor.clone() : scattered_copy(tensor);
        REQUIRE(copy.is_contiguous() == is_contiguous);
        return copy;
      };
      at::Tensor sum = made(own(world.rank()));
      at::Tensor rooted = made(own(world.rank()));
      at::Tensor shared = made(own(world.rank()));
      at::Tensor table = made(at::zeros({3 * ranks, 4}, at::kLong));
      at::Tensor root_table = world.rank() == last ? made(at::zeros({3 * ranks, 4}, at::kLong)) : at::Tensor();
      at::Tensor exchanged = made(at::zeros({ranks, 4}, at::kLong));
      at::Tensor reduced = made(at::zeros({1, 4}, at::kLong));
      std::vector<hfcomm::work<>> works;  // all at a time, done in this order
      works.push_back(ht::all_reduce_async(sum));
      works.push_back(ht::reduce_async(rooted, last, reduce_op::max));
      works.push_back(ht::broadcast_async(shared, last));
      works.push_back(ht::all_gather_async(made(own(world.rank())), table));
      works.push_back(ht::gather_async(made(own(world.rank())), root_table, last));
      works.push_back(ht::all_to_all_async(made(own(world.rank()).narrow(0, 0, 1).repeat({ranks, 1})), exchanged));
      works.push_back(ht::reduce_scatter_async(made(at::ones({ranks, 4}, at::kLong)), reduced));
      auto list = ht::all_gather_async(made(own(world.rank())));
      auto root_list = ht::gather_async(made(own(world.rank())), last);
      for (auto& one : works) {
        one.wait();
      }
      CHECK(at::equal(sum, sum_of_all(ranks)));
      CHECK(at::equal(rooted, own(world.rank())));  // the root has the largest numbers
      CHECK(at::equal(shared, own(last)));
      CHECK(at::equal(table, at::cat(everyone)));
      CHECK((world.rank() != last || at::equal(root_table, at::cat(everyone))));
      CHECK(at::equal(reduced, at::full({1, 4}, ranks, at::kLong)));
      const auto tensors = list.wait();
      const auto root_tensors = root_list.wait();
      CHECK(root_tensors.size() == (world.rank() == last ? as_index(ranks) : 0));
      for (int rank = 0; rank < ranks; ++rank) {
        CHECK(at::equal(exchanged[rank], own(rank)[0]));
        CHECK(at::equal(tensors[as_index(rank)], own(rank)));
        CHECK((root_tensors.empty() || at::equal(root_tensors[as_index(rank)], own(rank))));
      }
      at::Tensor part = made(at::zeros({3, 4}, at::kLong));
      ht::scatter_async(root_table, part, last).wait();
      CHECK(at::equal(part, own(world.rank())));
    }
  });
}

TEST_CASE("torch async: a work keeps the memory of its tensors") {
  run_noted(2, "", [](const process_group& world) {
    static std::atomic<int> freed;
    freed.store(0);
    hfcomm::barrier(world);
    const auto made = [](int rank) {
      auto* const elements = new std::int64_t[4]{rank, rank, rank, rank};
      return at::from_blob(
          elements, {4},
          [elements](void*) {
            ++freed;
            delete[] elements;
          },
          at::kLong);
    };
    auto receiving = ht::irecv(made(-1), 1 - world.rank(), world, 5);
    auto gathering = ht::all_gather_async(made(world.rank()), at::zeros({8}, at::kLong));
    gathering.wait();
    CHECK(freed.load() <= 2);  // nobody has sent anything
    hfcomm::barrier(world);
    ht::isend(made(world.rank()), 1 - world.rank(), world, 5).wait();
    receiving.wait();
    hfcomm::barrier(world);
    CHECK(freed.load() == 6);
  });
}

TEST_CASE("torch async: messages, from any rank, of any tag, contiguous or not") {
  at_each_size([](const process_group& world) {
    const int ranks = world.size();
    const int next = (world.rank() + 1) % ranks;
    const int previous = (world.rank() + ranks - 1) % ranks;
    for (const bool is_contiguous : {true, false}) {
      const auto made = [&](const at::Tensor& tensor) {
        return is_contiguous ? tensor.clone() : scattered_copy(tensor);
      };
      at::Tensor first = made(at::zeros({3, 4}, at::kLong));
      at::Tensor second = made(at::zeros({3, 4}, at::kLong));
      at::Tensor third = made(at::zeros({3, 4}, at::kLong));
      auto from_one = ht::irecv(first, previous, world, 1);
      auto from_any = ht::irecv(second, hfcomm::any_source, world, 2);
      auto sent = ht::isend(made(own(world.rank())), next, world, 1);
      auto sent_too = ht::isend(made(own(world.rank() + 10)), next, world, 2);
      from_one.wait();
      CHECK(from_any.wait() == previous);
      sent.wait();
      sent_too.wait();
      auto of_any_tag = ht::irecv(third, previous, world, hfcomm::any_tag);
      ht::isend(made(own(world.rank() + 20)), next, world, 7).wait();
      CHECK((of_any_tag.wait() == hfcomm::message_info{previous, 7, 96}));
      CHECK(at::equal(first, own(previous)));
      CHECK(at::equal(second, own(previous + 10)));
      CHECK(at::equal(third, own(previous + 20)));
      if (ranks > 1) {
        at::Tensor fourth = made(at::zeros({3, 4}, at::kLong));
        auto last = ht::isend(own(world.rank()), next, world, 9);
        CHECK((ht::recv(fourth, hfcomm::any_source, world, hfcomm::any_tag) == hfcomm::message_info{previous, 9, 96}));
        CHECK(at::equal(fourth, own(previous)));
        last.wait();
      }
    }
  });
}

TEST_CASE("torch async: gathered tensors are of the mode of the call, whichever thread makes them in whatever mode") {
  at_each_size([](const process_group& world) {
    for (int turn = 0; turn < 50; ++turn) {
      auto started = ht::all_gather_async(own(world.rank()));
      const auto started_inside = [&] {
        const c10::InferenceMode mode;
        return ht::all_gather_async(own(world.rank()));
      };
      auto inside = started_inside();
      const auto tensors = [&] {
        const c10::InferenceMode mode;
        return started.wait();
      }();
      CHECK_FALSE(tensors.front().is_inference());
      CHECK(inside.wait().front().is_inference());
    }
  });
}

TEST_CASE("torch async: bad arguments are thrown at once, name the line, and reach the other ranks") {
  at_each_size(
      [](const process_group& world) {
        const auto check_refused = [&](const char* text, auto&& wrong, auto&& right) {
          if (world.rank() == 0) {
            CHECK_CONTAINS(error_of<usage_error>([&] { (void)wrong(); }).what(), text);
          } else {
            auto started = right();
            CHECK_CONTAINS(error_of<peer_error>([&] { started.wait(); }).what(), text);
          }
          check_usable(world);
        };
        const auto reduce_numbers = [] { return ht::all_reduce_async(at::ones({3})); };
        const auto gather_numbers = [] { return ht::all_gather_async(at::ones({3})); };
        check_refused("undefined", [] { return ht::all_reduce_async(at::Tensor()); }, reduce_numbers);
        check_refused("undefined", [] { return ht::all_gather_async(at::Tensor()); }, gather_numbers);
        check_refused("sparse", [] { return ht::all_reduce_async(at::ones({3}).to_sparse()); }, reduce_numbers);
        const at::Tensor nested = at::_nested_tensor_from_tensor_list({at::ones({1}), at::ones({2})});
        check_refused("nested", [&] { return ht::all_reduce_async(nested); }, reduce_numbers);
        check_refused("nested", [&] { return ht::all_gather_async(nested); }, gather_numbers);
        check_refused(
            "the average of int32", [] { return ht::all_reduce_async(at::ones({3}, at::kInt), reduce_op::average); },
            reduce_numbers);
        check_refused(
            "the output has 4", [] { return ht::all_gather_async(at::ones({3}), at::ones({4})); }, gather_numbers);
        check_refused(
            "type double", [] { return ht::all_gather_async(at::ones({3}), at::ones({9}, at::kDouble)); },
            gather_numbers);
        std::uint_least32_t line = 0;
        const auto problem = error_of<usage_error>([&] {
          line = __LINE__ + 1;
          (void)ht::broadcast_async(at::ones({3}), 7);
        });
        CHECK(problem.where().line() == line);
        CHECK_CONTAINS(error_of<usage_error>([] { (void)ht::irecv(at::Tensor(), 1); }).what(), "undefined");
        CHECK_CONTAINS(error_of<usage_error>([] { (void)ht::isend(at::ones({3}), 9); }).what(), "9");
        check_usable(world);
      },
      2);
}

}  // namespace
