// SPDX-License-Identifier: MIT
// The compiled way's one file. Like every other file of the program it is compiled with -DHFCOMM_COMPILED.
#include <hfcomm/impl.hpp>
