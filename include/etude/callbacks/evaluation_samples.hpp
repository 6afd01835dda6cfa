#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "etude/events.hpp"
#include "etude/metrics/sample.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

/// Logs samples of the model's outputs with each evaluation: texts, images or audio. `make` is called once
/// the metrics are computed, in evaluation mode, without gradients, and with the evaluated weights. Trackers
/// and SamplesToFolderCallback receive the samples in a `LogSamples` event, and the names get the
/// evaluation's prefix: `text_sample("story", ...)` is logged as `eval_story`.
///
/// The generators are seeded with `seed` each time, so the samples of successive evaluations differ only
/// because of the weights; carried state starts from zeros. The training's random numbers aren't disturbed:
/// its weights are the same as without this callback. With several processes, all make the same samples,
/// since a sharded model needs all of them, and the first process logs them.
///
/// With several datasets, `make` is called after each; `e.eval_dataloader` is the one that was evaluated.
/// Evaluations at the same step count as one. Throws ArgumentError when a training or an evaluation begins,
/// if `make` is unset or a number is out of range. An exception that `make` throws ends the training, like
/// any callback's.
struct EvaluationSamplesCallback {
  ETUDE_STRUCT(EvaluationSamplesCallback,
               (std::int64_t, every_n_evaluations, "evaluations between samples" | at_least(1), 1),
               (std::int64_t, seed, "seed of the random numbers of `make`" | at_least(0), 42));

  struct State {
    ETUDE_STRUCT(State, (std::int64_t, last_step, "the step of the last evaluation", -1),
                 (std::int64_t, evaluations, "evaluations so far", 0));
  };
  State state = {};

  std::function<std::vector<Sample>(const Evaluate&)> make = {};  ///< Makes the samples of an evaluation.

  void on(const TrainBegin& e);
  void on(const EvaluateBegin& e);
  void on(const Evaluate& e);

  std::string prefix = {};  ///< of the evaluation under way

 private:
  void check() const;
};

}  // namespace etude::inline v0
