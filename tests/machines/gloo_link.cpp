// SPDX-License-Identifier: MIT
// Gives a rank the link over Gloo, which the library need not have been compiled with.
#include <hfcomm/engine/links/gloo.hpp>
#include <hfcomm/engine/links/link.hpp>

namespace {

const bool is_registered = hfcomm::engines::register_link(hfcomm::engines::gloo_kind());

}  // namespace
