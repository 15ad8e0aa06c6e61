// SPDX-License-Identifier: MIT
#pragma once

// The functions for all standard types that can be serialized. Containers, strings, tuples and unique_ptr have
// functions of hfcomm's own; for all other types these headers of cereal have them. cereal's tuple.hpp does not compile
// with clang++ 19 and later.
#include <cereal/types/bitset.hpp>
#include <cereal/types/chrono.hpp>
#include <cereal/types/complex.hpp>
#include <cereal/types/optional.hpp>
#include <cereal/types/queue.hpp>
#include <cereal/types/stack.hpp>
#include <cereal/types/utility.hpp>
#include <cereal/types/variant.hpp>

#include <tuple>
#include <utility>

#include <hfcomm/serialization/archive.hpp>
#include <hfcomm/serialization/containers.hpp>
#include <hfcomm/serialization/pointers.hpp>

namespace hfcomm::serialization {

template <class T, class U>
void serialize(output_archive& archive, std::pair<T, U>& values) {
  save_value(archive, values.first);
  save_value(archive, values.second);
}

template <class T, class U>
void serialize(input_archive& archive, std::pair<T, U>& values) {
  load_value(archive, values.first);
  load_value(archive, values.second);
}

template <class... Ts>
void serialize(output_archive& archive, std::tuple<Ts...>& values) {
  std::apply([&](auto&... value) { (save_value(archive, value), ...); }, values);
}

template <class... Ts>
void serialize(input_archive& archive, std::tuple<Ts...>& values) {
  std::apply([&](auto&... value) { (load_value(archive, value), ...); }, values);
}

}  // namespace hfcomm::serialization
