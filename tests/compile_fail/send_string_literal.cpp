// error: (does not satisfy|satisfaction of) .(buffer_view|serializable)(<R>|<T>)?.
// SPDX-License-Identifier: MIT
#include <hfcomm/collectives/send.hpp>

// Neither a text, which a std::string is, nor a buffer that somebody means: with the zero at its end?
int main() { hfcomm::send("text", 1); }
