// SPDX-License-Identifier: MIT
#pragma once

// Everything of the standard library that can be serialized, so that nobody has to include cereal's headers one by one.
// Left out are two of them: tuple.hpp, which clang++ does not compile from version 19 on, and memory.hpp; what hfcomm
// takes of both is its own.
#include <cereal/types/array.hpp>
#include <cereal/types/bitset.hpp>
#include <cereal/types/chrono.hpp>
#include <cereal/types/complex.hpp>
#include <cereal/types/deque.hpp>
#include <cereal/types/forward_list.hpp>
#include <cereal/types/list.hpp>
#include <cereal/types/map.hpp>
#include <cereal/types/optional.hpp>
#include <cereal/types/queue.hpp>
#include <cereal/types/set.hpp>
#include <cereal/types/stack.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/unordered_map.hpp>
#include <cereal/types/unordered_set.hpp>
#include <cereal/types/utility.hpp>
#include <cereal/types/valarray.hpp>
#include <cereal/types/variant.hpp>
#include <cereal/types/vector.hpp>

#include <tuple>

#include <hfcomm/serialization/archive.hpp>
#include <hfcomm/serialization/containers.hpp>
#include <hfcomm/serialization/pointers.hpp>

namespace hfcomm::serialization {

template <class... Ts>
void serialize(output_archive& archive, std::tuple<Ts...>& values) {
  std::apply([&](auto&... value) { (archive(value), ...); }, values);
}

template <class... Ts>
void serialize(input_archive& archive, std::tuple<Ts...>& values) {
  std::apply([&](auto&... value) { (archive(value), ...); }, values);
}

}  // namespace hfcomm::serialization
