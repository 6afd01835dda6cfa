/// The parts that docs/own-trainer.md, docs/several-optimizers.md,
/// docs/inside-a-program.md, docs/time-and-numbers.md,
/// docs/precision-and-memory.md, docs/report.md and docs/schedules.md show.

#include <etude/optim/torch_schedules.hpp>

#include "common.hpp"

struct TwoHeadsNetImpl : torch::nn::Module {
  etude::Tensors forward(torch::Tensor x) {
    const auto y = torch::relu(hidden(x));
    return {kind(y), size(y)};
  }
  torch::nn::Linear hidden =
      register_module("hidden", torch::nn::Linear(2, 16));
  torch::nn::Linear kind = register_module("kind", torch::nn::Linear(16, 2));
  torch::nn::Linear size = register_module("size", torch::nn::Linear(16, 1));
};
TORCH_MODULE(TwoHeadsNet);

// [own_loss]
struct TwoHeads : etude::TrainerBase<TwoHeads> {
  using TrainerBase::TrainerBase;
  etude::LossOutput compute_loss(
      const etude::Batch& batch, std::optional<double> /*num_items*/) {
    const auto outputs = model().as<TwoHeadsNet>().forward(batch.inputs[0]);
    const auto kind = torch::cross_entropy_loss(outputs[0], batch.labels[0]);
    const auto size = torch::mse_loss(outputs[1], batch.labels[1]);
    log("size_loss", size.detach());
    return {
        .loss = kind + 0.1 * size,
        .outputs = outputs};  // metrics and predict() get the outputs
  }
};
// [/own_loss]

void own_loss() {
  const auto x = torch::rand({400, 2});
  const auto kinds = x.sum(1).gt(1).to(torch::kLong), sizes = x.sum(1, true);
  // [two_labels]
  TwoHeads trainer(
      {.model = TwoHeadsNet(),
       .args = small_arguments(),
       .train_dataset = {x, {kinds, sizes}}});
  // [/two_labels]
  trainer.train();
  check(
      trainer.predict(etude::Dataset(x)).predictions.size() == 2,
      "predictions are the outputs");
}

void loss_in_parts() {
  const auto x = torch::rand({400, 2});
  const auto kinds = x.sum(1).gt(1).to(torch::kLong), sizes = x.sum(1, true);
  auto args = small_arguments();
  // [loss_in_parts]
  etude::Trainer<> trainer(
      {.model = TwoHeadsNet(),
       .args = args,
       .compute_loss = [](TwoHeadsNetImpl& model,
                          const etude::Batch& batch) -> etude::LossOutput {
         const auto outputs = model.forward(batch.inputs[0]);
         const auto kind =
             torch::cross_entropy_loss(outputs[0], batch.labels[0]);
         const auto size = torch::mse_loss(outputs[1], batch.labels[1]);
         return {
             .loss = kind + 0.1 * size,
             .outputs = outputs,
             .logs = {{"kind", kind}, {"size", size}}};
       },
       .train_dataset = {x, {kinds, sizes}},
       .eval_dataset = etude::Dataset(x, {kinds, sizes})});
  // [/loss_in_parts]
  trainer.train();
  check(
      trainer.evaluate().contains("eval_size"),
      "an evaluation has the parts of the loss");
}

void several_optimizers() {
  auto args = small_arguments();
  // [optimizers]
  etude::Trainer<> trainer(
      {.model = Net(),
       .args = args,
       .loss = torch::nn::CrossEntropyLoss(),
       .train_dataset = points(400),
       .optimizers = {
           {"hidden", {.learning_rate = 2e-4}},
           {"rest",
            {.parameters = {"out"},
             .learning_rate = 1e-3,
             .max_grad_norm = 1}}}});
  // [/optimizers]
  check(trainer.train().global_step == 40, "two optimizers share a step");
}

void phases() {
  auto args = small_arguments();
  args.max_steps = -1;
  // [phases]
  etude::Trainer<> trainer(
      {.model = Net(),
       .args = args,
       .loss = torch::nn::CrossEntropyLoss(),
       .train_dataset = points(400),
       .phases = {
           {"head",
            {.num_train_epochs = 1,
             .learning_rate = 1e-2,
             .parameter_groups =
                 {{"*", {.frozen = true}}, {"out", {.frozen = false}}}}},
           {"whole", {.num_train_epochs = 2, .learning_rate = 1e-4}}}});
  // [/phases]
  check(trainer.train().global_step == 150, "two phases are one training");
}

void schedule() {
  auto args = small_arguments();
  // [schedule]
  etude::Trainer<> trainer(
      {.model = Net(),
       .args = args,
       .loss = torch::nn::CrossEntropyLoss(),
       .train_dataset = points(400),
       .lr_scheduler = [](std::int64_t step) {
         return step < 10 ? 1.0 : 0.1;
       }});
  // [/schedule]
  check(
      trainer.train().global_step == 40,
      "a schedule is a function of the step");
}

void step_lr() {
  auto args = small_arguments();
  // [step_lr]
  args.lr_scheduler_type = etude::SchedulerType::step_lr;
  args.lr_scheduler_kwargs = {{"step_size", 1000}, {"gamma", 0.5}};
  // [/step_lr]
  etude::Trainer<> by_steps(
      {.model = Net(),
       .args = args,
       .loss = torch::nn::CrossEntropyLoss(),
       .train_dataset = points(400)});
  by_steps.train();
  check(
      by_steps.get_learning_rates()[0] == args.learning_rate,
      "the rate changes after 1000 steps");
  // [step_lr_of_epochs]
  etude::Trainer<> trainer(
      {.model = Net(),
       .args = args,
       .loss = torch::nn::CrossEntropyLoss(),
       .train_dataset = points(400),
       .lr_scheduler =
           [](const etude::TrainerRunConfig& run) -> etude::Schedule {
         const auto epoch = run.num_update_steps_per_epoch;
         return etude::StepLROptions{.step_size = 30 * epoch}.schedule({});
       }});
  // [/step_lr_of_epochs]
  trainer.train();
  check(
      trainer.get_learning_rates()[0] == args.learning_rate,
      "the rate changes after 30 epochs");
}

void sequential_lr() {
  auto args = small_arguments();
  // [sequential_lr]
  args.lr_scheduler_type = etude::SchedulerType::sequential_lr;
  args.lr_scheduler_kwargs = nlohmann::json::parse(R"({
    "schedulers": [{"type": "linear_lr", "total_iters": 10},
                   {"type": "cosine"}],
    "milestones": [10]
  })");
  // [/sequential_lr]
  etude::Trainer<> trainer(
      {.model = Net(),
       .args = args,
       .loss = torch::nn::CrossEntropyLoss(),
       .train_dataset = points(400)});
  trainer.train();
  check(trainer.get_learning_rates()[0] == 0, "the cosine ends at zero");
}

void own_loop() {
  auto args = small_arguments();
  args.lr_scheduler_type = etude::SchedulerType::constant;
  const auto advance = [] {
    return std::pair(torch::rand({8, 2}), torch::rand({8, 2}));
  };
  int rounds = 30;
  // [loop]
  etude::Trainer trainer(
      {.model = Net(), .args = args, .loss = torch::nn::MSELoss()},
      etude::quiet);
  // Optional: otherwise the first step begins.
  trainer.begin({.resume_from_checkpoint = etude::if_any});
  while (rounds-- > 0) {
    const auto [inputs, labels] = advance();  // the program's work
    // Or step(etude::Batch{...}).
    const auto step = trainer.step(inputs, labels);
    if (step.should_stop) break;
  }
  etude::TrainOutput output = trainer.finish();
  // [/loop]
  check(output.global_step == 30, "each call of step is an update");
}

void own_losses() {
  auto args = small_arguments();
  args.lr_scheduler_type = etude::SchedulerType::constant;
  // [own_losses]
  auto generator = torch::nn::Linear(2, 2), critic = torch::nn::Linear(2, 1);
  etude::Trainer trainer(
      {.model = etude::Modules{{"generator", generator}, {"critic", critic}},
       .args = args,
       .optimizers = {{"generator", {}}, {"critic", {}}}});
  trainer.begin({.resume_from_checkpoint = etude::if_any});
  while (trainer.state().global_step < 30) {
    const auto drawn = generator(torch::rand({8, 2}));
    const auto difference =
        critic(drawn.detach()) - critic(torch::rand({8, 2}));
    // Gradients for the critic's parameters, and its step.
    trainer.backward(difference.mean(), "critic");
    trainer.update("critic");

    const auto loss = -critic(drawn).mean();
    trainer.log("generator_loss", loss.detach());
    trainer.backward(loss);
    // Makes the other optimizer's step, and whatever follows a step.
    if (trainer.update().should_stop) break;
  }
  etude::TrainOutput output = trainer.finish();
  // [/own_losses]
  check(
      output.global_step == 30,
      "each call of update() without a name is a step");
}

// [resume]
struct RunArguments {
  ETUDE_STRUCT(
      RunArguments,
      (std::string, resume_from_checkpoint, "folder of a checkpoint", ""));
};

std::int64_t resumable(int argc, const char* const* argv) {
  const auto [args, run] =
      etude::parse_arguments<etude::TrainingArguments, RunArguments>(
          argc, argv);
  etude::Trainer<> trainer(
      {.model = Net(),
       .args = args,
       .loss = torch::nn::CrossEntropyLoss(),
       .train_dataset = points(400)});
  // Without the flag, the training begins from scratch.
  return trainer.train({.resume_from_checkpoint = run.resume_from_checkpoint})
      .global_step;
}
// [/resume]

void resume() {
  const char* argv[] = {
      "program", "--max_steps", "40", "--save_strategy", "no"};
  check(resumable(5, argv) == 40, "the flag may be left out");
}

void time_by_activity() {
  etude::Trainer<> trainer(
      {.model = Net(),
       .args = small_arguments(),
       .loss = torch::nn::CrossEntropyLoss(),
       .train_dataset = points(400)});
  // [time_by_activity]
  etude::TrainOutput result = trainer.train();
  double waiting = result.time_by_activity.share(
      etude::TimedActivity::data);  // 0.31: of the whole time
  fmt::print("{}", result.time_by_activity.table());
  // [/time_by_activity]
  check(waiting >= 0 && waiting <= 1, "a share is between 0 and 1");
}

void memory() {
  etude::Trainer<> trainer(
      {.model = Net(),
       .args = small_arguments(),
       .loss = torch::nn::CrossEntropyLoss(),
       .train_dataset = points(400)});
  // [memory]
  fmt::print("{}", etude::estimate_memory(trainer, {.world_size = 8}).table());
  // [/memory]
  // [tuning]
  // Restores everything, as estimate_memory and find_batch_size do.
  etude::find_learning_rate(trainer);
  // [/tuning]
  check(trainer.state().global_step == 0, "an estimate trains nothing");
}

void reports() {
  const auto args_of = [](const std::string& folder, double rate) {
    auto args = small_arguments();
    args.output_dir = folder;
    args.learning_rate = rate;
    return args;
  };
  const auto train = [&](const etude::TrainingArguments& args) {
    // [report]
    etude::Trainer<etude::ReportCallback> trainer(
        {.model = Net(),
         .args = args,
         .loss = torch::nn::CrossEntropyLoss(),
         .train_dataset = points(400)});
    // [/report]
    // [range_test]
    const auto curve = etude::find_learning_rate(trainer);
    trainer.callback<etude::ReportCallback>().show(curve);  // before train()
    // [/range_test]
    trainer.train();
  };
  train(args_of("runs/a", 1e-2));
  train(args_of("runs/b", 1e-3));
  // [comparison]
  etude::write_comparison("comparison.html", {"runs/a", "runs/b/report.html"});
  // [/comparison]
  check(
      std::filesystem::file_size("comparison.html") > 10'000,
      "two runs are on a page");
}

int main() {
  return run(
      own_loss, loss_in_parts, several_optimizers, phases, schedule, step_lr,
      sequential_lr, own_loop, own_losses, resume, time_by_activity, memory,
      reports);
}
