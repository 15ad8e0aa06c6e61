// SPDX-License-Identifier: MIT
#pragma once

/// The algorithms of <algorithm> without those of std::ranges, which no program with hfcomm has to parse. libstdc++ has
/// them in a header of their own.
#if __has_include(<bits/stl_algo.h>)
#include <bits/stl_algo.h>
#else
#include <algorithm>
#endif
