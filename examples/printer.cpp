/// Replaces Etude's printer with one that leaves out `total_flos` and prints only in the first process of
/// each machine. A callback that derives from a default one takes its place.

#include <etude/etude.hpp>

struct ShortPrinter : etude::PrinterCallback {
  void on(const etude::Log& e) {
    if (!e.state.is_local_process_zero) return;
    auto logs = e.logs;
    logs.erase("total_flos");
    etude::print("step {}: {}\n", e.state.global_step, logs);
  }
};

// Predicts which of its 8 tokens (0 to 31) is the largest.
struct LargestImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor tokens) { return out(torch::relu(hidden(embed(tokens).flatten(1)))); }
  torch::nn::Embedding embed = register_module("embed", torch::nn::Embedding(32, 8));
  torch::nn::Linear hidden = register_module("hidden", torch::nn::Linear(64, 64));
  torch::nn::Linear out = register_module("out", torch::nn::Linear(64, 8));
};
TORCH_MODULE(Largest);

void train(const etude::TrainingArguments& args) {
  torch::manual_seed(static_cast<std::uint64_t>(args.seed));
  const auto tokens = torch::randint(32, {6400, 8}, torch::kLong);
  etude::Trainer<ShortPrinter> trainer({.model = Largest(),
                                        .args = args,
                                        .loss = torch::nn::CrossEntropyLoss(),
                                        .train_dataset = {tokens, tokens.argmax(1)}});
  trainer.train();
  fmt::print("{:.0f} floating-point operations\n", trainer.state().total_flos);
}

int main(int argc, char** argv) {
  const etude::TrainingArguments defaults{.output_dir = "printer_output",
                                          .per_device_train_batch_size = 64,
                                          .num_train_epochs = 2,
                                          .learning_rate = 3e-3,
                                          .save_strategy = etude::SaveStrategy::no,
                                          .logging_steps = 50,
                                          .disable_tqdm = true};
  return etude::run(argc, argv, defaults, train);
}
