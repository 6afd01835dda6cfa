/// The loop `../loops/cart_pole.cpp` with a trainer: `cart_pole_kept EPOCHS`.

#include <torch/torch.h>
#include <etude/etude.hpp>

#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include "../data/cart_pole.hpp"

struct PolicyImpl : torch::nn::Module {
  std::pair<torch::Tensor, torch::Tensor> forward(torch::Tensor states) {
    return {actor->forward(states), critic->forward(states).squeeze(-1)};
  }

  static torch::nn::Sequential network(std::int64_t outputs) {
    return torch::nn::Sequential(torch::nn::Linear(4, 64), torch::nn::Tanh(), torch::nn::Linear(64, 64),
                                 torch::nn::Tanh(), torch::nn::Linear(64, outputs));
  }
  torch::nn::Sequential actor = register_module("actor", network(2));
  torch::nn::Sequential critic = register_module("critic", network(1));
};
TORCH_MODULE(Policy);

constexpr std::int64_t carts = 32, steps = 128, passes = 4, batch_size = 256;
constexpr double discount = 0.99, lambda = 0.95, clip = 0.2;
constexpr double learning_rate = 2.5e-3, max_grad_norm = 0.5;
constexpr std::uint64_t seed = 42;

struct Rollout {
  torch::Tensor states, actions, log_probs, advantages, returns;
};

Rollout collect(Policy& policy, CartPoles& poles, double& mean_length) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> states, actions, log_probs, values, continues;
  double ended = 0, length = 0;
  for (std::int64_t i = 0; i < steps; ++i) {
    states.push_back(poles.states());
    const auto before = poles.steps() + 1;
    const auto [logits, value] = policy->forward(poles.states());
    const auto action = torch::multinomial(logits.softmax(-1), 1);
    actions.push_back(action.squeeze(1));
    log_probs.push_back(logits.log_softmax(-1).gather(1, action).squeeze(1));
    values.push_back(value);
    const auto ends = poles.step(action.squeeze(1));
    continues.push_back(ends.logical_not().to(torch::kFloat));
    ended += ends.sum().item<double>();
    length += before.masked_select(ends).sum().item<double>();
  }
  if (ended > 0) mean_length = length / ended;
  values.push_back(policy->forward(poles.states()).second);
  std::vector<torch::Tensor> advantages(steps);
  auto advantage = torch::zeros({carts});
  for (std::size_t i = steps; i-- > 0;) {
    const auto error = 1 + discount * continues[i] * values[i + 1] - values[i];
    advantages[i] = advantage = error + discount * lambda * continues[i] * advantage;
  }
  values.pop_back();
  return {torch::cat(states), torch::cat(actions), torch::cat(log_probs), torch::cat(advantages),
          torch::cat(advantages) + torch::cat(values)};
}

torch::Tensor loss_of(Policy& policy, const Rollout& rollout, const torch::Tensor& rows) {
  const auto [logits, values] = policy->forward(rollout.states.index_select(0, rows));
  const auto log_probs = logits.log_softmax(-1);
  const auto log_prob = log_probs.gather(1, rollout.actions.index_select(0, rows).unsqueeze(1)).squeeze(1);
  const auto ratio = (log_prob - rollout.log_probs.index_select(0, rows)).exp();
  const auto all = rollout.advantages.index_select(0, rows);
  const auto advantage = (all - all.mean()) / (all.std() + 1e-8);
  const auto policy_loss = -torch::min(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage).mean();
  const auto entropy = -(log_probs.exp() * log_probs).sum(-1).mean();
  return policy_loss + 0.5 * torch::mse_loss(values, rollout.returns.index_select(0, rows)) - 0.01 * entropy;
}

int main(int argc, char** argv) {
  const int epochs = argc > 1 ? std::atoi(argv[1]) : 40;
  torch::manual_seed(seed);
  Policy policy;
  CartPoles poles(carts);
  torch::manual_seed(seed);
  torch::optim::AdamW optimizer(policy->parameters(),
                                torch::optim::AdamWOptions(learning_rate).weight_decay(0));
  constexpr int n = carts * steps * passes / batch_size;  // updates of an epoch
  etude::TrainingArguments args{.max_steps = epochs * n, .max_grad_norm = max_grad_norm, .save_steps = n};
  etude::Trainer trainer({.model = policy, .args = args, .optimizer = std::move(optimizer)});
  trainer.begin({.resume_from_checkpoint = etude::if_any});
  double mean_length = 0;
  for (int epoch = 1 + static_cast<int>(trainer.state().global_step) / n; epoch <= epochs; ++epoch) {
    const auto rollout = collect(policy, poles, mean_length);
    double total = 0;
    int batches = 0;
    for (std::int64_t pass = 0; pass < passes; ++pass)
      for (const auto& rows : torch::randperm(carts * steps).split(batch_size)) {
        const auto loss = loss_of(policy, rollout, rows);
        trainer.update(loss);
        total += loss.item<double>();
        ++batches;
      }
    std::printf("epoch %d loss %.6f\n", epoch, total / batches);
    std::printf("epoch %d reward %.6f\n", epoch, mean_length);
    torch::save(policy, "cart_pole.pt");
  }
  trainer.finish();
}
