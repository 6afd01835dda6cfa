#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "common/folder.hpp"
#include "common/full_run.hpp"
#include "common/toy.hpp"
#include "etude/trainer.hpp"

namespace loop_trainings_in_threads_test {

/// A training with weights drawn by `model_init`, workers, shuffling, evaluations, checkpoints and the best
/// model, whose steps draw nothing from LibTorch's default generator. Returns checksums of all of it.
std::string outcome(std::int64_t seed) {
  toy::Folder folder;
  etude::TrainingArguments args = toy::arguments();
  args.output_dir = folder;
  args.seed = seed;
  args.num_train_epochs = 2;
  args.per_device_train_batch_size = 4;
  args.per_device_eval_batch_size = 8;
  args.dataloader_num_workers = 2;
  args.learning_rate = 0.02;
  args.lr_scheduler_type = etude::SchedulerType::cosine;
  args.logging_strategy = args.eval_strategy = etude::IntervalStrategy::steps;
  args.logging_steps = 4;
  args.save_strategy = etude::SaveStrategy::steps;
  args.save_steps = 4;
  args.save_async = true;
  args.load_best_model_at_end = true;
  etude::Trainer<etude::Without<etude::PrinterCallback>> trainer(
      {.model_init =
           [] {
             return torch::nn::Sequential(torch::nn::Linear(3, 16), torch::nn::BatchNorm1d(16),
                                          torch::nn::ReLU(), torch::nn::Linear(16, 1));
           },
       .args = args,
       .loss = torch::nn::MSELoss(),
       .train_dataset = toy::waves(42),
       .eval_dataset = toy::waves(9)});
  trainer.train();
  auto text = toy::tensors(trainer);
  for (const auto& entry : trainer.state().log_history)
    for (const auto& [name, value] : entry)
      if (!toy::is_timing(name)) text += fmt::format("{}={} ", name, value.dump());
  return text + (std::filesystem::exists(folder / "checkpoint-20") ? "kept" : "lost");
}

TEST_CASE("trainings in four threads give the results of each alone, to the bit") {
  std::vector<std::string> alone, together(4);
  for (std::int64_t seed = 0; seed < 4; ++seed) alone.push_back(outcome(seed));
  CHECK(alone[0] != alone[1]);
  CHECK(alone[0].ends_with("kept"));
  std::vector<std::thread> threads;
  for (std::size_t seed = 0; seed < 4; ++seed)
    threads.emplace_back([&, seed] { together[seed] = outcome(static_cast<std::int64_t>(seed)); });
  for (auto& thread : threads) thread.join();
  for (std::size_t seed = 0; seed < 4; ++seed) CHECK(together[seed] == alone[seed]);
}

}  // namespace loop_trainings_in_threads_test
