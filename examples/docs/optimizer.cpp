/// The optimizer that docs/optimizers.md shows.

#include "common.hpp"

// [rule]
struct AdaBeliefOptions {
  ETUDE_STRUCT(
      AdaBeliefOptions, (double, lr, "learning rate" | at_least(0), 1e-3),
      (double, beta1, "decay of the mean of the gradients", 0.9),
      (double, beta2, "decay of the squared distances from it", 0.999),
      (double, eps, "added to the denominator" | at_least(0), 1e-8),
      (double, weight_decay, "decoupled weight decay", 0.0));
};

/// AdaBelief (Zhuang et al. 2020): like Adam, but divides by how far gradients
/// are from their mean.
struct AdaBeliefRule {
  using Options = AdaBeliefOptions;

  static auto moments(const Options&) {
    return std::tuple(etude::Moment{"exp_avg"}, etude::Moment{"exp_avg_var"});
  }

  auto numbers(const etude::RuleStep& s) const {
    const auto n = static_cast<double>(s.step);
    return std::array{
        s.lr / (1 - std::pow(options.beta1, n)),
        std::sqrt(1 - std::pow(options.beta2, n)), 1 - s.lr * s.weight_decay};
  }

  template <class V>
  void update(
      V& value, const V& gradient, V& mean, V& variance,
      const auto& numbers) const {
    const auto& [rate, correction, keep] = numbers;
    mean = mean * options.beta1 + gradient * (1 - options.beta1);
    const V surprise = gradient - mean;
    variance =
        variance * options.beta2 + surprise * surprise * (1 - options.beta2);
    const V size = sqrt(variance) / correction + options.eps;
    value = value * keep - mean / size * rate;
  }

  Options options;
};
// [/rule]

// [trainer]
struct MyTrainer : etude::TrainerBase<MyTrainer> {
  using TrainerBase::TrainerBase;
  std::unique_ptr<etude::Optimizer> create_optimizer() {
    return std::make_unique<etude::RuleOptimizer<AdaBeliefRule>>(
        etude::parameter_groups(*model().module(), args().weight_decay),
        AdaBeliefOptions{
            .lr = args().learning_rate, .weight_decay = args().weight_decay});
  }
};
// [/trainer]

void trains() {
  auto args = small_arguments();
  args.max_steps = 400;
  args.per_device_train_batch_size = 32;
  MyTrainer trainer(
      {.model = Net(),
       .args = args,
       .loss = torch::nn::CrossEntropyLoss(),
       .train_dataset = points(4000),
       .eval_dataset = points(1000),
       .compute_metrics = etude::metrics::accuracy});
  const double before = trainer.evaluate().at("eval_accuracy");
  trainer.train();
  const double after = trainer.evaluate().at("eval_accuracy");
  check(before < 0.8, "the network is new");
  check(after > 0.95, "AdaBelief trains it");
}

/// In the first step, `mean` is a tenth of the gradient, the surprise nine
/// tenths, and both corrections cancel: each weight moves by lr / 0.9.
void first_step() {
  const Net net;
  auto args = small_arguments();
  args.max_steps = 1;
  args.lr_scheduler_type = etude::SchedulerType::constant;
  args.max_grad_norm = 0;
  const auto before = net->out->bias.detach().clone();
  MyTrainer trainer(
      {.model = net,
       .args = args,
       .loss = torch::nn::CrossEntropyLoss(),
       .train_dataset = points(100)});
  trainer.train();
  const auto moved = (net->out->bias - before).abs() / args.learning_rate;
  check(
      torch::allclose(moved, torch::full({2}, 1 / 0.9), 1e-4),
      "the first step has the size that the formula gives");
}

int main() { return run(trains, first_step); }
