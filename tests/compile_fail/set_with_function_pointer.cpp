// error: its_comparator_or_hash_would_be_null_after_decoding_so_use_a_class_with_an_operator
// SPDX-License-Identifier: MIT
#include <set>
#include <string>

#include <hfcomm/collectives/send.hpp>

using shorter = bool (*)(const std::string&, const std::string&);

int main() { hfcomm::send(std::set<std::string, shorter>(), 1); }
