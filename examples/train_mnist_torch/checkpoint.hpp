// SPDX-License-Identifier: MIT
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>

#include <hfcomm/torch.hpp>

namespace mnist {

/// The state of a training between two epochs. The random numbers of an epoch follow from seed, epoch and rank, so that
/// no state of a generator belongs to it.
struct checkpoint {
  std::int64_t epochs = 0;  // that are done
  std::string settings;     // those that later epochs depend on
  std::string execution;    // what else the bits of the parameters depend on
};

/// Rank 0 writes a checkpoint. Collective: every rank throws where rank 0 cannot write it. A program that is killed
/// meanwhile leaves the file of before.
inline void save_checkpoint(const std::string& path, const checkpoint& state, const torch::nn::Module& net,
                            const torch::optim::Optimizer& optimizer) {
  hfcomm::run_master_only([&] {
    torch::serialize::OutputArchive file;
    torch::serialize::OutputArchive parameters(file.compilation_unit());
    torch::serialize::OutputArchive optimizer_state(file.compilation_unit());
    net.save(parameters);
    optimizer.save(optimizer_state);
    file.write("net", parameters);
    file.write("optimizer", optimizer_state);
    file.write("epochs", state.epochs);
    file.write("settings", state.settings);
    file.write("execution", state.execution);
    file.save_to(path + ".new");
    std::filesystem::rename(path + ".new", path);
  });
}

/// Gives every rank what a checkpoint has for its module and optimizer, on the module's device, and returns the rest.
/// Collective: rank 0 alone reads the file, which the other machines need not have.
inline checkpoint load_checkpoint(const std::string& path, torch::nn::Module& net, torch::optim::Optimizer& optimizer,
                                  torch::Device device) {
  const std::string bytes = hfcomm::read_file_dist(path);
  try {
    torch::serialize::InputArchive file;
    file.load_from(bytes.data(), bytes.size(), device);
    torch::serialize::InputArchive parameters;
    torch::serialize::InputArchive optimizer_state;
    torch::IValue epochs;
    torch::IValue settings;
    torch::IValue execution;
    file.read("net", parameters);
    file.read("optimizer", optimizer_state);
    file.read("epochs", epochs);
    file.read("settings", settings);
    file.read("execution", execution);
    net.load(parameters);
    optimizer.load(optimizer_state);
    return {epochs.toInt(), settings.toStringRef(), execution.toStringRef()};
  } catch (const c10::Error& problem) {
    throw std::runtime_error(path + " is no checkpoint of this model: " + problem.what_without_backtrace());
  }
}

}  // namespace mnist
