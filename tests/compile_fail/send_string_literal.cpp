// error: (does not satisfy|satisfaction of) .(buffer_view|serializable)(<R>|<T>)?.
// SPDX-License-Identifier: MIT
#include <hfcomm/collectives/send.hpp>

// A literal is neither an object, as a std::string is, nor clearly a buffer: should its final zero be sent?
int main() { hfcomm::send("text", 1); }
