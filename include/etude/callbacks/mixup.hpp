#pragma once

#include <ATen/CPUGeneratorImpl.h>

#include <cstdint>

#include "etude/data/mixing.hpp"
#include "etude/data/random.hpp"
#include "etude/events.hpp"
#include "etude/trainer_state.hpp"
#include "etude/training_arguments.hpp"

namespace etude::inline v0 {

/// Mixes each training batch with a generator that depends only on the seed, the step and the batch's place
/// in it, so the result is the same with any number of workers and in a resumed training.
class BatchMixing {
 public:
  using this_callback = BatchMixing;
  void on(const TrainBegin&) { place_ = 0; }
  void on(const StepBegin&) { place_ = 0; }

 protected:
  at::Generator generator(const Context& e);

 private:
  std::int64_t place_ = 0;  // in the accumulation group, which is fetched as a whole before its step begins
};

/// Mixes training batches with `mix_up`, on their device; evaluation batches don't change.
struct MixUp : BatchMixing {
  using this_callback = MixUp;
  explicit MixUp(MixingOptions mixing = {}) : options(mixing) {}

  using BatchMixing::on;
  void on(BatchFetched& e);

  MixingOptions options;
};

/// Mixes training batches with `cut_mix`, on their device; evaluation batches don't change.
struct CutMix : BatchMixing {
  using this_callback = CutMix;
  explicit CutMix(MixingOptions mixing = {}) : options(mixing) {}

  using BatchMixing::on;
  void on(BatchFetched& e);

  MixingOptions options;
};

}  // namespace etude::inline v0
