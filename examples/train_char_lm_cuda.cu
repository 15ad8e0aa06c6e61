// SPDX-License-Identifier: MIT
// train_char_lm on GPUs, one process each: the same model with kernels of its own, parameters and gradients in device
// memory, and hfcomm averaging the gradients over NCCL while backward goes on.
//
//   tools/build-cuda-example train_char_lm_cuda
//   train_char_lm_cuda --processes 2 --text FILE   two ranks, on this machine's first two GPUs
//   train_char_lm_cuda --text FILE                 one process; or, under RANK, WORLD_SIZE, ..., one rank of many

#include <cstdio>
#include <source_location>
#include <stdexcept>
#include <string>

#include <hfcomm/comm.hpp>
#include <hfcomm/nccl.hpp>

#include "char_lm/cuda/trainer.hpp"
#include "char_lm/model.hpp"
#include "char_lm/options.hpp"
#include "char_lm/progress.hpp"
#include "char_lm/report.hpp"
#include "char_lm/sampler.hpp"
#include "char_lm/vocabulary.hpp"

namespace {

constexpr char_lm::program self{.name = "train_char_lm_cuda"};

/// A stream of the GPU that is this rank's, which it makes the current one. Only a rank may come here: a process that
/// has called CUDA cannot fork any more.
class own_stream {
 public:
  own_stream() {
    const auto where = std::source_location::current();
    const auto& api = hfcomm::cuda::runtime();
    int devices = 0;
    api.check(api.cudaGetDeviceCount(&devices), "cudaGetDeviceCount", where);
    api.check(api.cudaSetDevice(hfcomm::local_rank() % devices), "cudaSetDevice", where);
    api.check(api.cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, 0), "cudaStreamCreateWithPriority",
              where);
  }
  own_stream(const own_stream&) = delete;
  own_stream& operator=(const own_stream&) = delete;
  ~own_stream() { (void)hfcomm::cuda::runtime().cudaStreamDestroy(stream_); }

  [[nodiscard]] cudaStream_t get() const noexcept { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

/// The mean loss over all held-out characters, each rank taking its share.
double held_out_loss(char_lm::device_trainer& training, const char_lm::text_split& split) {
  const auto mine = char_lm::share_of(split.held_out_count(), hfcomm::rank(), hfcomm::world_size());
  const double loss = training.evaluate(char_lm::held_out_batch(split, mine));
  return hfcomm::all_reduce(static_cast<double>(mine.weight) * loss, hfcomm::reduce_op::average);
}

void train(const char_lm::settings& wanted) {
  const own_stream stream;
  const bool main_process = hfcomm::is_main_process();
  const std::string raw = hfcomm::read_file_dist(wanted.text);
  const char_lm::vocabulary symbols(raw);
  const auto text = symbols.encode(raw);
  char_lm::model_options options;
  const auto split = char_lm::split_text(text.size(), options.context);
  options.context = split.context;

  // Every rank starts from another model on purpose: the reducer gives all of them rank 0's.
  char_lm::device_trainer training(options, symbols.size(), wanted.seed + static_cast<std::uint64_t>(hfcomm::rank()),
                                   text, {split, wanted.batch, wanted.seed, hfcomm::rank(), hfcomm::world_size()},
                                   stream, hfcomm::world());
  if (main_process) {
    std::printf("%zu characters, %zu distinct; a model of %zu parameters; %d %s (%s, %s)\n", text.size(),
                symbols.size(), training.model().parameter_count(), hfcomm::world_size(),
                hfcomm::world_size() == 1 ? "process" : "processes",
                std::string(hfcomm::world().host_backend()).c_str(),
                std::string(training.reducer().device_group().device_backend()).c_str());
    if (!split.note.empty()) {
      std::printf("note: %s\n", split.note.c_str());
    }
  }
  const double before = held_out_loss(training, split);
  const char_lm::progress_line progress(wanted.steps, static_cast<double>(wanted.batch));
  for (std::size_t step = 0; step < wanted.steps; ++step) {
    training.step(step, wanted.accumulate, char_lm::learning_rate_at(step, wanted.steps, wanted.learning_rate));
    if (progress.due(step)) {  // the host asks for no other step's loss, so it need not wait for the device
      const double loss = hfcomm::all_reduce(training.loss(), hfcomm::reduce_op::average);
      if (main_process) {
        progress.show(step, loss);
      }
    }
  }
  const double after = held_out_loss(training, split);
  char_lm::model result(symbols.size(), options, wanted.seed);
  training.copy_values_to(result);
  if (!char_lm::report(result, symbols, wanted, before, after)) {
    throw std::runtime_error("the ranks' parameters differ");
  }
}

}  // namespace

int main(int count, char** arguments) { return self.run(count, arguments, train); }
