// SPDX-License-Identifier: MIT
// Several processes train a convolutional network of LibTorch on handwritten digits: PyTorch's MNIST example as a C++
// program with data-parallel training, checkpoints, and evaluation on all ranks.
//
//   fetch-digits digits                                     1797 digits of 8x8 pixels; or take a folder of MNIST
//   train_mnist_torch --data digits                         one process
//   train_mnist_torch --data digits --processes 2           two ranks on this machine
//   torchrun --no_python --nproc_per_node 2 train_mnist_torch --data digits    or with hfrun, srun, mpirun
//
// The same source trains on processors and GPUs: see --device.

#include <torch/torch.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iomanip>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <hfcomm/torch.hpp>

#include "../command_line.hpp"
#include "checkpoint.hpp"
#include "digits.hpp"
#include "network.hpp"
#include "settings.hpp"

namespace {

using mnist::digits;
using mnist::network;
using mnist::settings;
using model = hfcomm::torch::distributed_data_parallel<network>;

/// Returns the device of this rank: "cpu", "cuda", or what there is. To be called by a rank, not before `launch`: the
/// CUDA runtime does not survive a fork.
torch::Device device_of_rank(const std::string& wanted) {
  if (wanted == "cpu" || (wanted.empty() && !torch::cuda::is_available())) {
    return {torch::kCPU};
  }
  return {torch::kCUDA, static_cast<torch::DeviceIndex>(hfcomm::local_rank())};
}

/// Returns what the bits of the parameters depend on beside digits and settings. LibTorch's threads divide sums, too.
std::string execution_on(torch::Device device) {
  return "ranks: " + std::to_string(hfcomm::world_size()) +
         ", threads of each: " + std::to_string(torch::get_num_threads()) +
         ", device: " + torch::DeviceTypeName(device.type(), true);
}

/// Seeds LibTorch for one epoch of this rank: other dropout on every rank, the same after a resume.
void seed_epoch(std::uint64_t seed, std::int64_t epoch) {
  std::seed_seq mix{seed, seed >> 32, static_cast<std::uint64_t>(epoch), static_cast<std::uint64_t>(hfcomm::rank())};
  std::array<std::uint32_t, 2> words{};
  mix.generate(words.begin(), words.end());
  torch::manual_seed((std::uint64_t{words[0]} << 32) | words[1]);
}

/// Trains with this rank's digits of an epoch. Returns the mean loss over all ranks' digits.
template <class Loader>
double train_epoch(model& ddp, Loader& loader, torch::optim::Optimizer& optimizer, torch::Device device) {
  ddp.module()->train();
  auto losses = torch::zeros({}, torch::TensorOptions(torch::kFloat64).device(device));
  std::int64_t trained = 0;
  for (const auto& batch : loader) {
    optimizer.zero_grad();
    const auto loss = torch::nll_loss(ddp.forward(batch.data.to(device)), batch.target.to(device));
    loss.backward();  // now every gradient is the average over the ranks
    optimizer.step();
    losses += loss.detach() * batch.target.size(0);
    trained += batch.target.size(0);
  }
  // The sampler gives all ranks equally many digits.
  return hfcomm::all_reduce(losses.item<double>() / static_cast<double>(trained), hfcomm::reduce_op::average);
}

/// Returns how many test digits are recognized, on every rank. Each rank takes its share of them.
std::size_t count_recognized(model& ddp, const digits& test, std::size_t batch_size, torch::Device device) {
  const torch::NoGradGuard no_grad;
  ddp.module()->eval();
  const hfcomm::torch::distributed_sampler sampler(test.count(), {.shuffle = false});
  const auto loader = torch::data::make_data_loader(digits(test).map(torch::data::transforms::Stack<>()), sampler,
                                                    torch::data::DataLoaderOptions(batch_size));
  std::vector<std::int64_t> answers;
  for (const auto& batch : *loader) {
    const auto found = ddp.forward(batch.data.to(device)).argmax(1).cpu();
    answers.insert(answers.end(), found.data_ptr<std::int64_t>(), found.data_ptr<std::int64_t>() + found.numel());
  }
  // On rank 0, in the order of the digits, without those that the sampler has repeated to make the shares equal.
  answers = hfcomm::collect_results(answers, test.count());
  std::size_t right = 0;
  for (std::size_t index = 0; index < answers.size(); ++index) {
    right += answers[index] == test.labels()[static_cast<std::int64_t>(index)].item<std::int64_t>() ? 1 : 0;
  }
  hfcomm::broadcast(right);
  return right;
}

/// Returns a hash of the parameters' bits (FNV-1a).
std::uint64_t checksum_of(const torch::nn::Module& net) {
  std::uint64_t hash = 14695981039346656037U;
  for (const auto& parameter : net.parameters()) {
    const auto values = parameter.detach().cpu().contiguous();
    const auto* bytes = static_cast<const unsigned char*>(values.data_ptr());
    for (std::size_t index = 0; index < values.nbytes(); ++index) {
      hash = (hash ^ bytes[index]) * 1099511628211U;
    }
  }
  return hash;
}

/// Gives the module and its optimizer what the checkpoint has, and returns how many epochs are done.
std::int64_t resume(const settings& wanted, network& net, torch::optim::Optimizer& optimizer, torch::Device device) {
  const auto state = mnist::load_checkpoint(wanted.checkpoint, net, optimizer, device);
  if (state.settings != wanted.of_training()) {
    throw std::runtime_error(wanted.checkpoint + " was made with " + state.settings + ", not with " +
                             wanted.of_training());
  }
  hfcomm::print_main("resuming after epoch ", state.epochs);
  if (state.execution != execution_on(device)) {
    hfcomm::print_main("note: other bits follow than without the stop; it was made with ", state.execution);
  }
  return state.epochs;
}

/// Prints the parameters' checksum. Throws where the ranks have other ones.
void report_checksum(const network& net) {
  const std::uint64_t checksum = checksum_of(net);
  for (const std::uint64_t other : hfcomm::all_gather(checksum)) {
    if (other != checksum) {
      throw std::runtime_error("the ranks' parameters differ");
    }
  }
  hfcomm::print_main("parameters, the same on every rank, a hash of all bits: ", std::hex, std::setfill('0'),
                     std::setw(16), checksum);
}

void train(const settings& wanted) {
  if (wanted.threads == 0) {
    hfcomm::torch::set_threads_for_ranks();
  } else {
    torch::set_num_threads(wanted.threads);
  }
  const torch::Device device = device_of_rank(wanted.device);
  const c10::DeviceGuard current(device);
  at::globalContext().setDeterministicCuDNN(true);
  const std::int64_t ranks = hfcomm::world_size();
  if (wanted.batch % ranks != 0) {
    throw std::invalid_argument("a batch of " + std::to_string(wanted.batch) + " cannot be divided evenly among " +
                                std::to_string(ranks) + " ranks; choose --batch");
  }
  const auto share = static_cast<std::size_t>(wanted.batch / ranks);
  const digits training(wanted.data, "train");
  const digits test(wanted.data, "t10k");
  hfcomm::print_main(training.count(), " digits of ", training.rows(), "x", training.columns(), " pixels; ",
                     execution_on(device));

  torch::manual_seed(wanted.seed);
  const auto net = std::make_shared<network>(training.rows(), training.columns());
  net->to(device);
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(wanted.rate).momentum(0.9));
  const std::int64_t done = wanted.resume ? resume(wanted, *net, optimizer, device) : 0;

  model ddp(net);  // every rank gets rank 0's parameters
  hfcomm::torch::distributed_sampler sampler(training.count(), {.seed = wanted.seed});
  const auto loader = torch::data::make_data_loader(digits(training).map(torch::data::transforms::Stack<>()), sampler,
                                                    torch::data::DataLoaderOptions(share));
  for (std::int64_t epoch = done; epoch < wanted.epochs; ++epoch) {
    sampler.set_epoch(static_cast<std::uint64_t>(epoch));
    seed_epoch(wanted.seed, epoch);
    optimizer.param_groups()[0].options().set_lr(wanted.rate * std::pow(0.9, epoch));
    const double loss = train_epoch(ddp, *loader, optimizer, device);
    hfcomm::print_main("epoch ", epoch + 1, ": mean loss ", loss);
    if (!wanted.checkpoint.empty()) {
      mnist::save_checkpoint(wanted.checkpoint, {epoch + 1, wanted.of_training(), execution_on(device)}, *net,
                             optimizer);
    }
  }
  const std::size_t right = count_recognized(ddp, test, share, device);
  hfcomm::print_main("recognized ", right, " of ", test.count(), " test digits: ", std::setprecision(4),
                     100.0 * static_cast<double>(right) / static_cast<double>(test.count()), " %");
  report_checksum(*net);
}

}  // namespace

int main(int count, char** arguments) {
  settings wanted;
  examples::command_line options("train_mnist_torch", " --data FOLDER");
  options.add("--data FOLDER", "the folder with MNIST's four files, not compressed", wanted.data);
  options.add("--processes N", "ranks to start on this machine (default 1)", wanted.processes, 1);
  options.add("--threads N", "threads of each rank (default: the machine's cores, divided among its ranks)",
              wanted.threads, 1);
  options.add("--epochs N", "times that all digits are trained with (default 15)", wanted.epochs, std::int64_t{1});
  options.add("--batch N", "digits of a step, on all ranks together (default 32)", wanted.batch, std::int64_t{1});
  options.add("--rate R", "learning rate of the first epoch, a tenth less in each later one (default 0.05)",
              wanted.rate, 0.0);
  options.add("--seed N", "seed of everything random (default 1)", wanted.seed, std::uint64_t{0});
  options.add("--device NAME", "cpu or cuda (default: cuda where there is a GPU), one GPU for each rank",
              wanted.device);
  options.add("--checkpoint FILE", "written after each epoch", wanted.checkpoint);
  options.add("--resume", "continue where the checkpoint is", wanted.resume);
  return options.run(count, arguments, [&] {
    if (wanted.data.empty()) {
      throw examples::bad_option("--data FOLDER is missing");
    }
    if (wanted.resume && wanted.checkpoint.empty()) {
      throw examples::bad_option("--resume needs --checkpoint FILE");
    }
    if (!wanted.device.empty() && wanted.device != "cpu" && wanted.device != "cuda") {
      throw examples::bad_option("--device is cpu or cuda, not \"" + wanted.device + '"');
    }
    return hfcomm::launch(wanted.processes, [&] {
      try {
        train(wanted);
      } catch (const c10::Error& problem) {  // whose text would show LibTorch's stack
        throw std::runtime_error(problem.what_without_backtrace());
      }
    });
  });
}
