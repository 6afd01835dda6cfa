/// Searches for a network and training settings that read handwritten digits well; the hyperparameters are
/// fields of structs. Run the same command again to resume the search, or several times at once to share it:
///
///     search --n_trials 50 --pruner median
///     search --n_trials 50 --pruner median --n_jobs 2
///     search --config search_output/run-7/hyperparameters.json --n_trials 1 --output_dir again

#include "data/digits.hpp"

ETUDE_ENUM(Activation, relu, tanh, gelu);

// [fields]
struct NetArguments {
  ETUDE_STRUCT(NetArguments,
               (std::int64_t, width, "units of each hidden layer" | at_least(1) | searched(8, 128).log(), 32),
               (std::int64_t, layers, "hidden layers" | at_least(1) | searched(1, 3), 1),
               (Activation, activation, "between the layers" | searched(), Activation::relu),
               (double, dropout, "of the hidden units" | at_least(0).below(1) | searched(0, 0.5), 0.0));
};
// [/fields]

struct NetImpl : torch::nn::Module {
  explicit NetImpl(const NetArguments& net) : activation(net.activation), dropout(net.dropout) {
    std::int64_t inputs = 64;
    for (std::int64_t i = 0; i < net.layers; ++i) {
      layers->push_back(torch::nn::Linear(inputs, net.width));
      inputs = net.width;
    }
    layers->push_back(torch::nn::Linear(inputs, 10));
    register_module("layers", layers);
  }

  torch::Tensor forward(torch::Tensor pixels) {
    auto x = pixels.flatten(1);
    for (std::size_t i = 0; i < layers->size(); ++i) {
      x = layers->ptr<torch::nn::LinearImpl>(i)->forward(x);
      if (i + 1 == layers->size()) break;
      x = activation == Activation::relu   ? torch::relu(x)
          : activation == Activation::tanh ? torch::tanh(x)
                                           : torch::gelu(x);
      x = torch::dropout(x, dropout, is_training());
    }
    return x;
  }

  Activation activation;
  double dropout;
  torch::nn::ModuleList layers;
};
TORCH_MODULE(Net);

int main(int argc, char** argv) {
  const etude::TrainingArguments defaults{.output_dir = "search_output",
                                          .per_device_train_batch_size = 32,
                                          .per_device_eval_batch_size = 512,
                                          .num_train_epochs = 8,
                                          .eval_strategy = etude::IntervalStrategy::epoch,
                                          .save_strategy = etude::SaveStrategy::epoch,
                                          .save_total_limit = 1,
                                          .metric_for_best_model = "accuracy",
                                          .logging_strategy = etude::IntervalStrategy::no};
  // [space]
  auto [args, net, options] =
      etude::parse_arguments(argc, argv, defaults, NetArguments{}, etude::HyperparameterSearchOptions{});
  options.hp_space = [base = net](etude::Trial& trial) {
    trial.suggest_float("learning_rate", {.low = 1e-4, .high = 1, .log = true});
    // Searches the weight decay only with AdamW.
    if (trial.suggest_categorical("optim", {"sgd", "adamw_torch_fused"}) == "adamw_torch_fused")
      trial.suggest_float("weight_decay", {.low = 1e-4, .high = 1e-1, .log = true});
    auto searched = base;
    etude::suggest(trial, searched);
  };
  // [/space]

  const auto [train, test] = digits::split(digits::read(ETUDE_EXAMPLE_DATA "/optdigits.csv"), 42);
  const auto train_set = digits::dataset(train), eval_set = digits::dataset(test);
  // [search]
  const auto result = etude::hyperparameter_search(
      [&](const etude::TrainingArguments& trial_args, const NetArguments& trial_net) {
        return etude::Trainer<>({.model_init = [=] { return Net(trial_net); },
                                 .args = trial_args,
                                 .loss = torch::nn::CrossEntropyLoss(),
                                 .train_dataset = train_set,
                                 .eval_dataset = eval_set,
                                 .compute_metrics = etude::metrics::accuracy});
      },
      options, args, net);
  // [/search]

  fmt::print("{}", result.table());
  if (result.best_runs.empty()) return 1;
  const auto& best = result.best_run();
  fmt::print("best of {} trials: number {}, accuracy {:.4f}\nits arguments: {}\nall trials: {}\n",
             result.trials.size(), best.run_id, best.objective[0], best.config.string(),
             result.report.string());
}
