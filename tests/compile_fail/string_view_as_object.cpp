// error: a_decoded_view_would_have_nothing_to_view_so_use_a_container
// SPDX-License-Identifier: MIT
#include <string_view>

#include <hfcomm/collectives/all_gather.hpp>

int main() { return static_cast<int>(hfcomm::all_gather(std::string_view("text")).size()); }
