// error: an_array_is_no_object_so_use_a_std_array_or_a_std_string_or_a_std_span
// SPDX-License-Identifier: MIT
#include <hfcomm/collectives/send.hpp>

// A literal is neither an object, as a std::string is, nor clearly a buffer: should its final zero be sent?
int main() { hfcomm::send("text", 1); }
