#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "common/silence.hpp"
#include "common/toy.hpp"
#include "etude/testing/laws.hpp"

// The laws of callbacks, kept by those that hold or write weights.

namespace {

using etude::laws::broken;
using etude::laws::Options;

const std::vector<std::string> nothing;

TEST_CASE("averages of the weights keep the laws") {
  CHECK(broken<etude::ModelEmaCallback>() == nothing);
  CHECK(broken<etude::StochasticWeightAveragingCallback>(
            [] { return etude::StochasticWeightAveragingCallback{.swa_epoch_start = 1}; }) == nothing);
}

TEST_CASE("what keeps checkpoints and models keeps the laws") {
  CHECK(broken<etude::SaveBestModelCallback>() == nothing);
  CHECK(broken<etude::SaveTrainingStateCallback>([] {
          return etude::SaveTrainingStateCallback{.save_every_n_epochs = 1, .save_every_n_steps = 2};
        }) == nothing);
  CHECK(broken<etude::TopKCheckpointsCallback>([] { return etude::TopKCheckpointsCallback{.k = 1}; }) ==
        nothing);
  const Options decays{.prepare = [](etude::TrainerOptions& options) {
    options.args.lr_scheduler_type = etude::SchedulerType::warmup_stable_decay;
    options.args.lr_scheduler_kwargs = {{"num_decay_steps", 2}};
  }};
  CHECK(broken<etude::WSDCheckpointCallback>(decays) == nothing);
}

TEST_CASE("the watch for spikes of the loss keeps the laws") {
  CHECK(broken<etude::LossSpikeCallback>([] { return etude::LossSpikeCallback{.check_every_n_steps = 2}; }) ==
        nothing);
}

}  // namespace
