#include "etude/callbacks/evaluation_samples.hpp"

#include <torch/types.h>

#include <mutex>
#include <utility>

#include "etude/base/counting.hpp"
#include "etude/base/error.hpp"
#include "etude/callbacks/log_file.hpp"
#include "etude/libtorch/generators.hpp"
#include "etude/model/carried_state.hpp"
#include "etude/model/model.hpp"
#include "etude/reflect/check_fields.hpp"

namespace etude::inline v0 {

void EvaluationSamplesCallback::check() const {
  detail::check_fields(*this);
  if (!make)
    throw ArgumentError(
        "EvaluationSamplesCallback: make is not set: must be a function that returns the samples");
}

void EvaluationSamplesCallback::on(const TrainBegin& e) {
  check();
  if (detail::starts_from_scratch(e.state)) state = {};
}

void EvaluationSamplesCallback::on(const EvaluateBegin& e) {
  check();
  prefix = e.metric_key_prefix;
  if (std::exchange(state.last_step, e.state.global_step) != e.state.global_step)
    detail::count_up(state.evaluations);
}

void EvaluationSamplesCallback::on(const Evaluate& e) {
  if (state.evaluations % every_n_evaluations != 0) return;
  std::vector<Sample> samples;
  {
    const auto parameters = e.model.parameters();
    const std::lock_guard in_use(default_generators_mutex());
    const RandomStateGuard random(parameters.empty() ? torch::Device(torch::kCPU)
                                                     : parameters.front().device());
    set_seed(static_cast<std::uint64_t>(seed));
    CarriedStates(e.model).reset();
    samples = make(e);
  }
  for (auto& sample : samples) sample.name = prefix + "_" + sample.name;
  if (!samples.empty()) e.log_samples(samples);
}

}  // namespace etude::inline v0
