// SPDX-License-Identifier: MIT
#include "torch_ranks.hpp"

#include <map>

namespace {

using namespace torch_ranks;
using hfcomm::mismatch_error;
using hfcomm::peer_error;
using hfcomm::reduce_op;
using hfcomm::usage_error;
namespace ht = hfcomm::torch;

const std::vector<at::ScalarType> reducible{at::kByte,   at::kChar,         at::kShort,        at::kInt,
                                            at::kLong,   at::kHalf,         at::kFloat,        at::kBFloat16,
                                            at::kDouble, at::kComplexFloat, at::kComplexDouble};

/// Returns small integers that differ from rank to rank, in which every type calculates exactly.
at::Tensor small_numbers(at::ScalarType type, int rank) {
  return (at::arange(12, at::kLong) % 5 + rank + 1).reshape({3, 4}).to(type);
}

at::Tensor sum_over_ranks(at::ScalarType type, int ranks) {
  at::Tensor sum = small_numbers(type, 0);
  for (int rank = 1; rank < ranks; ++rank) {
    sum = sum + small_numbers(type, rank);
  }
  return sum;
}

TEST_CASE("torch tensors: sums of every type, in place, contiguous or not") {
  at_each_size([](const process_group& world) {
    for (const at::ScalarType type : reducible) {
      at::Tensor data = small_numbers(type, world.rank());
      ht::all_reduce(data);
      CHECK(at::equal(data, sum_over_ranks(type, world.size())));

      at::Tensor wide = at::zeros({4, 6}, type);
      at::Tensor part = wide.narrow(1, 1, 3).t();
      part.copy_(small_numbers(type, world.rank()));
      REQUIRE_FALSE(part.is_contiguous());
      ht::all_reduce(part);
      CHECK(at::equal(part, sum_over_ranks(type, world.size())));
      CHECK(at::equal(wide.select(1, 0), at::zeros({4}, type)));
      CHECK(at::equal(wide.narrow(1, 4, 2), at::zeros({4, 2}, type)));

      at::Tensor rooted = small_numbers(type, world.rank());
      const int root = world.size() - 1;
      ht::reduce(rooted, root);
      CHECK(at::equal(rooted,
                      world.rank() == root ? sum_over_ranks(type, world.size()) : small_numbers(type, world.rank())));
    }
  });
}

TEST_CASE("torch tensors: other reductions, of bools too, and a parameter that needs a gradient") {
  at_each_size([](const process_group& world) {
    at::Tensor leaf = torch::full({3}, world.rank() + 1.0, at::requires_grad());
    ht::all_reduce(leaf, reduce_op::average);
    CHECK(leaf[0].item<double>() == (world.size() + 1) / 2.0);
    CHECK(leaf.requires_grad());

    const auto of_bools = [&](reduce_op op) {
      at::Tensor any = at::tensor({1, 0, world.rank() == 0 ? 1 : 0}).to(at::kBool);
      ht::all_reduce(any, op);
      const at::Tensor bytes = any.view(at::kByte);  // other bytes than 0 and 1 are no bools
      return bytes[0].item<int>() * 4 + bytes[1].item<int>() * 2 + bytes[2].item<int>();
    };
    const int if_all = world.size() == 1 ? 5 : 4;
    CHECK(of_bools(reduce_op::sum) == 5);
    CHECK(of_bools(reduce_op::max) == 5);
    CHECK(of_bools(reduce_op::bit_or) == 5);
    CHECK(of_bools(reduce_op::product) == if_all);
    CHECK(of_bools(reduce_op::min) == if_all);
    CHECK(of_bools(reduce_op::bit_and) == if_all);

    at::Tensor conjugate = at::complex(at::ones({2}), at::ones({2})).conj();
    ht::all_reduce(conjugate);
    CHECK(at::equal(conjugate, at::complex(at::ones({2}), -at::ones({2})) * world.size()));
  });
}

TEST_CASE("torch tensors: the collectives that move elements, of every type") {
  at_each_size([](const process_group& world) {
    const int ranks = world.size();
    auto types = reducible;
    types.push_back(at::kBool);
    for (const at::ScalarType type : types) {
      const auto own = [type](int rank) { return (small_numbers(at::kLong, rank) % 3).to(type); };
      at::Tensor data = own(world.rank());
      ht::broadcast(data, ranks - 1);
      CHECK(at::equal(data, own(ranks - 1)));

      const auto all = ht::all_gather(own(world.rank()));
      const auto rooted = ht::gather(own(world.rank()), ranks - 1);
      REQUIRE(all.size() == as_index(ranks));
      REQUIRE(rooted.size() == as_index(world.rank() == ranks - 1 ? ranks : 0));
      for (int rank = 0; rank < ranks; ++rank) {
        CHECK(at::equal(all[as_index(rank)], own(rank)));
        CHECK((rooted.empty() || at::equal(rooted[as_index(rank)], own(rank))));
      }
      at::Tensor table = at::zeros({4, 3 * ranks}, type).t();  // not contiguous
      ht::all_gather(own(world.rank()).contiguous(), table);
      CHECK(at::equal(table, at::cat(all)));
      at::Tensor root_table = world.rank() == 0 ? at::zeros({3 * ranks, 4}, type) : at::Tensor();
      ht::gather(own(world.rank()), root_table, 0);
      CHECK((world.rank() != 0 || at::equal(root_table, table)));

      at::Tensor part = at::zeros({3, 4}, type);
      ht::scatter(root_table, part, 0);
      CHECK(at::equal(part, own(world.rank())));

      // Part r of rank s is own(r + s).
      std::vector<at::Tensor> parts;
      for (int rank = 0; rank < ranks; ++rank) {
        parts.push_back(own(rank + world.rank()));
      }
      at::Tensor exchanged = at::zeros({3 * ranks, 4}, type);
      ht::all_to_all(at::cat(parts), exchanged);
      CHECK(at::equal(exchanged, at::cat(parts)));

      if (ranks > 1) {
        const int next = (world.rank() + 1) % ranks;
        at::Tensor received = at::zeros({4, 3}, type).t();
        if (world.rank() == 0) {
          ht::send(own(0).t().contiguous().t(), next, world, 3);
          CHECK(ht::recv(received, hfcomm::any_source, world, 3) == ranks - 1);
        } else {
          ht::recv(received, world.rank() - 1, world, 3);
          ht::send(own(world.rank()), next, world, 3);
        }
        CHECK(at::equal(received, own((world.rank() + ranks - 1) % ranks)));
      }
    }
    at::Tensor scattered = at::zeros({4});
    ht::reduce_scatter(at::arange(4 * ranks, at::kFloat) * (world.rank() + 1), scattered);
    CHECK(at::equal(scattered, at::arange(4, at::kFloat).add(4 * world.rank()) * (ranks * (ranks + 1) / 2)));
  });
}

TEST_CASE("torch tensors: a span on another rank is the same operation") {
  at_each_size([](const process_group& world) {
    std::vector<float> elements{1, 2, 3};
    at::Tensor tensor = at::tensor({1.0F, 2.0F, 3.0F});
    if (world.rank() == 0) {
      hfcomm::all_reduce(elements);
      const auto ranks = static_cast<float>(world.size());
      CHECK((elements == std::vector<float>{ranks, 2 * ranks, 3 * ranks}));
    } else {
      ht::all_reduce(tensor);
      CHECK(at::equal(tensor, at::tensor({1.0F, 2.0F, 3.0F}) * world.size()));
    }
  });
}

TEST_CASE("torch tensors: autograd knows which tensors were written") {
  at_each_size(
      [](const process_group& world) {
        const auto is_noted = [](const at::Tensor& tensor, auto&& call) {
          const auto before = tensor._version();
          call();
          return tensor._version() != before;
        };
        const at::Tensor data = at::ones({4 * world.size()});
        const at::Tensor part = at::ones({4});
        const bool is_first = world.rank() == 0;
        CHECK(is_noted(data, [&] { ht::all_reduce(data); }));
        CHECK(is_noted(data, [&] { ht::reduce(data, 0); }) == is_first);
        CHECK(is_noted(data, [&] { ht::broadcast(data, 0); }) != is_first);
        CHECK(is_noted(data, [&] { ht::all_gather(part, data); }));
        CHECK_FALSE(is_noted(part, [&] { ht::all_gather(part, data); }));
        CHECK(is_noted(part, [&] { ht::scatter(data, part); }));
        CHECK(is_noted(part, [&] {
                is_first ? ht::send(part, 1) : void(world.rank() == 1 ? ht::recv(part, 0) : void());
              }) == (world.rank() == 1));
        const at::Tensor leaf = torch::ones({4}, at::requires_grad());
        const at::Tensor loss = (leaf * part).sum();
        ht::all_reduce(part);
        CHECK_THROWS_AS(loss.backward(), c10::Error);
      },
      2);
}

TEST_CASE("torch tensors: what all_gather returns may be written, one tensor apart from the others") {
  at_each_size([](const process_group& world) {
    for (auto gathered : {ht::all_gather(at::ones({2})), ht::gather(at::ones({2}))}) {
      if (gathered.empty()) {
        CHECK(world.rank() != 0);
        continue;
      }
      const at::Tensor leaf = torch::ones({2}, at::requires_grad());
      const at::Tensor loss = (gathered.back() * leaf).sum();
      if (world.size() > 1) {
        gathered.front().mul_(leaf);
      }
      loss.backward();
      CHECK(at::equal(leaf.grad(), at::ones({2})));
    }
  });
}

TEST_CASE("torch tensors: a tensor that cannot be written may be read") {
  at_each_size([](const process_group& world) {
    const auto expanded = [] { return at::full({1}, 3.0).expand({4}); };
    const at::Tensor data = world.rank() == 0 ? expanded() : at::zeros({4});
    ht::broadcast(data, 0);
    CHECK(at::equal(data, at::full({4}, 3.0)));
    const at::Tensor summand = world.rank() == 0 ? at::full({4}, 3.0) : expanded();
    ht::reduce(summand, 0);
    CHECK(at::equal(summand, at::full({4}, world.rank() == 0 ? 3.0 * world.size() : 3.0)));
  });
}

TEST_CASE("torch tensors: unusable ones are a usage_error here and a peer_error elsewhere") {
  at_each_size(
      [](const process_group& world) {
        const auto check_refused = [&](const char* text, auto&& wrong, auto&& right) {
          if (world.rank() == 0) {
            CHECK_CONTAINS(error_of<usage_error>(wrong).what(), text);
          } else {
            CHECK_CONTAINS(error_of<peer_error>(right).what(), text);
          }
          check_usable(world);
        };
        const auto reduce_numbers = [] { ht::all_reduce(at::ones({3})); };
        const auto gather_numbers = [] { (void)ht::all_gather(at::ones({3})); };
        check_refused("the tensor is undefined", [] { ht::all_reduce(at::Tensor()); }, reduce_numbers);
        check_refused("the tensor is undefined", [] { (void)ht::all_gather(at::Tensor()); }, gather_numbers);
        check_refused("the tensor is sparse", [] { ht::all_reduce(at::ones({3}).to_sparse()); }, reduce_numbers);
        check_refused(
            "on the device meta", [] { ht::all_reduce(at::empty({3}, at::device(at::kMeta))); }, reduce_numbers);
        check_refused(
            "the output is of type double, the input of type float",
            [] { ht::all_gather(at::ones({3}), at::ones({9}, at::kDouble)); }, gather_numbers);
        check_refused(
            "the average of int32 elements is not defined",
            [] { ht::all_reduce(at::ones({3}, at::kInt), reduce_op::average); }, reduce_numbers);
        check_refused(
            "the average of bool elements is not defined",
            [] { ht::all_reduce(at::ones({3}, at::kBool), reduce_op::average); }, reduce_numbers);
        check_refused("ComplexHalf", [] { ht::all_reduce(at::empty({3}, at::kComplexHalf)); }, reduce_numbers);
        check_refused(
            "several elements of the tensor share memory", [] { ht::all_reduce(at::ones({1}).expand({3})); },
            reduce_numbers);
        check_refused(
            "several elements of the tensor share memory",
            [&] { ht::all_gather(at::ones({3}), at::ones({1}).expand({3 * world.size()})); }, gather_numbers);
        check_refused(
            "several elements of the tensor share memory",
            [] { ht::all_reduce_async(at::ones({1}).expand({3})).wait(); }, reduce_numbers);
        CHECK_CONTAINS(error_of<usage_error>([] { ht::irecv(at::ones({1}).expand({3}), 0).wait(); }).what(),
                       "several elements of the tensor share memory");
        check_refused(
            "the output has 4 elements", [] { ht::all_gather(at::ones({3}), at::ones({4})); }, gather_numbers);
        CHECK_CONTAINS(error_of<usage_error>([] { ht::broadcast(at::ones({3}), 7); }).what(), "7");
        CHECK_CONTAINS(error_of<mismatch_error>([&] {
                         ht::all_reduce(at::ones({3}, world.rank() == 0 ? at::kFloat : at::kDouble));
                       }).what(),
                       "float64");
        CHECK_CONTAINS(error_of<mismatch_error>([&] {
                         ht::broadcast(at::ones({3}, world.rank() == 0 ? at::kBool : at::kByte));
                       }).what(),
                       "bool");
        if (world.rank() == 0) {
          CHECK_CONTAINS(error_of<usage_error>([&] { ht::send(at::Tensor(), 1); }).what(), "undefined");
        } else if (world.rank() == 1) {
          CHECK_CONTAINS(error_of<peer_error>([&] { ht::recv(at::ones({3}), 0); }).what(), "undefined");
        }
        check_usable(world);
      },
      2);
}

TEST_CASE("torch tensors: those without elements pass through every operation") {
  at_each_size([](const process_group& world) {
    const auto none = [] { return at::empty({0, 3}); };
    const std::vector<std::size_t> no_rows(as_index(world.size()), 0);
    ht::all_reduce(none());
    ht::reduce(none(), 0);
    ht::broadcast(none(), 0);
    ht::all_gather(none(), none());
    ht::all_gather(none(), none(), no_rows);
    ht::gather(none(), none(), 0);
    ht::gather(none(), none(), no_rows, 0);
    ht::scatter(none(), none(), 0);
    ht::scatter(none(), none(), no_rows, 0);
    ht::reduce_scatter(none(), none());
    ht::reduce_scatter(none(), none(), no_rows);
    ht::all_to_all(none(), none());
    ht::all_to_all(none(), no_rows, none(), no_rows);
    for (const auto& gathered : {ht::all_gather(none()), ht::all_gather_async(none()).wait()}) {
      REQUIRE(gathered.size() == as_index(world.size()));
      CHECK((gathered.back().sizes() == at::IntArrayRef({0, 3})));
    }
    CHECK(ht::gather(none(), 0).size() == (world.rank() == 0 ? as_index(world.size()) : 0));
    if (world.size() > 1 && world.rank() == 0) {
      ht::send(none(), 1);
    } else if (world.rank() == 1) {
      ht::recv(none(), 0);
    }
    check_usable(world);
  });
}

template <class T>
concept broadcast_as_object = requires(T& value) { hfcomm::broadcast(value, 0); };
template <class T>
concept broadcast_as_object_async = requires(T& value) { hfcomm::broadcast_async(value); };

TEST_CASE("torch tensors: one tensor is not broadcast as an object, a list is") {
  static_assert(!broadcast_as_object<at::Tensor> && !broadcast_as_object_async<at::Tensor>);
  static_assert(broadcast_as_object<std::vector<at::Tensor>> && broadcast_as_object_async<std::vector<at::Tensor>>);
  at_each_size([](const process_group& world) {
    std::vector<at::Tensor> list(1, at::full({world.rank() + 1}, world.rank(), at::kLong));
    hfcomm::broadcast(list);
    CHECK(at::equal(list[0], at::zeros({1}, at::kLong)));
  });
}

TEST_CASE("torch tensors: as objects they may have any type and sizes") {
  at_each_size([](const process_group& world) {
    static_assert(hfcomm::serializable<at::Tensor>);
    const auto tensor_of = [](int rank) {
      return rank == 0 ? at::Tensor() : at::arange(6 * rank, at::kLong).reshape({rank, 6}).t().to(at::kHalf);
    };
    const auto all = hfcomm::all_gather(tensor_of(world.rank()));
    REQUIRE(all.size() == as_index(world.size()));
    CHECK_FALSE(all[0].defined());
    for (int rank = 1; rank < world.size(); ++rank) {
      CHECK((all[as_index(rank)].scalar_type() == at::kHalf));
      CHECK(at::equal(all[as_index(rank)], tensor_of(rank)));
    }
    std::map<std::string, at::Tensor> state;
    if (world.rank() == 0) {
      state = {{"step", at::scalar_tensor(7, at::kLong)},
               {"empty", at::zeros({0, 5})},
               {"mask", at::ones({2, 2}, at::kBool)}};
    }
    hfcomm::broadcast(state);
    REQUIRE(state.size() == 3);
    CHECK(state["step"].item<std::int64_t>() == 7);
    CHECK(state["step"].dim() == 0);
    CHECK((state["empty"].sizes() == at::IntArrayRef({0, 5})));
    CHECK(at::equal(state["mask"], at::ones({2, 2}, at::kBool)));
    const auto sum = hfcomm::all_reduce(at::ones({2}), [](at::Tensor left, at::Tensor right) { return left + right; });
    CHECK(at::equal(sum, at::ones({2}) * world.size()));
  });
}

TEST_CASE("torch tensors: bytes that encode no tensor are a decode_error") {
  std::vector<std::byte> good;
  hfcomm::encode(at::ones({2, 3}), good);
  CHECK(at::equal(hfcomm::decode<at::Tensor>(good), at::ones({2, 3})));
  CHECK(good.size() == 1 + 8 + 2 * 8 + 6 * 4);
  const auto changed = [&](std::size_t place, std::uint8_t value) {
    auto bytes = good;
    bytes[place] = std::byte{value};
    return error_of<hfcomm::decode_error>([&] { (void)hfcomm::decode<at::Tensor>(bytes); }).detail();
  };
  CHECK_CONTAINS(changed(0, 200), "a tensor has the unknown type 200");
  CHECK_CONTAINS(changed(0, 12), "a tensor has the unknown type 12");  // quantized
  CHECK_CONTAINS(changed(0, 7), "truncated: a tensor has 6 elements of 8 bytes where 24 bytes are left");
  CHECK_CONTAINS(changed(1, 250), "truncated or corrupt");
  CHECK_CONTAINS(changed(9, 1), "12 of 49 bytes are left over");
  CHECK_CONTAINS(changed(16, 0x80), "a tensor has impossible sizes");
  CHECK_CONTAINS(changed(16, 0x7f), "a tensor has impossible sizes");
  for (std::size_t length = 0; length < good.size(); ++length) {
    (void)error_of<hfcomm::decode_error>(
        [&] { (void)hfcomm::decode<at::Tensor>(std::span<const std::byte>(good).first(length)); });
  }
  std::vector<std::byte> bools;
  hfcomm::encode(at::ones({2}, at::kBool), bools);
  bools.back() = std::byte{2};
  CHECK_CONTAINS(error_of<hfcomm::decode_error>([&] { (void)hfcomm::decode<at::Tensor>(bools); }).detail(),
                 "neither true nor false");
  CHECK_CONTAINS(error_of<usage_error>([&] { hfcomm::encode(at::ones({3}).to_sparse(), bools); }).what(), "sparse");
}

}  // namespace
