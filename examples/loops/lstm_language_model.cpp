/// The loop that `../lstm_language_model.cpp` replaces, in plain LibTorch, after PyTorch's example
/// word_language_model: `lstm_language_model_loop EPOCHS TEXT`.

#include <torch/torch.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

constexpr std::int64_t train_streams = 20, eval_streams = 10, window = 35, width = 128;
constexpr double learning_rate = 2e-3, max_grad_norm = 0.25;
constexpr std::uint64_t seed = 42;

std::pair<torch::Tensor, std::int64_t> read(const std::string& path) {
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (text.empty()) throw std::runtime_error("can't read " + path);
  const std::set<char> characters(text.begin(), text.end());
  std::map<char, std::int64_t> number;
  for (const char c : characters) number.emplace(c, number.size());
  std::vector<std::int64_t> numbers;
  for (const char c : text) numbers.push_back(number[c]);
  return {torch::tensor(numbers), number.size()};
}

using Hidden = std::tuple<torch::Tensor, torch::Tensor>;

struct NetImpl : torch::nn::Module {
  explicit NetImpl(std::int64_t characters)
      : embedding(register_module("embedding", torch::nn::Embedding(characters, width))),
        lstm(
            register_module("lstm", torch::nn::LSTM(torch::nn::LSTMOptions(width, width).batch_first(true)))),
        dropout(register_module("dropout", torch::nn::Dropout(0.2))),
        head(register_module("head", torch::nn::Linear(width, characters))) {}

  std::pair<torch::Tensor, Hidden> forward(const torch::Tensor& characters, const Hidden& hidden) {
    const auto x = dropout(embedding(characters));
    const auto [y, after] = lstm(x, hidden);
    return {head(dropout(y)), after};
  }

  torch::nn::Embedding embedding;
  torch::nn::LSTM lstm;
  torch::nn::Dropout dropout;
  torch::nn::Linear head;
};
TORCH_MODULE(Net);

Hidden init_hidden(std::int64_t streams, torch::Device device) {
  const auto zeros = torch::zeros({1, streams, width}, device);
  return {zeros, zeros};
}

// Cuts the hidden state from its history.
Hidden repackage_hidden(const Hidden& hidden) {
  return {std::get<0>(hidden).detach(), std::get<1>(hidden).detach()};
}

torch::Tensor batchify(const torch::Tensor& data, std::int64_t streams) {
  const auto length = data.size(0) / streams;
  return data.narrow(0, 0, length * streams).reshape({streams, length});
}

std::pair<torch::Tensor, torch::Tensor> get_batch(const torch::Tensor& source, std::int64_t i) {
  const auto length = std::min(window, source.size(1) - 1 - i);
  return {source.narrow(1, i, length), source.narrow(1, i + 1, length)};
}

torch::Tensor loss_of(const torch::Tensor& logits, const torch::Tensor& targets) {
  return torch::nn::functional::cross_entropy(logits.flatten(0, 1), targets.flatten());
}

double evaluate(Net& model, const torch::Tensor& source) {
  model->eval();
  const torch::NoGradGuard no_grad;
  double total = 0;
  int batches = 0;
  auto hidden = init_hidden(source.size(0), source.device());
  for (std::int64_t i = 0; i < source.size(1) - 1; i += window) {
    const auto [inputs, targets] = get_batch(source, i);
    auto [logits, after] = model->forward(inputs, hidden);
    hidden = after;
    total += loss_of(logits, targets).item<double>();
    ++batches;
  }
  return total / batches;
}

double train(Net& model, torch::optim::Optimizer& optimizer, const torch::Tensor& source) {
  model->train();
  double total = 0;
  int batches = 0;
  auto hidden = init_hidden(source.size(0), source.device());
  for (std::int64_t i = 0; i < source.size(1) - 1; i += window) {
    const auto [inputs, targets] = get_batch(source, i);
    hidden = repackage_hidden(hidden);
    optimizer.zero_grad();
    auto [logits, after] = model->forward(inputs, hidden);
    hidden = after;
    const auto loss = loss_of(logits, targets);
    loss.backward();
    torch::nn::utils::clip_grad_norm_(model->parameters(), max_grad_norm);
    optimizer.step();
    total += loss.item<double>();
    ++batches;
  }
  return total / batches;
}

int main(int argc, char** argv) {
  const int epochs = argc > 1 ? std::atoi(argv[1]) : 10;
  const auto [numbers, characters] = read(argc > 2 ? argv[2] : "/usr/share/common-licenses/GPL-3");
  const torch::Device device(torch::cuda::is_available() ? torch::kCUDA : torch::kCPU);
  const auto split = numbers.size(0) * 9 / 10;
  const auto train_data = batchify(numbers.narrow(0, 0, split), train_streams).to(device);
  const auto eval_data = batchify(numbers.narrow(0, split, numbers.size(0) - split), eval_streams).to(device);

  torch::manual_seed(seed);
  Net model(characters);
  model->to(device);
  torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(learning_rate));
  torch::manual_seed(seed);
  double best = std::numeric_limits<double>::infinity();
  for (int epoch = 1; epoch <= epochs; ++epoch) {
    const double loss = train(model, optimizer, train_data);
    std::printf("epoch %d loss %.6f perplexity %.3f\n", epoch, loss, std::exp(loss));
    const double eval_loss = evaluate(model, eval_data);
    std::printf("epoch %d eval_loss %.6f perplexity %.3f\n", epoch, eval_loss, std::exp(eval_loss));
    if (eval_loss < best) {
      best = eval_loss;
      torch::save(model, "lstm_language_model.pt");
    }
  }
  torch::load(model, "lstm_language_model.pt");
  torch::save(model, "lstm_language_model.pt");
}
