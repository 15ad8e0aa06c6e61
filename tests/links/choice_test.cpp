// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <hfcomm/core/error.hpp>
#include <hfcomm/engine/links/links.hpp>

#include "process/processes.hpp"

namespace {

/// Returns the error of `make_link(name)` in a process of its own with one more variable.
std::string error_of_choice(const std::string& name, const char* variable, const char* value) {
  processes::child_processes child(1, [&](int) {
    ::setenv(variable, value, 1);
    hfcomm::engines::make_link(name);
  });
  return child.wait(std::chrono::seconds(20)).front().output;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("choice of a link: a name that the program does not know is an engine_error that lists those it knows") {
  CHECK(has(error_of_choice("carrier_pigeon", "HFCOMM_LINK", "ucx"), "link carrier_pigeon"));
  CHECK(has(error_of_choice("", "HFCOMM_LINK", "carrier_pigeon"), "link carrier_pigeon"));
  CHECK(has(error_of_choice("", "HFCOMM_LINK", "carrier_pigeon"), "compiled without it; it has: "));
}

TEST_CASE("choice of a link: a library that cannot be loaded is an engine_error that names it") {
#if defined(HFCOMM_UCX) && HFCOMM_UCX
  const auto text = error_of_choice("ucx", "HFCOMM_UCX_LIBRARY", "/nowhere/libucp.so.0");
  CHECK(has(text, "/nowhere/libucp.so.0"));
  CHECK(has(text, "HFCOMM_UCX_LIBRARY"));
#else
  std::printf("[hfcomm] skipped: choice of a link: a library that cannot be loaded: the headers of UCX are missing\n");
#endif
}

TEST_CASE("choice of a link: machines with different links are an engine_error that names one of them") {
  const std::vector<std::byte> bytes(3, std::byte{1});
  const auto ucx = hfcomm::engines::published_address("ucx", bytes);
  const auto gloo = hfcomm::engines::published_address("gloo", bytes);
  CHECK(hfcomm::engines::own_addresses("ucx", {ucx, ucx}) == std::vector{bytes, bytes});
  CHECK_THROWS_WITH_AS(hfcomm::engines::own_addresses("ucx", {ucx, gloo}),
                       doctest::Contains("machine 1 has the link gloo"), hfcomm::engine_error);
  CHECK_THROWS_WITH_AS(hfcomm::engines::own_addresses("ucx", {bytes, ucx}),
                       doctest::Contains("machine 0 has no address of a link"), hfcomm::engine_error);
  CHECK_THROWS_WITH_AS(hfcomm::engines::published_address("ucx", std::vector<std::byte>(4096)),
                       doctest::Contains("HFCOMM_INTERFACE"), hfcomm::engine_error);
}
