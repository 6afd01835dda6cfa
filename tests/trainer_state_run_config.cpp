#include "etude/trainer_state.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "common/toy.hpp"

namespace trainer_state_run_config_test {

etude::TrainingArguments of_ten() {
  auto args = toy::arguments();
  args.per_device_train_batch_size = 4;
  args.per_device_eval_batch_size = 2;
  args.gradient_accumulation_steps = 2;
  args.num_train_epochs = 3;
  return args;
}

TEST_CASE("the run's configuration follows from data and arguments") {
  etude::Trainer<etude::NoDefaultCallbacks> trainer(toy::options(of_ten(), 10, 3));
  trainer.train();
  const auto& run = trainer.run_config();
  CHECK(run.num_epochs == 3);
  CHECK(run.train_dataloader_len == 3);        // 4, 4, 2
  CHECK(run.num_update_steps_per_epoch == 2);  // two batches, then one
  CHECK(run.max_num_train_steps == 6);
  CHECK(run.train_total_batch_size == 8);
  CHECK(run.eval_dataloader_len == 2);
  CHECK(run.gradient_clip_norm == 1);
  CHECK(run.num_processes == 1);
}

TEST_CASE("a schedule may be a function of the run's configuration") {
  auto options = toy::options(of_ten(), 10);
  std::vector<double> factors;
  options.lr_scheduler = [&](const etude::TrainerRunConfig& run) -> etude::Schedule {
    return [&factors, last = run.max_num_train_steps](std::int64_t step) {
      return factors.emplace_back(1 - static_cast<double>(step) / static_cast<double>(last));
    };
  };
  etude::Trainer<etude::NoDefaultCallbacks> trainer(std::move(options));
  trainer.train();
  REQUIRE(factors.size() >= 6);
  CHECK(factors[0] == 1);
  CHECK(factors[3] == doctest::Approx(0.5));
  CHECK(trainer.get_learning_rates().front() == 0);
}

}  // namespace trainer_state_run_config_test
