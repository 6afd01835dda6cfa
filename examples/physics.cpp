/// A network that solves a differential equation, with Adam and then L-BFGS as two phases of one training.
/// `loops/physics.cpp` is the loop that it replaces, with the same losses.

#include <etude/etude.hpp>

#include "data/physics.hpp"

etude::LossOutput loss(torch::nn::Sequential net, const etude::Batch& batch) {
  return {.loss = net->is_training() ? residual(net, batch.inputs) : error(net, batch.inputs)};
}

int main(int argc, char** argv) {
  auto args = etude::plain_loop();
  args.output_dir = "physics_output";
  args.per_device_train_batch_size = args.per_device_eval_batch_size = points;
  args.eval_strategy = args.logging_strategy = etude::IntervalStrategy::steps;
  args.save_strategy = etude::SaveStrategy::steps;
  args.logging_steps = args.save_steps = report_steps;
  args.log_lines = {"step {step} loss {loss:.9f}", "step {step} error {eval_loss:.9f}"};
  return etude::run(argc, argv, args, [](const etude::TrainingArguments& given) {
    using enum etude::OptimizerNames;
    // [phases]
    etude::Trainer<> trainer(
        {.model_init = network,
         .args = given,
         .compute_loss = loss,
         .train_dataset = inner_points(),
         .eval_dataset = etude::Dataset(inner_points()),
         .phases = {{"adam",
                     {.max_steps = adam_steps,
                      .learning_rate = adam_rate,
                      .optim = adam,
                      .optim_args = "fused=false"}},
                    {"lbfgs", {.max_steps = lbfgs_steps, .learning_rate = lbfgs_rate, .optim = lbfgs}}}});
    // [/phases]
    trainer.train({.resume_from_checkpoint = etude::if_any});
  });
}
