#include "etude/callbacks/mixup.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "common/toy.hpp"

namespace callbacks_mixup_test {

// Records the batches that the model trains on.
struct Seen {
  std::vector<torch::Tensor> batches = {};
  bool evaluated_as_it_is = false;
  void on(const etude::BatchFetched& e) {
    batches.push_back(torch::cat({e.batch.inputs[0], e.batch.labels[0]}, 1));
  }
  void on(const etude::PredictionStep& e) {
    evaluated_as_it_is = e.batch.inputs[0].equal(toy::points(3).first);
  }
};

etude::TrainingArguments arguments(const std::string& folder, std::int64_t workers) {
  auto args = toy::arguments();
  args.per_device_train_batch_size = 2;
  args.gradient_accumulation_steps = 2;
  args.num_train_epochs = 2;
  args.dataloader_num_workers = workers;
  toy::save_to(folder, args, 4);
  args.eval_strategy = etude::IntervalStrategy::epoch;
  args.per_device_eval_batch_size = 3;
  return args;
}

template <class Trainer>
std::vector<torch::Tensor> batches_of(Trainer& trainer) {
  return trainer.template callback<Seen>().batches;
}

void check_same(const std::vector<torch::Tensor>& found, std::vector<torch::Tensor> expected) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) CHECK(found[i].equal(expected[i]));
}

TEST_CASE("training batches are mixed the same with any number of workers and after a resume") {
  const toy::Folder folder;
  etude::Trainer<etude::MixUp, Seen> trainer(toy::options(arguments(folder, 0), 12, 3));
  trainer.train();
  const auto expected = batches_of(trainer);
  // 12 examples in 6 batches, for 3 steps per epoch. They are on the line y = 2 x + 1, and mixed examples are
  // too.
  REQUIRE(expected.size() == 12);
  const auto x = torch::cat(expected).select(1, 0), y = torch::cat(expected).select(1, 1);
  CHECK(y.allclose(2 * x + 1));
  CHECK((x * 12 - (x * 12).round()).abs().max().item<double>() > 0.1);
  CHECK(trainer.callback<Seen>().evaluated_as_it_is);
  // No two batches have the same weight, not even within a step.
  CHECK(!expected[0].equal(expected[1]));

  for (const std::int64_t workers : {1, 4}) {
    const toy::Folder other;
    etude::Trainer<etude::MixUp, Seen> again(toy::options(arguments(other, workers), 12, 3));
    again.train();
    check_same(batches_of(again), expected);
  }

  etude::Trainer<etude::MixUp, Seen> resumed(toy::options(arguments(folder, 0), 12, 3));
  resumed.train({.resume_from_checkpoint = folder / "checkpoint-4"});
  check_same(batches_of(resumed), {expected.begin() + 8, expected.end()});
}

}  // namespace callbacks_mixup_test
