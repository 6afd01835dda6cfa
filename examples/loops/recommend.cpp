// The handwritten loop that examples/recommend.cpp replaces.

#include "../data/recommend.hpp"

#include <cstdio>

int main() {
  torch::manual_seed(42);
  const auto data = ratings();
  Recommender model;
  // LibTorch's Adam takes no sparse gradients; Adagrad does.
  std::vector<torch::Tensor> tables{model->user->weight, model->item->weight, model->tag->weight};
  torch::optim::Adagrad table_optimizer(tables, torch::optim::AdagradOptions(table_rate));
  torch::optim::Adam tower_optimizer(model->tower->parameters(), torch::optim::AdamOptions(tower_rate));

  const auto forward = [&](std::int64_t begin, std::int64_t end) {
    const auto item = data.item.slice(0, begin, end);
    const auto [all, begins] = bags(data, item);
    return model(data.user.slice(0, begin, end), item, all, begins);
  };

  for (std::int64_t epoch = 1; epoch <= epochs; ++epoch) {
    model->train();
    double sum = 0;
    std::int64_t batches = 0;
    for (std::int64_t begin = 0; begin < train_ratings; begin += batch_size) {
      const auto end = std::min(begin + batch_size, train_ratings);
      table_optimizer.zero_grad();
      tower_optimizer.zero_grad();
      const auto loss = torch::mse_loss(forward(begin, end), data.rating.slice(0, begin, end));
      loss.backward();
      table_optimizer.step();
      tower_optimizer.step();

      sum += loss.item<double>(), ++batches;
    }
    model->eval();
    const torch::NoGradGuard no_grad;
    double squares = 0;
    for (std::int64_t begin = train_ratings; begin < train_ratings + test_ratings; begin += batch_size) {
      const auto end = std::min(begin + batch_size, train_ratings + test_ratings);
      squares += (forward(begin, end) - data.rating.slice(0, begin, end)).square().sum().item<double>();
    }
    std::printf("epoch %ld loss %.9f mse %.6f\n", static_cast<long>(epoch),
                sum / static_cast<double>(batches), squares / static_cast<double>(test_ratings));
  }
  torch::save(model, "recommender.pt");
}
