/// Predicts how far diabetes progresses in a year, from ten measurements in a CSV file with a header.
/// `loops/regression.cpp` is the loop that it replaces, with the same losses.

#include <etude/etude.hpp>
#include <etude/formats/csv.hpp>

struct RegressionArguments {
  ETUDE_STRUCT(RegressionArguments,
               (std::string, data, "a CSV file with a header", ETUDE_EXAMPLE_DATA "/diabetes.csv"),
               (std::string, target, "the column to predict; the others are the inputs", "progression"));
};

/// Standardizes its inputs and its output with the statistics of the training data, which checkpoints keep.
struct NetImpl : torch::nn::Module {
  NetImpl(const torch::Tensor& x, const torch::Tensor& y) {
    x_mean = register_buffer("x_mean", x.mean(0));
    x_std = register_buffer("x_std", x.std(0));
    y_mean = register_buffer("y_mean", y.mean(0));
    y_std = register_buffer("y_std", y.std(0));
    hidden = register_module("hidden", torch::nn::Linear(x.size(1), 16));
    out = register_module("out", torch::nn::Linear(16, 1));
  }
  torch::Tensor forward(torch::Tensor x) {
    return out(torch::tanh(hidden((x - x_mean) / x_std))) * y_std + y_mean;
  }
  torch::Tensor x_mean, x_std, y_mean, y_std;
  torch::nn::Linear hidden = nullptr, out = nullptr;
};
TORCH_MODULE(Net);

struct PrintEpochs {
  void on(const etude::Log& e) {
    if (e.logs.contains("loss")) etude::print("epoch {:.0f} loss {:.6f}\n", e.state.epoch, e.logs.at("loss"));
    if (e.logs.contains("eval_loss"))
      etude::print("epoch {:.0f} eval_loss {:.6f} mae {:.6f} r2 {:.6f}\n", e.state.epoch,
                   e.logs.at("eval_loss"), e.logs.at("eval_mae"), e.logs.at("eval_r2"));
  }
};

int main(int argc, char** argv) {
  const etude::TrainingArguments defaults{.output_dir = "regression_output",
                                          .per_device_train_batch_size = 32,
                                          .per_device_eval_batch_size = 32,
                                          .num_train_epochs = 20,
                                          .optim = etude::OptimizerNames::adam,
                                          .learning_rate = 5e-3,
                                          .max_grad_norm = 0,
                                          .lr_scheduler_type = etude::SchedulerType::constant,
                                          .eval_strategy = etude::IntervalStrategy::epoch,
                                          .save_strategy = etude::SaveStrategy::epoch,
                                          .save_total_limit = 1,
                                          .load_best_model_at_end = true,
                                          .metric_for_best_model = "eval_r2",
                                          .logging_strategy = etude::IntervalStrategy::epoch,
                                          .train_sampling_strategy = etude::SamplingStrategy::sequential};
  const auto [args, options] = etude::parse_arguments(argc, argv, defaults, RegressionArguments{});

  const etude::CsvTable table(options.data);
  auto inputs = table.names();
  std::erase(inputs, options.target);
  const auto x = table.columns(inputs), y = table.columns({options.target});
  const auto count = table.rows() * 8 / 10, rest = table.rows() - count;
  const auto train_x = x.narrow(0, 0, count), train_y = y.narrow(0, 0, count);

  etude::Trainer<etude::Without<etude::ProgressCallback, etude::PrinterCallback>, PrintEpochs,
                 etude::PredictionsToCSVCallback>
      trainer({.model_init = [&] { return Net(train_x, train_y); },
               .args = args,
               .loss = torch::nn::MSELoss(),
               .train_dataset = {train_x, train_y},
               .eval_dataset = {x.narrow(0, count, rest), y.narrow(0, count, rest)},
               .compute_metrics = etude::metrics::streaming(etude::metrics::MeanAbsoluteError(),
                                                            etude::metrics::R2Score())});
  trainer.train();
  trainer.evaluate();
  etude::print("{}/eval_predictions.csv has the predictions of the best epoch\n", args.output_dir);
}
