// SPDX-License-Identifier: MIT
#pragma once

#include <cstdio>

#include <hfcomm/comm.hpp>

#include "char_lm/generate.hpp"
#include "char_lm/identical.hpp"
#include "char_lm/model.hpp"
#include "char_lm/options.hpp"
#include "char_lm/random.hpp"
#include "char_lm/vocabulary.hpp"

namespace char_lm {

/// Rank 0 prints the results of training: the losses before and after, a sample of what the model writes, and whether
/// all ranks hold the same parameters, which it returns on every rank. Collective.
[[nodiscard]] inline bool report(model& trained, const vocabulary& symbols, const settings& wanted, double before,
                                 double after) {
  const bool identical = identical_everywhere(trained);
  if (hfcomm::is_main_process()) {
    std::printf("held-out loss: %.4f before, %.4f after training (nats per character)\n", before, after);
    std::printf("loss after training, all bits: %a\n", after);
    std::printf("parameters bitwise identical on all ranks: %s\n", identical ? "yes" : "NO");
    if (wanted.sample > 0) {
      random_source random(wanted.seed);
      std::printf("sample:\n----\n%s\n----\n",
                  generate(trained, symbols, "", wanted.sample, wanted.temperature, random).c_str());
    }
    std::fflush(stdout);
  }
  return identical;
}

}  // namespace char_lm
