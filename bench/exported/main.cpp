// Trains an exported model as run.py's Python contestants do: exported_bench MODEL.pt2 DATA.safetensors LOSS
// BATCH WARMUP STEPS STARTED FOLDER [--ARGUMENT VALUE...], where LOSS is own or cross_entropy, STARTED is the
// start time of the process in seconds since 1970, FOLDER receives the trained model unless it is "-", and
// the rest are training arguments. The file's native code is loaded only with --compiled_graph required.
// Prints one line of JSON.

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "etude/etude.hpp"
#include "etude/formats/stored_tensors.hpp"
#include "etude/libtorch/memory_usage.hpp"
#include "etude/model/load_exported.hpp"

namespace {

struct Clock {
  std::int64_t warmup = 0, steps = 0, calls = 0;
  double first = 0, begin = 0, end = 0;  ///< `first` is the end of the first step.

  void on(const etude::StepBegin&) {
    if (calls == 1) first = now();
    if (calls == warmup) begin = now();
    if (calls == warmup + steps) end = now();
    ++calls;
  }
  static double now() {
    if (torch::cuda::is_available()) torch::cuda::synchronize();
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  }
};

struct Losses {
  std::vector<torch::Tensor> losses;
  void on(const etude::BackwardEnd& e) { losses.push_back(e.loss); }
};

}  // namespace

int main(int argc, char** argv) {
  const std::string loss = argv[3], folder = argv[8];
  const std::int64_t batch = std::stoll(argv[4]), warmup = std::stoll(argv[5]), steps = std::stoll(argv[6]);
  auto args = etude::parse_arguments(
      {argv + 9, argv + argc},
      etude::TrainingArguments{.output_dir = "exported_bench_output",
                               .per_device_train_batch_size = batch,
                               .max_steps = warmup + steps + 1,
                               .learning_rate = 1e-4,
                               .weight_decay = 0.01,
                               .lr_scheduler_type = etude::SchedulerType::constant,
                               .save_strategy = etude::SaveStrategy::no,
                               .disable_tqdm = true,
                               .train_sampling_strategy = etude::SamplingStrategy::sequential});
  const bool compiled = args.compiled_graph == etude::CompiledGraphMode::required;
  etude::TrainerOptions options{.model = etude::load_exported(argv[1], {.run_compiled_code = compiled}),
                                .args = std::move(args),
                                .train_dataset = etude::stored_tensors(argv[2])};
  if (loss == "cross_entropy") options.loss = torch::nn::CrossEntropyLoss();
  etude::Trainer<Clock, Losses, etude::NoDefaultCallbacks> trainer(
      std::move(options), Clock{.warmup = warmup, .steps = steps}, Losses{});
  trainer.train();
  if (folder != "-") trainer.save_model(folder);
  const auto losses =
      torch::stack(trainer.callback<Losses>().losses).to(torch::kCPU, torch::kDouble).contiguous();
  const auto& clock = trainer.callback<Clock>();
  const auto on_device = etude::device_memory(torch::Device(torch::kCUDA, 0));
  nlohmann::json result{
      {"seconds", clock.end - clock.begin},
      {"startup", clock.first - std::stod(argv[7])},
      {"loss", losses[-1].item<double>()},
      {"losses", std::vector<double>(losses.data_ptr<double>(), losses.data_ptr<double>() + losses.numel())},
      {"peak_memory", etude::peak_resident_memory()}};
  if (on_device) result["peak_device_memory"] = on_device->peak_allocated;
  fmt::print("{}\n", result.dump());
}
