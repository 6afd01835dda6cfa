#include <etude/etude.hpp>

struct NetImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor points) { return out(torch::relu(hidden(points))); }
  torch::nn::Linear hidden = register_module("hidden", torch::nn::Linear(2, 32));
  torch::nn::Linear out = register_module("out", torch::nn::Linear(32, 2));
};
TORCH_MODULE(Net);

// A callback is any struct. Events are types: write `on` for those you want, and take what you need from
// them.
struct Announce {
  void on(const etude::TrainBegin& e) { etude::print("up to {} epochs\n", e.args.num_train_epochs); }
  void on(const etude::StepEnd& e) {
    if (e.state.global_step == 100) e.control.should_evaluate = true;
  }
  void on(const etude::Save& e) { etude::print("saved {}\n", e.checkpoint.filename().string()); }
};

// Points in a square, labelled by whether they lie in a circle.
etude::Dataset points(std::int64_t n) {
  torch::manual_seed(static_cast<std::uint64_t>(n));  // the same points in every run
  const auto x = torch::rand({n, 2}) * 2 - 1;
  return {x, x.square().sum(1).lt(0.6).to(torch::kLong)};
}

void train(const etude::TrainingArguments& args) {
  etude::Trainer<Announce> trainer({.model = Net(),
                                    .args = args,
                                    .loss = torch::nn::CrossEntropyLoss(),
                                    .train_dataset = points(4000),
                                    .eval_dataset = points(1000),
                                    .compute_metrics = etude::metrics::accuracy});

  // Resumes from the newest checkpoint if there is one: pull the plug, and run the same command again.
  etude::TrainOutput result = trainer.train({.resume_from_checkpoint = etude::if_any});
  etude::Metrics metrics = trainer.evaluate();
  fmt::print("{} steps, accuracy {:.3f}\n", result.global_step, metrics.at("eval_accuracy"));
}

int main(int argc, char** argv) {
  // The command line overrides these defaults: --num_train_epochs 5 --eval_strategy epoch
  return etude::run(argc, argv, etude::TrainingArguments{.learning_rate = 1e-2}, train);
}
