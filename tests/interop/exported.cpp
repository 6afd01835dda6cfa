/// Trains a model that Python exported, on data in order: exported MODEL.pt2 DATA.safetensors LOSS
/// ARGUMENT... LOSS is own (the model's), compiled (the same, from the file's compiled graph) or
/// cross_entropy. The first process prints each loss and the results as JSON, one per line.

#include <csignal>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include <ATen/core/op_registration/op_registration.h>
#include <torch/library.h>

#include "etude/etude.hpp"
#include "etude/formats/stored_tensors.hpp"
#include "etude/model/load_exported.hpp"

// The custom operator of one of the models.
TORCH_LIBRARY(etude_test, library) {
  library.def("scaled_tanh(Tensor x, float scale) -> Tensor",
              [](const torch::Tensor& x, double scale) { return x.mul(scale).tanh(); });
}

namespace {

struct Report {
  void on(const etude::BackwardEnd& e) { loss += e.loss; }
  void on(const etude::StepEnd& e) {
    if (e.state.is_world_process_zero)
      fmt::print("{}\n", nlohmann::json{{"step", e.state.global_step}, {"loss", loss.item<double>()}}.dump());
    loss = torch::zeros({}, torch::kDouble);
    const char* kill_at = std::getenv("ETUDE_KILL_AT");
    if (kill_at && e.state.global_step == std::atoi(kill_at)) std::raise(SIGKILL);
  }
  torch::Tensor loss = torch::zeros({}, torch::kDouble);
};

}  // namespace

int main(int argc, char** argv) try {
  const std::string model = argv[1], data = argv[2], loss = argv[3];
  argv[3] = argv[0];
  const auto args = etude::parse_arguments<etude::TrainingArguments>(argc - 3, argv + 3);
  etude::TrainerOptions options{
      .model = etude::load_exported(model, {.run_compiled_code = loss == "compiled"}), .args = args};
  if (loss == "cross_entropy") options.loss = torch::nn::CrossEntropyLoss();
  options.train_dataset = etude::stored_tensors(data);
  options.eval_dataset = etude::stored_tensors(data);
  etude::Trainer<etude::DistributedDataParallel, Report> trainer(std::move(options));
  if (args.max_steps > 0) trainer.train({.resume_from_checkpoint = etude::if_any});
  const auto metrics = trainer.evaluate();
  if (trainer.state().is_world_process_zero) fmt::print("{}\n", nlohmann::json(metrics).dump());
  trainer.save_model(args.output_dir + "/final");
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
