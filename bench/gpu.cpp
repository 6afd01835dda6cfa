/// Measures steps per second on a GPU for a handwritten loop, which reads its loss at each step as most loops
/// do, and for Etude, with one more argument in each row: `gpu_bench [--json FILE] [ROUNDS]`.

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <torch/cuda.h>
#include <torch/torch.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "etude/etude.hpp"
#include "gpt2/gpt2.hpp"
#include "measure.hpp"

// A CPU build of LibTorch lacks the first header, and a machine without the toolkit the second.
#if __has_include(<c10/cuda/impl/cuda_cmake_macros.h>) && __has_include(<cuda_runtime_api.h>)
#include "etude/libtorch/cuda_graph.hpp"
#define BENCH_HAS_CUDA_GRAPH 1
#else
#define BENCH_HAS_CUDA_GRAPH 0
#endif

namespace {

struct Workload {
  std::string name;
  gpt2::Config config;
  std::int64_t batch_size, steps;
};

/// The first network's time is mostly kernel launches, the last one's mostly arithmetic.
std::vector<Workload> workloads() {
  const auto config = [](std::int64_t width, std::int64_t layers, std::int64_t context) {
    return gpt2::Config{.vocab_size = 8192,
                        .n_positions = context,
                        .n_embd = width,
                        .n_layer = layers,
                        .n_head = width / 64,
                        .resid_pdrop = 0,
                        .embd_pdrop = 0,
                        .attn_pdrop = 0};
  };
  return {{"small GPT-2 (4 layers of 128)", config(128, 4, 64), 8, 300},
          {"medium GPT-2 (8 layers of 512)", config(512, 8, 256), 16, 100},
          {"GPT-2 (12 layers of 768)", config(768, 12, 1024), 8, 20}};
}

constexpr std::int64_t warmup = 5;
constexpr double learning_rate = 1e-3, weight_decay = 0.01;

torch::Tensor loss_of(const torch::Tensor& logits, const torch::Tensor& targets) {
  return torch::cross_entropy_loss(logits.flatten(0, 1), targets.flatten());
}

std::pair<torch::Tensor, torch::Tensor> data(const Workload& workload) {
  torch::manual_seed(1);
  const auto ids = torch::randint(workload.config.vocab_size, {64, workload.config.n_positions + 1});
  return {ids.slice(1, 0, -1).contiguous(), ids.slice(1, 1).contiguous()};
}

/// Measures the time between two steps of any loop.
struct Stopwatch {
  std::chrono::steady_clock::time_point begin = {}, end = {};
  void step(std::int64_t done, std::int64_t all) {
    if (done != warmup && done != all) return;
    torch::cuda::synchronize();
    (done == all ? end : begin) = std::chrono::steady_clock::now();
  }
  double seconds() const { return std::chrono::duration<double>(end - begin).count(); }
};

enum class Reading { each_step, none };

double by_hand(const Workload& workload, Reading reading, bool bf16 = false) {
  torch::manual_seed(2);
  gpt2::GPT2 model(workload.config);
  model->to(torch::kCUDA);
  model->train();
  const auto [inputs, targets] = data(workload);
  torch::optim::AdamW optimizer(model->parameters(),
                                torch::optim::AdamWOptions(learning_rate).weight_decay(weight_decay));
  Stopwatch watch;
  const auto all = workload.steps + warmup;
  [[maybe_unused]] double total = 0;
  for (std::int64_t step = 0; step < all; ++step) {
    const auto from = step * workload.batch_size % inputs.size(0);
    const auto x = inputs.narrow(0, from, workload.batch_size).to(torch::kCUDA);
    const auto y = targets.narrow(0, from, workload.batch_size).to(torch::kCUDA);
    optimizer.zero_grad();
    at::autocast::set_autocast_enabled(torch::kCUDA, bf16);
    at::autocast::set_autocast_dtype(torch::kCUDA, torch::kBFloat16);
    const auto loss = loss_of(model->forward(x), y);
    at::autocast::set_autocast_enabled(torch::kCUDA, false);
    at::autocast::clear_cache();
    loss.backward();
    torch::nn::utils::clip_grad_norm_(model->parameters(), 1);
    optimizer.step();
    if (reading == Reading::each_step) total += loss.item<double>();
    watch.step(step + 1, all);
  }
  return watch.seconds();
}

struct Timer {
  Stopwatch watch = {};
  void on(const etude::StepEnd& e) { watch.step(e.state.global_step, e.state.max_steps); }
};

double with_etude(const Workload& workload, etude::TrainingArguments args) {
  torch::manual_seed(2);
  const auto [inputs, targets] = data(workload);
  args.tf32 = args.tf32.value_or(false);  // a setting of the whole program, so each training sets it
  args.output_dir = "gpu_bench_output";
  args.per_device_train_batch_size = workload.batch_size;
  args.max_steps = workload.steps + warmup;
  args.learning_rate = learning_rate;
  args.weight_decay = weight_decay;
  args.lr_scheduler_type = etude::SchedulerType::constant;
  args.save_strategy = etude::SaveStrategy::no;
  args.logging_strategy = etude::IntervalStrategy::no;
  args.disable_tqdm = true;
  args.log_level = etude::LogLevel::error;
  etude::Trainer<etude::Without<etude::PrinterCallback>, Timer> trainer(
      {.model = gpt2::GPT2(workload.config),
       .args = std::move(args),
       .compute_loss =
           [](etude::Model& model, const etude::Batch& batch, std::optional<double>) {
             const auto outputs = model.forward(batch);
             return etude::LossOutput{loss_of(outputs.single(), batch.labels.single()), outputs};
           },
       .train_dataset = {inputs, targets}});
  trainer.train();
  at::globalContext().setAllowTF32CuBLAS(false);
  return trainer.callback<Timer>().watch.seconds();
}

}  // namespace

int main(int argc, char** argv) {
  if (!torch::cuda::is_available()) {
    fmt::print("There is no GPU.\n");
    return 0;
  }
  bench::Rounds rounds(argc, argv, 5);
  for (const auto& workload : workloads()) {
    std::vector<bench::Contestant> all{
        {"a loop by hand", [&] { return by_hand(workload, Reading::each_step); }},
        {"the loop without reading", [&] { return by_hand(workload, Reading::none); }},
        {"Etude", [&] { return with_etude(workload, {}); }},
        {"Etude, on_non_finite",
         [&] { return with_etude(workload, {.on_non_finite = etude::OnNonFinite::skip}); }},
        {"Etude, tf32", [&] { return with_etude(workload, {.tf32 = true}); }},
        {"the loop in bf16", [&] { return by_hand(workload, Reading::each_step, true); }},
        {"Etude, bf16", [&] { return with_etude(workload, {.bf16 = true}); }}};
#if BENCH_HAS_CUDA_GRAPH
    all.push_back({"Etude, cuda_graph", [&] { return with_etude(workload, {.cuda_graph = true}); }});
    all.push_back({"Etude, bf16 and cuda_graph",
                   [&] { return with_etude(workload, {.bf16 = true, .cuda_graph = true}); }});
#endif
    rounds.row(workload.name, "steps", static_cast<double>(workload.steps), std::move(all));
  }
}
