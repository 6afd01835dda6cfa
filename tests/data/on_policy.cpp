#include "etude/data/on_policy.hpp"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/fault_of.hpp"
#include "common/folder.hpp"
#include "common/full_run.hpp"
#include "common/quick_files.hpp"
#include "common/toy.hpp"
#include "etude/data/data_loader.hpp"
#include "etude/trainer.hpp"

namespace data_on_policy_test {

/// Six points on a line, each moved by a random number. A point's label is the model's output there, plus
/// one.
struct Rollout {
  std::shared_ptr<toy::LineImpl> line;
  std::shared_ptr<std::vector<double>> seen = std::make_shared<std::vector<double>>();  // the model's weight
  std::int64_t position = 0;  // of the environment, which continues from one collection to the next

  std::pair<torch::Tensor, torch::Tensor> operator()() {
    const torch::NoGradGuard no_grad;
    seen->push_back(line->weight.item<double>());
    const auto x =
        torch::arange(position, position + 6).to(torch::kFloat).reshape({6, 1}) / 10 + torch::rand({6, 1});
    position = (position + 6) % 9;
    return {x, line->forward(x) + 1};
  }
  nlohmann::ordered_json state() const { return position; }
  void load_state(const nlohmann::ordered_json& state) { position = state; }
};

struct Weights {
  std::vector<double> all = {};
  std::int64_t stops_at = 0;
  void on(const etude::StepEnd& e) {
    all.push_back(e.model.named_parameters()[0].second.item<double>());
    if (e.state.global_step == stops_at) e.control.should_training_stop = true;
  }
};

using Trainer = etude::Trainer<toy::Quiet, Weights>;

struct Run {
  Rollout rollout{toy::Line().ptr()};
  std::unique_ptr<Trainer> trainer;

  explicit Run(int workers = 0, const std::string& folder = {}, std::int64_t stops_at = 0) {
    auto args = toy::arguments();
    if (!folder.empty()) toy::save_to(folder, args, 100);
    args.per_device_train_batch_size = 4;
    args.num_train_epochs = 3;
    args.dataloader_num_workers = workers;
    trainer = std::make_unique<Trainer>(
        etude::TrainerOptions{.model = rollout.line,
                              .args = args,
                              .loss = torch::nn::MSELoss(),
                              .train_dataset = etude::OnPolicyDataset(rollout, {.examples = 6, .passes = 2}),
                              .file_system = std::make_shared<toy::QuickFiles>()},
        toy::Quiet{}, Weights{{}, stops_at});
    trainer->train({.resume_from_checkpoint = etude::if_any});
  }
};

TEST_CASE("each epoch's examples come from the model after the last update of the epoch before") {
  for (const int workers : {0, 1}) {
    Run run(workers);
    const auto& after = run.trainer->callback<Weights>().all;
    REQUIRE(after.size() == 9);  // an epoch is two passes over 6 examples, in batches of 4
    CHECK(*run.rollout.seen == std::vector{0.0, after[2], after[5]});
    CHECK(after[5] > after[2]);
  }
}

TEST_CASE("an epoch passes over the same examples, each pass in an order of its own") {
  const etude::DataLoader loader(
      etude::OnPolicyDataset([] { return torch::arange(20); }, {.examples = 20, .passes = 2}),
      {.batch_size = 20});
  std::vector<torch::Tensor> passes;
  for (const std::int64_t epoch : {0, 1})
    for (auto stream = loader.begin_epoch(epoch); auto batch = stream.next();)
      passes.push_back(batch->inputs[0]);
  REQUIRE(passes.size() == 4);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(torch::equal(std::get<0>(passes[i].sort()), torch::arange(20)));
    for (std::size_t k = 0; k < i; ++k) CHECK_FALSE(torch::equal(passes[i], passes[k]));
  }
  CHECK(loader.size() == 2);
}

TEST_CASE(
    "a resumed epoch has the examples that were collected for it, and the next the environment's state") {
  Run unbroken;
  for (const std::int64_t stops_at : {2, 3, 4}) {  // within an epoch, and at its end
    const toy::Folder folder;
    Run stopped(0, folder, stops_at);
    CHECK(toy::weights(*stopped.trainer) != toy::weights(*unbroken.trainer));
    Run again(0, folder);
    CHECK(toy::tensors(*again.trainer) == toy::tensors(*unbroken.trainer));
    CHECK(again.rollout.seen->size() == (stops_at == 4 ? 1 : 2));
  }
}

TEST_CASE("a collection of another size than promised is refused") {
  const etude::DataLoader loader(etude::OnPolicyDataset([] { return torch::arange(3); }, {.examples = 4}),
                                 {});
  CHECK(toy::fault_of<etude::DataError>([&] { loader.begin_epoch(0); }) ==
        "collect() returned 3 examples: must be 4, as OnPolicyOptions::examples says");
  CHECK(toy::fault_of<etude::ArgumentError>([] {
          etude::OnPolicyDataset([] { return torch::arange(3); }, {.passes = 0});
        }) == "passes is 0: must be at least 1");
}

}  // namespace data_on_policy_test
