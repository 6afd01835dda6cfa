/// A small convolutional network learns to read handwritten digits: 1,797 images of 8x8 pixels, 80 % of them
/// for training. All of `etude::TrainingArguments` are options: try `--help`, or `--learning_rate 1e-3
/// --num_train_epochs 5`. A browser shows the training: digits_output/report.html.

#include "data/digits.hpp"

struct DigitsArguments {
  ETUDE_STRUCT(DigitsArguments,
               (std::string, data,
                "the images: each line has 64 pixels (0 to 16) and the digit, separated by commas",
                ETUDE_EXAMPLE_DATA "/optdigits.csv"),
               (std::int64_t, early_stopping_patience, "epochs without improvement before training stops",
                5));
};

struct NetImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor pixels) {
    auto x = torch::relu(norm1(conv1(pixels)));
    x = torch::max_pool2d(torch::relu(norm2(conv2(x))), 2);
    return head(dropout(x.flatten(1)));
  }

  torch::nn::Conv2d conv1 =
      register_module("conv1", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 24, 3).padding(1)));
  torch::nn::BatchNorm2d norm1 = register_module("norm1", torch::nn::BatchNorm2d(24));
  torch::nn::Conv2d conv2 =
      register_module("conv2", torch::nn::Conv2d(torch::nn::Conv2dOptions(24, 48, 3).padding(1)));
  torch::nn::BatchNorm2d norm2 = register_module("norm2", torch::nn::BatchNorm2d(48));
  torch::nn::Dropout dropout = register_module("dropout", torch::nn::Dropout(0.3));
  torch::nn::Linear head = register_module("head", torch::nn::Linear(48 * 4 * 4, 10));
};
TORCH_MODULE(Net);

struct Announce {
  void on(const etude::CheckpointLoaded& e) {
    etude::print("Weights of step {} out of {}, from {}.\n", *etude::checkpoint_step(e.checkpoint),
                 e.state.max_steps, e.checkpoint.string());
  }
  void on(const etude::TrainBegin& e) {
    etude::print("Up to {} epochs of {} examples, in batches of {}.\n", e.args.num_train_epochs,
                 *e.train_dataloader->dataset_size(), e.args.per_device_train_batch_size);
  }
  void on(const etude::Stop& e) {
    etude::print("Stopped after {} steps: {}.\n", e.state.global_step, e.reason);
  }
};

// [trainer]
void train(const etude::TrainingArguments& args, const DigitsArguments& options) {
  const auto [train, test] = digits::split(digits::read(options.data), args.seed);

  etude::Trainer<Announce, etude::EarlyStoppingCallback, etude::ReportCallback> trainer(
      {.model_init = [] { return Net(); },
       .args = args,
       .loss = torch::nn::CrossEntropyLoss(),
       .train_dataset = digits::dataset(train),
       .eval_dataset = digits::dataset(test),
       .compute_metrics = etude::metrics::accuracy},
      etude::EarlyStoppingCallback{.early_stopping_patience = options.early_stopping_patience});

  // Run the same command again to resume an interrupted training.
  trainer.train({.resume_from_checkpoint = etude::if_any});
  const auto metrics = trainer.evaluate();
  fmt::print("accuracy on {} digits that it was not trained on: {:.4f}\n", test.second.size(0),
             metrics.at("eval_accuracy"));
}

int main(int argc, char** argv) {
  // Defaults that suit this network; the command line overrides them.
  const etude::TrainingArguments defaults{
      .output_dir = "digits_output",
      .per_device_train_batch_size = 32,
      .per_device_eval_batch_size = 256,
      .num_train_epochs = 20,
      .learning_rate = 2e-3,
      .weight_decay = 0.01,
      .lr_scheduler_type = etude::SchedulerType::cosine,
      .warmup_steps = 0.1,
      .eval_strategy = etude::IntervalStrategy::epoch,
      .save_strategy = etude::SaveStrategy::epoch,
      .save_total_limit = 2,
      .load_best_model_at_end = true,
      .metric_for_best_model = "accuracy",
      .logging_strategy = etude::IntervalStrategy::epoch,
      .log_lines = {"epoch {epoch:.0f} loss {loss:.6f}",
                    "epoch {epoch:.0f} eval_loss {eval_loss:.6f} accuracy {eval_accuracy:.4f}"},
  };
  return etude::run(argc, argv, defaults, DigitsArguments{}, train);
}
// [/trainer]
