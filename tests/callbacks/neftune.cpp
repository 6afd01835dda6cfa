#include "etude/callbacks/neftune.hpp"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cmath>

#include "common/toy.hpp"
#include "etude/base/error.hpp"

namespace callbacks_neftune_test {

struct WordsImpl : torch::nn::Module {
  WordsImpl() {
    const torch::NoGradGuard no_grad;
    embed->weight.zero_();
  }
  torch::Tensor forward(torch::Tensor tokens) {
    auto embedded = embed(tokens);
    largest = std::max(largest, embedded.abs().max().item<double>());
    seen.push_back(embedded.detach());
    return embedded.sum({1, 2}) * scale;
  }
  etude::NEFTuneEmbedding embed = register_module("embed", etude::NEFTuneEmbedding(10, 9));
  torch::Tensor scale = register_parameter("scale", torch::ones({}));
  double largest = 0;
  std::vector<torch::Tensor> seen;
};
TORCH_MODULE(Words);

etude::TrainerOptions words(const Words& model, double learning_rate = 0) {
  auto args = toy::arguments();
  args.per_device_train_batch_size = 50;
  args.learning_rate = learning_rate;
  return {.model = model,
          .args = args,
          .loss = torch::nn::MSELoss(),
          .train_dataset = etude::Dataset(torch::ones({50, 4}, torch::kLong), torch::zeros({50})),
          .eval_dataset = etude::Dataset(torch::ones({50, 4}, torch::kLong), torch::zeros({50}))};
}

using Noisy = etude::Trainer<etude::NoDefaultCallbacks, etude::NEFTuneCallback>;

TEST_CASE("embeddings get uniform noise up to alpha / sqrt(L D) in training, and nowhere else") {
  Words model;
  Noisy trainer(words(model), etude::NEFTuneCallback{12});
  trainer.train();
  const double bound = 12 / std::sqrt(4 * 9);  // 2
  REQUIRE(model->seen.size() == 1);
  const auto noise = model->seen[0];
  CHECK(noise.abs().max().item<double>() <= bound);
  CHECK(noise.abs().max().item<double>() > 0.98 * bound);
  CHECK(noise.mean().item<double>() == doctest::Approx(0).epsilon(0.15));
  CHECK(noise.var().item<double>() == doctest::Approx(bound * bound / 3).epsilon(0.1));
  trainer.evaluate();
  CHECK(model->seen.back().abs().max().item<double>() == 0);
  model->train();
  model->forward(torch::ones({1, 4}, torch::kLong));
  CHECK(model->seen.back().abs().max().item<double>() == 0);  // The training is over.
}

TEST_CASE("a model without such an embedding is refused, and so is noise of size zero") {
  Noisy none(toy::options(toy::arguments()));
  CHECK_THROWS_WITH_AS(none.train(), doctest::Contains("must have an etude::NEFTuneEmbedding"),
                       etude::ArgumentError);
  Noisy zero(words(Words()), etude::NEFTuneCallback{0});
  CHECK_THROWS_WITH_AS(zero.train(),
                       doctest::Contains("neftune_noise_alpha is 0: must be above 0 and finite"),
                       etude::ArgumentError);
}

}  // namespace callbacks_neftune_test
