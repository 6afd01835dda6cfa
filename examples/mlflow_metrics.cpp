/// Sends metrics to an MLflow server instead of printing them, from rank 0 only. The environment variable
/// MLFLOW_TRACKING_URI names the server.

#include <etude/integrations/mlflow.hpp>

#include "data/digits.hpp"

struct MLflowMetrics : etude::LogMetricsBase<MLflowMetrics> {
  etude::MLflowCallback mlflow = {};

  void log_metrics(const etude::Context& e, const etude::Metrics& metrics) {
    if (e.state.is_world_process_zero) mlflow.log(e, metrics);
  }

  using LogMetricsBase::on;
  void on(const etude::TrainBegin& e) {
    LogMetricsBase::on(e);
    mlflow.on(e);
  }
  void on(const etude::TrainError& e) { mlflow.on(e); }
  void on(const etude::TrainEnd& e) {
    LogMetricsBase::on(e);
    mlflow.on(e);
  }
};

void train(const etude::TrainingArguments& args) {
  const auto [train, test] = digits::split(digits::read(), args.seed);
  etude::Trainer<MLflowMetrics> trainer({.model = digits::Net(),
                                         .args = args,
                                         .loss = torch::nn::CrossEntropyLoss(),
                                         .train_dataset = digits::dataset(train),
                                         .eval_dataset = digits::dataset(test),
                                         .compute_metrics = etude::metrics::accuracy});
  trainer.train();
}

int main(int argc, char** argv) { return etude::run(argc, argv, digits::arguments(), train); }
