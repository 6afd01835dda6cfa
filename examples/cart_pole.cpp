/// A policy learns to balance poles on carts by proximal policy optimization (Schulman et al. 2017). The
/// model makes its own data: each epoch collects 128 steps from each of 32 carts, and goes over them 4 times.
/// `loops/cart_pole.cpp` is the same in plain LibTorch.

#include <etude/etude.hpp>

#include "data/cart_pole.hpp"

struct PolicyImpl : torch::nn::Module {
  /// Logits of the two actions [N, 2], and the value of the state [N].
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

constexpr std::int64_t carts = 32, steps = 128;
constexpr double discount = 0.99, lambda = 0.95, clip = 0.2;

/// Lets the policy act, and returns its actions with their advantages (Schulman et al. 2016).
struct Collect {
  Policy policy;
  std::shared_ptr<double> mean_length;  // of the episodes that ended
  CartPoles poles{carts};

  etude::Example operator()() {
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
    if (ended > 0) *mean_length = length / ended;
    values.push_back(policy->forward(poles.states()).second);
    std::vector<torch::Tensor> advantages(steps);
    auto advantage = torch::zeros({carts});
    for (std::size_t i = steps; i-- > 0;) {
      const auto error = 1 + discount * continues[i] * values[i + 1] - values[i];
      advantages[i] = advantage = error + discount * lambda * continues[i] * advantage;
    }
    values.pop_back();
    return {torch::cat(states),
            {{torch::cat(actions), torch::cat(log_probs), torch::cat(advantages),
              torch::cat(advantages) + torch::cat(values)},
             {"action", "log_prob", "advantage", "return"}}};
  }

  etude::DatasetState state() const {
    return {.tensors = {{"states", poles.states()}, {"steps", poles.steps()}}};
  }
  void load_state(const etude::DatasetState& state) {
    poles.set(state.tensors.at("states"), state.tensors.at("steps"));
  }
};

torch::Tensor loss(const etude::Tensors& outputs, const etude::Tensors& labels) {
  const auto log_probs = outputs[0].log_softmax(-1);
  const auto log_prob = log_probs.gather(1, labels.at("action").unsqueeze(1)).squeeze(1);
  const auto ratio = (log_prob - labels.at("log_prob")).exp();
  const auto& all = labels.at("advantage");
  const auto advantage = (all - all.mean()) / (all.std() + 1e-8);
  const auto policy = -torch::min(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage).mean();
  const auto entropy = -(log_probs.exp() * log_probs).sum(-1).mean();
  return policy + 0.5 * torch::mse_loss(outputs[1], labels.at("return")) - 0.01 * entropy;
}

struct PrintRewards {
  std::shared_ptr<double> mean_length;
  void on(const etude::EpochEnd& e) const { e.log("reward", *mean_length); }
  void on(const etude::Log& e) const {
    for (const std::string name : {"loss", "reward"})
      if (e.logs.contains(name))
        etude::print("epoch {:.0f} {} {:.6f}\n", e.state.epoch, name, e.logs.at(name));
  }
};

void train(const etude::TrainingArguments& args) {
  torch::manual_seed(static_cast<std::uint64_t>(args.seed));
  const Policy policy;
  const auto mean_length = std::make_shared<double>(0);
  // [on_policy]
  etude::Trainer<PrintRewards> trainer(
      {.model = policy,
       .args = args,
       .loss = loss,
       .train_dataset =
           etude::OnPolicyDataset(Collect{policy, mean_length}, {.examples = carts * steps, .passes = 4})},
      PrintRewards{mean_length});
  // [/on_policy]
  trainer.train({.resume_from_checkpoint = etude::if_any});  // run the same command again to resume
}

int main(int argc, char** argv) {
  const etude::TrainingArguments defaults{.output_dir = "cart_pole_output",
                                          .per_device_train_batch_size = 256,
                                          .num_train_epochs = 40,
                                          .learning_rate = 2.5e-3,
                                          .max_grad_norm = 0.5,
                                          .save_strategy = etude::SaveStrategy::epoch,
                                          .save_total_limit = 1,
                                          .logging_strategy = etude::IntervalStrategy::epoch};
  return etude::run(argc, argv, defaults, train);
}
