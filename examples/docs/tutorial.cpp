/// The program at the end of docs/tutorial.md, which begins with
/// examples/first.cpp.

#include <etude/etude.hpp>

struct NetImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor points) {
    return out(torch::relu(hidden(points)));
  }
  torch::nn::Linear hidden =
      register_module("hidden", torch::nn::Linear(2, 32));
  torch::nn::Linear out = register_module("out", torch::nn::Linear(32, 2));
};
TORCH_MODULE(Net);

// [callback]
// Adds the number of examples that the training has seen to each log.
struct CountExamples {
  ETUDE_STRUCT(
      CountExamples, (std::int64_t, examples, "that the training has seen", 0));

  void on(const etude::TrainBegin& e) {
    if (!e.is_resumed) examples = 0;
  }
  void on(const etude::BackwardEnd& e) { examples += e.batch.size; }
  void on(etude::Log& e) { e.logs["examples"] = static_cast<double>(examples); }
};
// [/callback]

etude::Dataset points(std::int64_t n) {
  torch::manual_seed(static_cast<std::uint64_t>(n));
  const auto x = torch::rand({n, 2}) * 2 - 1;
  return {x, x.square().sum(1).lt(0.6).to(torch::kLong)};
}

void train(const etude::TrainingArguments& args) {
  // [trainer]
  etude::Trainer trainer(
      {.model_init = [] { return Net(); },
       .args = args,
       .loss = torch::nn::CrossEntropyLoss(),
       .train_dataset = points(4000),
       .eval_dataset = points(1000),
       .compute_metrics = etude::metrics::streaming(
           etude::metrics::Accuracy(), etude::metrics::F1())},
      CountExamples{},
      etude::EarlyStoppingCallback{.early_stopping_patience = 3},
      etude::on<etude::StepEnd>().every(2000).call([](const etude::StepEnd& e) {
        etude::print(
            "{} of at most {} steps are done\n", e.state.global_step,
            e.state.max_steps);
      }));
  // [/trainer]

  const auto result = trainer.train({.resume_from_checkpoint = etude::if_any});
  // [end]
  fmt::print(
      "{} steps, {} examples, F1 {:.3f}, {}\n", result.global_step,
      trainer.callback<CountExamples>().examples,
      trainer.evaluate().at("eval_f1"),
      result.stop_reason.empty() ? "not stopped" : result.stop_reason);
  // [/end]
}

int main(int argc, char** argv) {
  // [arguments]
  return etude::run(
      argc, argv,
      etude::TrainingArguments{
          .output_dir = "tutorial_output",
          .num_train_epochs = 20,
          .learning_rate = 1e-2,
          .eval_strategy = etude::IntervalStrategy::epoch,
          .load_best_model_at_end = true,
          .metric_for_best_model = "f1"},
      train);
  // [/arguments]
}
