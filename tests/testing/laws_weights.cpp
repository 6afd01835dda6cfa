#include <doctest/doctest.h>
#include <torch/types.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/silence.hpp"
#include "common/toy.hpp"
#include "etude/callbacks/gradual_unfreezing.hpp"
#include "etude/callbacks/loss_spike.hpp"
#include "etude/callbacks/model_ema.hpp"
#include "etude/callbacks/neftune.hpp"
#include "etude/callbacks/save_best_model.hpp"
#include "etude/callbacks/save_training_state.hpp"
#include "etude/callbacks/stochastic_weight_averaging.hpp"
#include "etude/callbacks/top_k_checkpoints.hpp"
#include "etude/callbacks/wsd_checkpoint.hpp"
#include "etude/testing/laws.hpp"
#include "etude/testing/laws/problem.hpp"

namespace testing_laws_weights_test {

// Checks the laws for callbacks that hold or write weights.

using etude::laws::broken;
using etude::laws::Options;

const std::vector<std::string> nothing;

/// For a callback that takes `SaveBegin&` without changing it, only to be allowed anywhere in the list.
const Options hears_of_saving{.only_reads = true};

TEST_CASE("averages of the weights keep the laws") {
  CHECK(broken<etude::ModelEmaCallback>() == nothing);
  CHECK(broken<etude::StochasticWeightAveragingCallback>(
            [] { return etude::StochasticWeightAveragingCallback{.swa_epoch_start = 1}; }) == nothing);
}

TEST_CASE("callbacks that keep checkpoints and models keep the laws") {
  CHECK(broken<etude::SaveBestModelCallback>() == nothing);
  CHECK(
      broken<etude::SaveTrainingStateCallback>(
          [] { return etude::SaveTrainingStateCallback{.save_every_n_epochs = 1, .save_every_n_steps = 2}; },
          hears_of_saving) == nothing);
  CHECK(broken<etude::TopKCheckpointsCallback>([] { return etude::TopKCheckpointsCallback{.k = 1}; },
                                               hears_of_saving) == nothing);
  const Options decays{.prepare =
                           [](etude::TrainerOptions& options) {
                             options.args.lr_scheduler_type = etude::SchedulerType::warmup_stable_decay;
                             options.args.lr_scheduler_kwargs = {{"num_decay_steps", 2}};
                           },
                       .only_reads = true};
  CHECK(broken<etude::WSDCheckpointCallback>(decays) == nothing);
}

/// A model that adds an embedding of the pixels, which may be noisy, to its images.
struct EmbeddedImpl : torch::nn::Module {
  explicit EmbeddedImpl(std::shared_ptr<etude::laws::detail::NetImpl> net)
      : inner(register_module("inner", std::move(net))),
        embedding(register_module("embedding", etude::NEFTuneEmbedding(2, 16))) {}

  torch::Tensor forward(const torch::Tensor& images) {
    const auto pixels = (images.flatten(1) > 0).to(torch::kLong);
    return inner->forward(images + embedding(pixels).mean(1).view_as(images));
  }

  std::shared_ptr<etude::laws::detail::NetImpl> inner;
  etude::NEFTuneEmbedding embedding;
};

TEST_CASE("embedding noise keeps the laws") {
  const Options embedded{
      .prepare =
          [](etude::TrainerOptions& options) {
            options.model_init = [make = options.model_init.function()] {
              return std::make_shared<EmbeddedImpl>(
                  std::dynamic_pointer_cast<etude::laws::detail::NetImpl>(make().module()));
            };
          },
      .only_reads = false};
  CHECK(broken<etude::NEFTuneCallback>(embedded) == nothing);
}

TEST_CASE("gradual unfreezing keeps the laws") {
  // If two are in one trainer, the second finds the first one's frozen parameters, and so keeps them frozen.
  const Options alone{.only_reads = false, .two_in_one_trainer = false};
  CHECK(broken<etude::GradualUnfreezingCallback>(
            [] {
              return etude::GradualUnfreezingCallback{.layer_groups = {"first", "last"}};
            },
            alone) == nothing);
}

TEST_CASE("the loss spike callback keeps the laws") {
  CHECK(broken<etude::LossSpikeCallback>([] { return etude::LossSpikeCallback{.check_every_n_steps = 2}; },
                                         hears_of_saving) == nothing);
}

}  // namespace testing_laws_weights_test
