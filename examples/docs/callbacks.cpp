/// The parts that docs/writing-callbacks.md shows.

#include <etude/testing/laws.hpp>

#include "common.hpp"

// [reads_and_writes]
struct HalveLoss {
  // Changes the loss.
  void on(etude::BackwardBegin& e) { e.loss = 0.5 * e.loss; }
};
struct WatchLoss {
  // Reads the loss, after HalveLoss has changed it.
  void on(const etude::BackwardBegin& e) { e.log("scaled_loss", e.loss); }
};
// [/reads_and_writes]

void reads_and_writes() {
  const auto args = small_arguments();
  // [order]
  etude::Trainer<HalveLoss, WatchLoss> trainer(
      {.model = Net(),
       .args = args,
       .loss = torch::nn::CrossEntropyLoss(),
       .train_dataset = points(400)});
  fmt::print("{}", trainer.describe());
  // [/order]
  trainer.train();
  const auto text = trainer.describe();
  check(
      text.find("HalveLoss") < text.find("WatchLoss"),
      "callbacks run in the order of the list");
}

// [derived]
struct LogFirstSteps : etude::DefaultFlowCallback {
  // Keeps the base's handlers, which the one below would hide.
  using etude::DefaultFlowCallback::on;
  void on(const etude::StepEnd& e) {
    etude::DefaultFlowCallback::on(e);
    if (e.state.global_step <= 5) e.control.should_log = true;
  }
};
// [/derived]

void derived() {
  const auto args = small_arguments();
  // [defaults]
  etude::Trainer<LogFirstSteps, etude::Without<etude::PrinterCallback>> trainer(
      {.model = Net(),
       .args = args,
       .loss = torch::nn::CrossEntropyLoss(),
       .train_dataset = points(400)});
  // [/defaults]
  trainer.train();
  check(
      trainer.state().log_history.size() == 6,
      "the first five steps and the end are logged");
}

// [control]
struct StopWhenGood {
  void on(const etude::Evaluate& e) {
    if (e.metrics.at("eval_accuracy") > 0.6)
      e.control.request_stop("the accuracy is good enough");
  }
  void on(const etude::StepEnd& e) {
    if (e.state.global_step % 10 == 0) e.control.should_evaluate = true;
  }
};
// [/control]

void control() {
  auto args = small_arguments();
  args.max_steps = 2000;
  etude::Trainer<StopWhenGood> trainer(
      {.model = Net(),
       .args = args,
       .loss = torch::nn::CrossEntropyLoss(),
       .train_dataset = points(400),
       .eval_dataset = points(200),
       .compute_metrics = etude::metrics::accuracy});
  const auto result = trainer.train();
  check(
      result.stop_reason == "the accuracy is good enough",
      "a callback stops a training");
}

// [log]
struct LogWeights {
  void on(const etude::StepEnd& e) {
    const torch::NoGradGuard no_grad;
    const auto norm = e.model.as<Net>().out->weight.norm();
    e.log("weight_norm", norm);  // the tensor isn't read before the log
  }
};
// [/log]

// [before]
struct Report {
  // Any other order is a compile error.
  using runs_after = etude::callbacks<LogWeights>;
  // Also after callbacks that are added at run time.
  static constexpr bool runs_last = true;
  void on(const etude::Log& e) { last = e.logs; }
  etude::Metrics last;
};
// [/before]

void logging() {
  auto args = small_arguments();
  args.logging_steps = 10;
  etude::Trainer<LogWeights, Report> trainer(
      {.model = Net(),
       .args = args,
       .loss = torch::nn::CrossEntropyLoss(),
       .train_dataset = points(400)});
  trainer.train();
  check(
      trainer.state().log_history.front().contains("weight_norm"),
      "logged values are in the history");
  check(
      !trainer.callback<Report>().last.empty(),
      "the recorder has the last log");
}

// [state]
struct CountLabels {
  ETUDE_STRUCT(
      CountLabels, (std::int64_t, every, "steps between two prints", 100));
  struct State {
    ETUDE_STRUCT(State, (std::int64_t, ones, "labels of class 1 so far", 0));
  };
  State state = {};  // saved in checkpoints

  void on(const etude::TrainBegin& e) {
    if (!e.is_resumed) state = {};  // another train() starts at 0
  }
  void on(const etude::BatchFetched& e) {
    state.ones += e.batch.labels[0].sum().item<std::int64_t>();
  }
  void on(const etude::StepEnd& e) {
    if (e.state.global_step % every == 0) etude::print("{} ones\n", state.ones);
  }
};
// [/state]

void run_time() {
  const auto args = small_arguments();
  // [run_time]
  etude::Trainer<etude::RuntimeCallbacks> trainer(
      {.model = Net(),
       .args = args,
       .loss = torch::nn::CrossEntropyLoss(),
       .train_dataset = points(400)});
  auto handle = trainer.add_callback(LogWeights{});
  trainer.add_callback(CountLabels{.every = 20});
  trainer.train();
  trainer.remove_callback(handle);
  CountLabels counted = trainer.pop_callback<CountLabels>();
  fmt::print("{} ones in all\n", counted.state.ones);
  // [/run_time]
  check(
      counted.state.ones > 0,
      "a callback that was added at run time is called");
}

void progress_bar() {
  const std::vector<std::string> files(100);
  const auto read = [](const std::string&) {};
  // [bar]
  etude::ProgressBar bar(
      stderr, "files", static_cast<std::int64_t>(files.size()));
  for (std::size_t i = 0; i < files.size(); ++i) {
    read(files[i]);
    bar.update(static_cast<std::int64_t>(i) + 1);  // draws ten times a second
  }
  bar.close();
  // [/bar]
}

void laws() {
  // [laws]
  etude::laws::check<CountLabels>();  // throws LawBroken, with a list
  // [/laws]
}

int main() {
  return run(
      reads_and_writes, derived, control, logging, run_time, progress_bar,
      laws);
}
