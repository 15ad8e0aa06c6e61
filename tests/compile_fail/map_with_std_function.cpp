// error: its_comparator_or_hash_would_be_null_after_decoding_so_use_a_class_with_an_operator
// SPDX-License-Identifier: MIT
#include <functional>
#include <string>
#include <unordered_map>

#include <hfcomm/collectives/all_gather.hpp>

using hash = std::function<std::size_t(const std::string&)>;

int main() { hfcomm::all_gather(std::unordered_map<std::string, int, hash>()); }
