/// Writes an evaluation's predictions and targets to a CSV file, batch by batch.

#include "data/digits.hpp"

void train(const etude::TrainingArguments& args) {
  const auto [train, test] = digits::split(digits::read(), args.seed);
  etude::Trainer<etude::PredictionsToCSVCallback> trainer(
      {.model = digits::Net(),
       .args = args,
       .loss = torch::nn::CrossEntropyLoss(),
       .train_dataset = digits::dataset(train),
       .eval_dataset = digits::dataset(test),
       .compute_metrics = etude::metrics::accuracy},
      etude::PredictionsToCSVCallback{.predicted_class = true});
  trainer.train();

  const auto path = args.output_dir + "/eval_predictions.csv";
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  std::int64_t right = 0, all = 0;
  while (std::getline(file, line)) {
    const auto comma = line.find(',');
    right += line.substr(0, comma) == line.substr(comma + 1);
    ++all;
  }
  fmt::print("{}: {} of {} are right\n", path, right, all);
}

int main(int argc, char** argv) { return etude::run(argc, argv, digits::arguments(), train); }
