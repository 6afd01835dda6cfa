/// Learns to read handwritten digits in as many processes as are started, which share each batch: `torchrun
/// --nproc-per-node 2 --no-python ./several_processes`, or mpirun, or srun. Started directly, it is one
/// process. With `--max-restarts 3`, torchrun restarts all processes if one dies, and they continue from the
/// newest checkpoint.

#include "data/digits.hpp"

// [announce]
struct Announce {
  void on(const etude::TrainBegin& e) {
    if (!e.state.is_world_process_zero) return;
    etude::print("{} of {} steps are done; {} process{} train{}\n", e.state.global_step, e.state.max_steps,
                 e.args.world_size(), e.args.world_size() == 1 ? "" : "es",
                 e.args.world_size() == 1 ? "s" : "");
  }
};
// [/announce]

void train(const etude::TrainingArguments& args) {
  const auto [train, test] = digits::split(digits::read(), args.seed);

  // [trainer]
  // DistributedDataParallel in the list is all that makes it a program for several processes.
  etude::Trainer<etude::DistributedDataParallel, Announce> trainer(
      {.model_init = [] { return digits::Net(); },
       .args = args,
       .loss = torch::nn::CrossEntropyLoss(),
       .train_dataset = digits::dataset(train),
       .eval_dataset = digits::dataset(test),
       .compute_metrics = etude::metrics::accuracy});
  trainer.train({.resume_from_checkpoint = etude::if_any});
  // [/trainer]
  // [end]
  const auto metrics = trainer.evaluate();
  if (!trainer.state().is_world_process_zero) return;
  // [/end]
  double sum = 0;
  for (const auto& weights : trainer.model().parameters()) sum += weights.sum().item<double>();
  fmt::print("{} steps, accuracy {:.4f}, sum of the weights {:.9f}\n", trainer.state().global_step,
             metrics.at("eval_accuracy"), sum);
}

int main(int argc, char** argv) {
  const etude::TrainingArguments defaults{.output_dir = "several_processes_output",
                                          .per_device_train_batch_size = 32,
                                          .per_device_eval_batch_size = 256,
                                          .num_train_epochs = 20,
                                          .learning_rate = 2e-3,
                                          .eval_strategy = etude::IntervalStrategy::epoch,
                                          .save_strategy = etude::SaveStrategy::steps,
                                          .save_steps = 20,
                                          .save_total_limit = 2};
  return etude::run(argc, argv, defaults, train);
}
