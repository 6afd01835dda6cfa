/// Accuracy, precision and recall, accumulated over the batches of each evaluation. The run history holds
/// them and the losses.

#include <fmt/ranges.h>

#include "data/digits.hpp"

using ClassificationMetrics =
    etude::MetricCallback<etude::metrics::Accuracy, etude::metrics::Precision, etude::metrics::Recall>;

void train(const etude::TrainingArguments& args) {
  const auto [train, test] = digits::split(digits::read(), args.seed);
  etude::Trainer<ClassificationMetrics, etude::RunHistoryCallback> trainer(
      {.model = digits::Net(),
       .args = args,
       .loss = torch::nn::CrossEntropyLoss(),
       .train_dataset = digits::dataset(train),
       .eval_dataset = digits::dataset(test)});
  trainer.train();
  const auto& history = trainer.callback<etude::RunHistoryCallback>().history();
  for (const auto& name :
       {"train_loss_epoch", "eval_loss_epoch", "eval_accuracy", "eval_precision", "eval_recall"})
    fmt::print("{}: {:.3f}\n", name, fmt::join(history.get_metric_values(name), " "));
}

int main(int argc, char** argv) { return etude::run(argc, argv, digits::arguments(), train); }
