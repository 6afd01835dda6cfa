#pragma once

#include <cstdint>

#include "etude/data/mixing.hpp"
#include "etude/events.hpp"

namespace etude::inline v0 {

/// Mixes each training batch. The random numbers depend only on the seed, the step and the batch's place in
/// that step, so the result is the same with any number of workers and in a resumed training.
class BatchMixing {
 public:
  void on(const TrainBegin&) { place_ = 0; }
  void on(const StepBegin&) { place_ = 0; }
  void on(BatchFetched& e);

  MixingOptions options;

 protected:
  using Mix = Batch (*)(Batch, const MixingOptions&, at::Generator&);
  BatchMixing(const MixingOptions& mixing, Mix mix) : options(mixing), mix_(mix) {}

 private:
  Mix mix_;
  std::int64_t place_ = 0;  // in the accumulation group, which is fetched as a whole before its step begins
};

/// Mixes training batches with `mix_up`, on their device; evaluation batches don't change.
struct MixUp : BatchMixing {
  explicit MixUp(MixingOptions mixing = {}) : BatchMixing(mixing, mix_up) {}
};

/// Mixes training batches with `cut_mix`, on their device; evaluation batches don't change.
struct CutMix : BatchMixing {
  explicit CutMix(MixingOptions mixing = {}) : BatchMixing(mixing, cut_mix) {}
};

}  // namespace etude::inline v0
