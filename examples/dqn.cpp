/// Deep Q-learning: an agent balances a pole, learns from a buffer of what it did, and follows a slow copy of
/// itself. Checkpoints keep the buffer and the pole. `loops/dqn.cpp` is the loop that it replaces, with the
/// same losses.

#include <etude/etude.hpp>

#include "data/dqn.hpp"

BOOST_HANA_ADAPT_STRUCT(CartPole, state, steps);
BOOST_HANA_ADAPT_STRUCT(Replay, states, next, actions, rewards, ends, added);

void train(const etude::TrainingArguments& args) {
  QNet online = nullptr;
  Replay replay;
  CartPole pole;
  std::int64_t tick = 0;
  etude::Trainer trainer(
      {.model_init = [&]() -> etude::Modules {
         return {{"online", online = QNet()},
                 {"target", etude::target_of("online", QNet(), {.decay = 1 - tau})}};
       },
       .args = args,
       .compute_loss =
           [&](QNet&, QNet& target, const etude::Batch& batch) {
             const torch::Tensor& rows = batch.inputs[0];
             const auto states = replay.states.index_select(0, rows),
                        next = replay.next.index_select(0, rows);
             const auto best = online(next).argmax(1, true);
             const auto wanted =
                 replay.rewards.index_select(0, rows) +
                 discount * (1 - replay.ends.index_select(0, rows)) * target(next).gather(1, best).squeeze(1);
             const auto q =
                 online(states).gather(1, replay.actions.index_select(0, rows).unsqueeze(1)).squeeze(1);
             return torch::smooth_l1_loss(q, wanted);
           },
       .program_state = {{"replay", replay}, {"pole", pole}, {"tick", tick}}},
      etude::on<etude::StepEnd>().every(evaluate_every).call([&](const etude::StepEnd& e) {
        e.log("episode", play(online));
      }));
  trainer.begin({.resume_from_checkpoint = etude::if_any});
  if (tick == 0) pole.reset();
  for (bool done = false; !done;) {
    const auto state = pole.state;
    const auto action = act(online, state, epsilon(tick++));
    const bool fell = pole.step(action);
    replay.add(state, action, 1, pole.state, fell);
    if (fell || pole.over()) pole.reset();
    if (replay.added >= warmup)
      done = trainer.step(torch::randint(replay.size(), {batch_size}, torch::kLong), {}).should_stop;
  }
  trainer.finish();
}

int main(int argc, char** argv) {
  auto args = etude::plain_loop();
  args.output_dir = "dqn_output";
  args.max_steps = updates;
  args.learning_rate = learning_rate;
  args.max_grad_value = clip_value;
  args.save_strategy = etude::SaveStrategy::steps;
  args.save_steps = args.logging_steps = evaluate_every;
  args.log_lines = {"step {step} loss {loss:.9f} episode {episode:.1f}"};
  return etude::run(argc, argv, args, train);
}
