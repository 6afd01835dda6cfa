/// The parts that docs/trackers.md shows.

#include <etude/integrations/report_to.hpp>
#include <etude/integrations/tensorboard.hpp>

#include "common.hpp"

void by_type() {
  auto args = small_arguments();
  // [by_type]
  etude::Trainer<etude::TensorBoardCallback> trainer(
      {.model = Net(),
       .args = args,
       .loss = torch::nn::CrossEntropyLoss(),
       .train_dataset = points(400)},
      etude::TensorBoardCallback{.histogram_steps = 500});
  trainer.train();
  // [/by_type]
  check(
      std::filesystem::exists("docs_output/runs"),
      "TensorBoard's files are written");
}

void by_name() {
  auto args = small_arguments();
  args.report_to = {"tensorboard"};
  // [by_name]
  etude::Trainer<etude::RuntimeCallbacks> trainer(
      {.model = Net(),
       .args = args,
       .loss = torch::nn::CrossEntropyLoss(),
       .train_dataset = points(400)});
  etude::add_trackers(trainer);  // for example --report_to tensorboard mlflow
  // [/by_name]
  trainer.train();
  check(
      trainer.describe().find("TensorBoardCallback") != std::string::npos,
      "the tracker is there");
}

void samples() {
  auto args = small_arguments();
  // [samples]
  auto draw = [](const etude::Evaluate& e) {
    const auto scores =
        torch::softmax(e.model.as<Net>().forward(torch::rand({64, 2})), 1);
    return std::vector{
        etude::image_sample("scores", scores.select(1, 0).reshape({8, 8})),
        etude::text_sample(
            "note", fmt::format("after {} steps", e.state.global_step))};
  };
  etude::Trainer<etude::EvaluationSamplesCallback, etude::TensorBoardCallback>
      trainer(
          {.model = Net(),
           .args = args,
           .loss = torch::nn::CrossEntropyLoss(),
           .train_dataset = points(400),
           .eval_dataset = points(100)},
          etude::EvaluationSamplesCallback{.make = draw});
  // [/samples]
  trainer.train();
  check(
      trainer.evaluate().contains("eval_loss"),
      "samples disturb no evaluation");
}

int main() { return run(by_type, by_name, samples); }
