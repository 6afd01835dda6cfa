// A simulation that learns as it runs: it throws balls, predicts where they land, and learns from the actual
// landings. Another thread watches the predictions, and ends the training once they are good.

#include <etude/etude.hpp>

#include <atomic>
#include <chrono>
#include <thread>

/// Where balls thrown at these speeds and angles land, with drag: [n, 2] to [n, 1].
torch::Tensor land(const torch::Tensor& throws) {
  auto velocity = throws.select(1, 0), angle = throws.select(1, 1);
  auto vx = velocity * angle.cos(), vy = velocity * angle.sin();
  auto x = torch::zeros_like(vx), y = torch::zeros_like(vx);
  for (int i = 0; i < 100; ++i) {
    const auto flies = (y >= 0).to(torch::kFloat) * 0.02;
    x += vx * flies, y += vy * flies;
    vx -= 0.1 * vx * flies, vy -= (1 + 0.1 * vy) * flies;
  }
  return x.unsqueeze(1);
}

int main() {
  torch::manual_seed(1);
  torch::nn::Sequential net(torch::nn::Linear(2, 32), torch::nn::Tanh(), torch::nn::Linear(32, 1));
  etude::TrainingArguments args{.output_dir = "stepped_training_output",
                                .learning_rate = 0.01,
                                .lr_scheduler_type = etude::SchedulerType::constant,
                                .save_steps = 500};
  etude::Trainer trainer({.model = net, .args = args, .loss = torch::nn::MSELoss()}, etude::quiet);
  trainer.begin({.resume_from_checkpoint = etude::if_any});

  std::atomic<float> error = 1;  // the mean distance between predictions and landings, over a few ticks
  std::jthread watcher([&](const std::stop_token& ends) {
    while (!ends.stop_requested() && error > 0.02F) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    trainer.cancel("the predictions are good");
  });

  for (etude::StepOutput step; !step.should_stop;) {
    const auto throws = torch::rand({64, 2});
    const auto landings = land(throws);
    {
      const torch::NoGradGuard no_grad;
      error = 0.98F * error + 0.02F * (net->forward(throws) - landings).abs().mean().item<float>();
    }
    step = trainer.step(throws, landings);
  }
  const auto output = trainer.finish();
  fmt::print("stopped after {} steps: {}\n", output.global_step, output.stop_reason);
}
