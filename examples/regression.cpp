/// A small network learns the mass of penguins from their measures, species and sex: the data is a CSV file
/// with texts, numbers and missing values. `loops/regression.cpp` is the loop that it replaces, with the same
/// losses.

#include <etude/etude.hpp>
#include <etude/formats/csv.hpp>

struct Options {
  ETUDE_STRUCT(Options, (std::string, data, "the penguins", ETUDE_EXAMPLE_DATA "/penguins.csv"));
};

/// Inputs [N, 8], and masses in kg [N, 1].
struct Penguins {
  torch::Tensor inputs, masses;
  Penguins rows(const torch::Tensor& indices) const {
    return {inputs.index_select(0, indices), masses.index_select(0, indices)};
  }
  etude::Dataset dataset() const { return {inputs, masses}; }
};

Penguins read(const std::string& path) {
  const etude::CsvTable table(path, {.missing = NAN, .missing_texts = {"NA"}});
  const auto measures = table.columns({"bill_length_mm", "bill_depth_mm", "flipper_length_mm"});
  const auto masses = table.columns({"body_mass_g"}) / 1000;
  const auto species = table.codes("species", {"Adelie", "Chinstrap", "Gentoo"});
  const auto sex = table.codes("sex", {"female", "male"});

  const auto is_complete = masses.squeeze(1).isfinite() & measures.isfinite().all(1) & sex.ge(0);
  const auto one_of = [](const torch::Tensor& codes, std::int64_t count) {
    return torch::one_hot(codes.clamp_min(0), count).to(torch::kFloat);
  };
  const auto inputs = torch::cat({measures, one_of(species, 3), one_of(sex, 2)}, 1);
  return Penguins{inputs, masses}.rows(is_complete.nonzero().squeeze(1));
}

/// Standardises inputs and de-standardises outputs, with buffers, so that checkpoints include them.
struct NetImpl : torch::nn::Module {
  explicit NetImpl(const Penguins& train) {
    const auto buffer = [&](const char* name, torch::Tensor value) {
      return register_buffer(name, std::move(value));
    };
    input_mean = buffer("input_mean", train.inputs.mean(0));
    input_scale = buffer("input_scale", train.inputs.std(0));
    mass_mean = buffer("mass_mean", train.masses.mean(0));
    mass_scale = buffer("mass_scale", train.masses.std(0));
  }

  torch::Tensor forward(torch::Tensor inputs) {
    const auto x = torch::relu(hidden1((inputs - input_mean) / input_scale));
    return out(torch::relu(hidden2(x))) * mass_scale + mass_mean;
  }

  torch::Tensor input_mean, input_scale, mass_mean, mass_scale;
  torch::nn::Linear hidden1 = register_module("hidden1", torch::nn::Linear(8, 32));
  torch::nn::Linear hidden2 = register_module("hidden2", torch::nn::Linear(32, 32));
  torch::nn::Linear out = register_module("out", torch::nn::Linear(32, 1));
};
TORCH_MODULE(Net);

using RegressionMetrics = etude::MetricCallback<etude::metrics::MeanSquaredError,
                                                etude::metrics::MeanAbsoluteError, etude::metrics::R2Score>;

void train(const etude::TrainingArguments& args, const Options& options) {
  const auto all = read(options.data);
  torch::manual_seed(static_cast<std::uint64_t>(args.seed));
  const auto order = torch::randperm(all.masses.size(0)).split(all.masses.size(0) * 8 / 10);
  const auto train = all.rows(order[0]), test = all.rows(order[1]);

  // Each evaluation writes its predictions to regression_output/eval_predictions.csv.
  using Trainer = etude::Trainer<RegressionMetrics, etude::PredictionsToCSVCallback>;
  Trainer trainer({.model_init = [train] { return Net(train); },
                   .args = args,
                   .loss = torch::nn::MSELoss(),
                   .train_dataset = train.dataset(),
                   .eval_dataset = test.dataset()});
  trainer.train();
  const auto metrics = trainer.evaluate();
  fmt::print("{} penguins that it was not trained on: off by {:.0f} g on average, R2 {:.3f}\n",
             test.masses.size(0), 1000 * metrics.at("eval_mae"), metrics.at("eval_r2"));
}

int main(int argc, char** argv) {
  const etude::TrainingArguments defaults{
      .output_dir = "regression_output",
      .per_device_train_batch_size = 16,
      .per_device_eval_batch_size = 64,
      .num_train_epochs = 40,
      .learning_rate = 3e-3,
      .weight_decay = 0.01,
      .lr_scheduler_type = etude::SchedulerType::constant,
      .eval_strategy = etude::IntervalStrategy::epoch,
      .save_strategy = etude::SaveStrategy::no,
      .logging_strategy = etude::IntervalStrategy::epoch,
      .report = etude::ReportMode::lines,
      .log_lines = {
          "epoch {epoch:.0f} loss {loss:.6f}",
          "epoch {epoch:.0f} eval_mse {eval_mse:.6f} eval_mae {eval_mae:.6f} eval_r2 {eval_r2:.6f}"}};
  return etude::run(argc, argv, defaults, Options{}, train);
}
