// SPDX-License-Identifier: MIT
// Compiled once for all tests, which spend most of their time in the compiler.
#ifndef HFCOMM_TESTS_PCH
#define HFCOMM_TESTS_PCH  // no #pragma once, of which g++ warns in a header that it compiles

#include <doctest/doctest.h>

#include <map>
#include <string>
#include <thread>
#include <vector>

#include <hfcomm/comm.hpp>
#include <hfcomm/testing.hpp>

#endif
