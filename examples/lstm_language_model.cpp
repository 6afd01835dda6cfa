/// A recurrent network learns to write like a text, character by character, by truncated backpropagation
/// through time, as in PyTorch's example word_language_model: the text is laid out as parallel streams, and
/// the hidden state is carried from each batch to the next. `loops/lstm_language_model.cpp` is the same in
/// plain LibTorch.

#include <etude/etude.hpp>
#include <fstream>
#include <iterator>

struct TextArguments {
  ETUDE_STRUCT(TextArguments,
               (std::string, text, "the text to learn from", "/usr/share/common-licenses/GPL-3"),
               (std::int64_t, window, "characters that backward goes through", 35),
               (std::int64_t, width, "size of the characters' vectors and of the hidden state", 128));
};

/// The indices of a text's characters [length], and the number of distinct characters.
std::pair<torch::Tensor, std::int64_t> read(const std::string& path) {
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (text.empty()) throw etude::DataError(fmt::format("text is {}: must be a file that isn't empty", path));
  const std::set<char> characters(text.begin(), text.end());
  std::map<char, std::int64_t> number;
  for (const char c : characters) number.emplace(c, number.size());
  std::vector<std::int64_t> numbers;
  for (const char c : text) numbers.push_back(number[c]);
  return {torch::tensor(numbers), number.size()};
}

struct NetImpl : torch::nn::Module {
  NetImpl(std::int64_t characters, std::int64_t width_)
      : width(width_),
        embedding(register_module("embedding", torch::nn::Embedding(characters, width))),
        lstm(
            register_module("lstm", torch::nn::LSTM(torch::nn::LSTMOptions(width, width).batch_first(true)))),
        dropout(register_module("dropout", torch::nn::Dropout(0.2))),
        head(register_module("head", torch::nn::Linear(width, characters))) {}

  // [forward]
  /// Characters [streams, window] to logits [streams, window, characters].
  torch::Tensor forward(torch::Tensor characters) {
    const auto x = dropout(embedding(characters));
    const auto h = hidden->get("h", {1, x.size(0), width}, x.options());
    const auto c = hidden->get("c", {1, x.size(0), width}, x.options());
    const auto [y, after] = lstm(x, std::tuple(h, c));
    hidden->set("h", std::get<0>(after));
    hidden->set("c", std::get<1>(after));
    return head(dropout(y));
  }
  // [/forward]

  std::int64_t width;
  torch::nn::Embedding embedding;
  torch::nn::LSTM lstm;
  torch::nn::Dropout dropout;
  torch::nn::Linear head;
  // [carried]
  etude::CarriedState hidden = register_module("hidden", etude::CarriedState());
  // [/carried]
};
TORCH_MODULE(Net);

struct PrintLosses {
  void on(const etude::Log& e) const {
    for (const std::string name : {"loss", "eval_loss"})
      if (e.logs.contains(name))
        etude::print("epoch {:.0f} {} {:.6f} perplexity {:.3f}\n", e.state.epoch, name, e.logs.at(name),
                     std::exp(e.logs.at(name)));
  }
};

void train(const etude::TrainingArguments& args, const TextArguments& text) {
  const auto [numbers, characters] = read(text.text);
  const auto split = numbers.size(0) * 9 / 10;
  const auto train = numbers.narrow(0, 0, split), test = numbers.narrow(0, split, numbers.size(0) - split);

  torch::manual_seed(static_cast<std::uint64_t>(args.seed));
  // [trainer]
  etude::Trainer<PrintLosses> trainer(
      {.model = Net(characters, text.width),
       .args = args,
       .loss =
           [](torch::Tensor logits, torch::Tensor next) {
             return torch::nn::functional::cross_entropy(logits.flatten(0, 1), next.flatten());
           },
       .train_dataset = etude::token_streams(train, args.per_device_train_batch_size, text.window),
       .eval_dataset = etude::token_streams(test, args.per_device_eval_batch_size, text.window)});
  // [/trainer]
  trainer.train({.resume_from_checkpoint = etude::if_any});  // run the same command again to resume
  trainer.save_model(args.output_dir);
}

int main(int argc, char** argv) {
  const etude::TrainingArguments defaults{.output_dir = "lstm_language_model_output",
                                          .per_device_train_batch_size = 20,
                                          .per_device_eval_batch_size = 10,
                                          .num_train_epochs = 10,
                                          .optim = etude::OptimizerNames::adam,
                                          .learning_rate = 2e-3,
                                          .max_grad_norm = 0.25,
                                          .lr_scheduler_type = etude::SchedulerType::constant,
                                          .eval_strategy = etude::IntervalStrategy::epoch,
                                          .save_strategy = etude::SaveStrategy::epoch,
                                          .save_total_limit = 1,
                                          .load_best_model_at_end = true,
                                          .logging_strategy = etude::IntervalStrategy::epoch};
  return etude::run(argc, argv, defaults, TextArguments{}, train);
}
