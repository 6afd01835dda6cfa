// The handwritten loop that examples/dqn.cpp replaces.

#include "../data/dqn.hpp"

#include <cstdio>

int main() {
  torch::manual_seed(42);
  QNet online, target;
  copy_weights(online, target, 1);
  torch::optim::Adam optimizer(online->parameters(), torch::optim::AdamOptions(learning_rate));

  Replay replay;
  CartPole pole;
  pole.reset();
  double loss_sum = 0;
  for (std::int64_t step = 0, tick = 0; step < updates; ++tick) {
    const auto state = pole.state;
    const auto action = act(online, state, epsilon(tick));
    const bool fell = pole.step(action);
    replay.add(state, action, 1, pole.state, fell);
    if (fell || pole.over()) pole.reset();
    if (replay.added < warmup) continue;

    const auto rows = torch::randint(replay.size(), {batch_size}, torch::kLong);
    const auto states = replay.states.index_select(0, rows), next = replay.next.index_select(0, rows);
    torch::Tensor wanted;
    {
      const torch::NoGradGuard no_grad;
      const auto best = online(next).argmax(1, true);
      wanted = replay.rewards.index_select(0, rows) +
               discount * (1 - replay.ends.index_select(0, rows)) * target(next).gather(1, best).squeeze(1);
    }
    const auto q = online(states).gather(1, replay.actions.index_select(0, rows).unsqueeze(1)).squeeze(1);
    const auto loss = torch::smooth_l1_loss(q, wanted);
    optimizer.zero_grad();
    loss.backward();
    torch::nn::utils::clip_grad_value_(online->parameters(), clip_value);
    optimizer.step();
    copy_weights(online, target, tau);
    ++step;
    loss_sum += loss.item<double>();

    if (step % evaluate_every == 0) {
      std::printf("step %ld loss %.9f episode %.1f\n", static_cast<long>(step),
                  loss_sum / static_cast<double>(evaluate_every), play(online));
      loss_sum = 0;
    }
  }
  torch::save(online, "dqn.pt");
}
