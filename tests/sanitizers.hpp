// SPDX-License-Identifier: MIT
#pragma once

/// Whether the tests are compiled with a sanitizer that needs much memory, or many addresses, for itself.
#if defined(__has_feature)  // clang++'s way to tell
#define HFCOMM_TEST_FEATURE(name) __has_feature(name)
#else
#define HFCOMM_TEST_FEATURE(name) 0
#endif

#if defined(__SANITIZE_THREAD__) || HFCOMM_TEST_FEATURE(thread_sanitizer)
inline constexpr bool under_thread_sanitizer = true;
#else
inline constexpr bool under_thread_sanitizer = false;
#endif

#if defined(__SANITIZE_ADDRESS__) || HFCOMM_TEST_FEATURE(address_sanitizer)
inline constexpr bool under_address_sanitizer = true;
#else
inline constexpr bool under_address_sanitizer = false;
#endif
