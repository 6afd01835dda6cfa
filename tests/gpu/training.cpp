#include <doctest/doctest.h>
#include <torch/cuda.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/fault_of.hpp"
#include "common/folder.hpp"
#include "common/toy.hpp"
#include "etude/trainer.hpp"
#include "etude/tune/memory_estimate.hpp"

// A LibTorch for the CPU lacks the first, and a machine without the toolkit the second.
#if __has_include(<c10/cuda/impl/cuda_cmake_macros.h>) && __has_include(<cuda_runtime_api.h>)
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>

#include "etude/libtorch/cuda_graph.hpp"
#define ETUDE_TESTS_CUDA 1
#else
#define ETUDE_TESTS_CUDA 0
#endif

/// These need a GPU, and are skipped without one.
namespace gpu_training_test {

#define GPU_TEST(name) TEST_CASE(name* doctest::skip(!torch::cuda::is_available()))

using etude::OptimizerNames;

/// Without a bias that the norm cancels, whose gradient would be noise that Adam makes large.
struct NetImpl : torch::nn::Module {
  explicit NetImpl(double p = 0.25) : drop(register_module("drop", torch::nn::Dropout(p))) {}
  torch::Tensor forward(const torch::Tensor& x) {
    ++calls;
    return last(drop(torch::relu(norm(first(x)))));
  }
  int calls = 0;
  torch::nn::Linear first{
      register_module("first", torch::nn::Linear(torch::nn::LinearOptions(6, 32).bias(false)))};
  torch::nn::BatchNorm1d norm{register_module("norm", torch::nn::BatchNorm1d(32))};
  torch::nn::Dropout drop;
  torch::nn::Linear last{register_module("last", torch::nn::Linear(32, 3))};
};
TORCH_MODULE(Net);

constexpr std::int64_t batch_size = 8, examples = 125;

std::pair<torch::Tensor, torch::Tensor> data() {
  torch::manual_seed(7);
  const auto x = torch::randn({examples, 6});
  return {x, x.matmul(torch::randn({6, 3})).argmax(1)};
}

/// 48 steps in 3 epochs, each of which ends with a smaller batch.
etude::TrainingArguments arguments() {
  auto args = toy::arguments();
  args.per_device_train_batch_size = batch_size;
  args.num_train_epochs = 3;
  args.learning_rate = 0.0078125;
  args.lr_scheduler_type = etude::SchedulerType::linear;
  args.weight_decay = 0.125;
  args.max_grad_norm = 0.5;
  return args;
}

etude::TrainerOptions options(etude::TrainingArguments args, double dropout = 0.25) {
  const auto [x, y] = data();
  torch::manual_seed(5);
  return {.model = Net(dropout),
          .args = std::move(args),
          .loss = torch::nn::CrossEntropyLoss(),
          .train_dataset = {x, y},
          .eval_dataset = {x, y}};
}

using Tensors = std::map<std::string, torch::Tensor>;

template <class Trainer>
Tensors tensors_of(Trainer& trainer) {
  Tensors all;
  for (const auto& [name, tensor] : trainer.model().state_dict())
    all[name] = tensor.detach().cpu().to(torch::kFloat);
  return all;
}

struct Losses {
  std::vector<torch::Tensor> all = {};
  torch::Device device = torch::kCPU;
  void on(const etude::BackwardEnd& e) {
    all.push_back(e.loss.detach().cpu());
    device = e.batch.inputs[0].device();
  }
};

Tensors trained(etude::TrainerOptions given) {
  etude::Trainer<> trainer(std::move(given));
  trainer.train();
  return tensors_of(trainer);
}

double distance(const Tensors& a, const Tensors& b) {
  double most = 0;
  for (const auto& [name, tensor] : a)
    most = std::max(most, (tensor - b.at(name)).abs().max().template item<double>());
  return most;
}

GPU_TEST("a training runs on the GPU, and its losses and weights are the CPU's") {
  auto args = arguments();
  etude::Trainer<Losses> gpu(options(args, 0));
  args.use_cpu = true;
  etude::Trainer<Losses> cpu(options(args, 0));
  gpu.train();
  cpu.train();
  CHECK(gpu.callback<Losses>().device.is_cuda());
  CHECK(cpu.callback<Losses>().device.is_cpu());
  CHECK(gpu.model().named_parameters().front().second.is_cuda());
  for (const auto& [name, tensor] : gpu.optimizer()->state())
    if (!name.ends_with(".step")) CHECK(tensor.is_cuda());
  const auto a = torch::stack(gpu.callback<Losses>().all), b = torch::stack(cpu.callback<Losses>().all);
  CHECK((a - b).abs().max().item<double>() < 1e-3);
  CHECK(distance(tensors_of(gpu), tensors_of(cpu)) < 1e-3);
}

GPU_TEST("a training equals a loop by hand on the GPU") {
  auto args = arguments();
  args.train_sampling_strategy = etude::SamplingStrategy::sequential;
  args.lr_scheduler_type = etude::SchedulerType::constant;
  args.weight_decay = 0;
  etude::Trainer<Losses> trainer(options(args, 0));
  torch::manual_seed(5);
  Net net(0);
  net->to(torch::kCUDA);
  trainer.train();

  const auto [x, y] = data();
  torch::optim::AdamW optimizer(net->parameters(),
                                torch::optim::AdamWOptions(args.learning_rate).weight_decay(0));
  std::vector<torch::Tensor> losses;
  net->train();
  for (int epoch = 0; epoch < 3; ++epoch)
    for (std::int64_t at = 0; at < examples; at += batch_size) {
      const auto rows = torch::indexing::Slice(at, std::min(at + batch_size, examples));
      optimizer.zero_grad();
      const auto loss =
          torch::cross_entropy_loss(net->forward(x.index({rows}).cuda()), y.index({rows}).cuda());
      loss.backward();
      torch::nn::utils::clip_grad_norm_(net->parameters(), args.max_grad_norm);
      optimizer.step();
      losses.push_back(loss.detach().cpu());
    }
  const auto a = torch::stack(trainer.callback<Losses>().all), b = torch::stack(losses);
  REQUIRE(a.sizes() == b.sizes());
  MESSAGE("the largest difference of a loss: " << (a - b).abs().max().item<double>());
  CHECK((a - b).abs().max().item<double>() < 1e-4);
}

GPU_TEST("every optimizer makes the same steps on the GPU as on the CPU") {
  for (std::size_t i = 0; i < etude::enum_names<OptimizerNames>.size(); ++i) {
    const auto optim = static_cast<OptimizerNames>(i);
    CAPTURE(etude::to_string(optim));
    auto args = arguments();
    args.optim = optim;
    if (optim == OptimizerNames::adafactor) args.learning_rate = 0.001;
    if (optim == OptimizerNames::lbfgs) args.max_grad_norm = args.weight_decay = 0, args.max_steps = 3;
    const auto gpu = trained(options(args, 0));
    args.use_cpu = true;
    const auto cpu = trained(options(args, 0));
    const auto apart = distance(gpu, cpu);
    MESSAGE(std::string(etude::to_string(optim)) << ": " << apart);
    const bool has_codes = optim == OptimizerNames::adamw_8bit || optim == OptimizerNames::lion_8bit;
    CHECK(apart < (has_codes ? 0.05 : 1e-3));
  }
}

GPU_TEST("mixed precision learns as float32 does") {
  const auto eval_loss = [](etude::TrainingArguments args) {
    etude::Trainer<> trainer(options(std::move(args), 0));
    trainer.train();
    return trainer.evaluate().at("eval_loss");
  };
  const auto exact = eval_loss(arguments());
  auto args = arguments();
  args.bf16 = true;
  CHECK(eval_loss(args) == doctest::Approx(exact).epsilon(0.05));
  args = arguments();
  args.fp16 = true;
  CHECK(eval_loss(args) == doctest::Approx(exact).epsilon(0.05));
  args = arguments();
  args.tf32 = true;
  CHECK(eval_loss(args) == doctest::Approx(exact).epsilon(0.05));
  CHECK(at::globalContext().allowTF32CuBLAS());
  args.tf32 = false;
  CHECK(eval_loss(args) == doctest::Approx(exact).epsilon(1e-4));
  CHECK_FALSE(at::globalContext().allowTF32CuBLAS());
  args = arguments();
  args.pure_bf16 = true;
  CHECK(eval_loss(args) == doctest::Approx(exact).epsilon(0.2));
}

/// Its output overflows in the third forward pass of a training in float16.
struct OverflowsImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) {
    ++calls;
    return line(x) * (is_training() && calls == 3 ? 1e30 : 1.0);
  }
  torch::nn::Linear line{register_module("line", torch::nn::Linear(6, 3))};
  int calls = 0;
};
TORCH_MODULE(Overflows);

struct Skips {
  int skipped = 0, steps = 0;
  void on(const etude::StepSkipped&) { ++skipped; }
  void on(const etude::StepEnd&) { ++steps; }
};

GPU_TEST("an update that overflows in fp16 is skipped") {
  auto args = arguments();
  args.fp16 = true;
  auto given = options(args);
  given.model = Overflows();
  etude::Trainer<Skips> trainer(given);
  trainer.train();
  const auto& [skipped, steps] = trainer.callback<Skips>();
  CHECK(skipped >= 1);
  CHECK(skipped + steps == 48);
  for (const auto& [name, tensor] : tensors_of(trainer)) CHECK(torch::isfinite(tensor).all().item<bool>());
}

GPU_TEST("on_non_finite skips an update and names the origin") {
  auto args = arguments();
  args.train_sampling_strategy = etude::SamplingStrategy::sequential;
  args.on_non_finite = etude::OnNonFinite::stop;
  auto given = options(args);
  auto [x, y] = data();
  x[19][2] = NAN;
  given.train_dataset = {x, y};
  etude::Trainer<Skips> stopped(given);
  const auto output = stopped.train();
  CHECK(output.global_step == 2);
  CAPTURE(output.stop_reason);
  CHECK(toy::contains(output.stop_reason, "train_dataset[19]"));
  CHECK(torch::isfinite(tensors_of(stopped).at("first.weight")).all().item<bool>());

  given = options(args);
  given.args.on_non_finite = etude::OnNonFinite::skip;
  given.train_dataset = {x, y};
  etude::Trainer<Skips> skipping(given);
  skipping.train();
  CHECK(skipping.callback<Skips>().skipped == 3);
  for (const auto& [name, tensor] : tensors_of(skipping)) CHECK(torch::isfinite(tensor).all().item<bool>());
}

struct Fault : std::runtime_error {
  Fault() : std::runtime_error("a fault") {}
};

struct Dies {
  std::int64_t at = -1;
  void on(const etude::StepEnd& e) {
    if (e.state.global_step == at) throw Fault();
  }
};

/// The outcome of a training that dies at step 23 and is resumed by another at step 20.
Tensors resumed(etude::TrainingArguments first, etude::TrainingArguments second, double dropout = 0.25) {
  const toy::Folder folder;
  toy::save_to(folder, first, 5);
  toy::save_to(folder, second, 5);
  etude::Trainer<Dies> killed(options(first, dropout), Dies{23});
  CHECK_THROWS_AS(killed.train(), Fault);
  etude::Trainer<> rest(options(second, dropout));
  CHECK(rest.train({.resume_from_checkpoint = true}).global_step == 48);
  return tensors_of(rest);
}

Tensors resumed(const etude::TrainingArguments& args) { return resumed(args, args); }

GPU_TEST("a training with dropout is resumed to the bit, in float32, bf16 and fp16") {
  for (const int mode : {0, 1, 2}) {
    CAPTURE(mode);
    auto args = arguments();
    args.bf16 = mode == 1;
    args.fp16 = mode == 2;
    const auto whole = trained(options(args));
    CHECK(distance(resumed(args), whole) == 0);
  }
}

GPU_TEST("a checkpoint of the GPU is resumed on the CPU, and one of the CPU on the GPU") {
  for (const bool first_on_cpu : {false, true}) {
    CAPTURE(first_on_cpu);
    auto first = arguments(), second = arguments();
    first.use_cpu = first_on_cpu;
    second.use_cpu = !first_on_cpu;
    const auto whole = trained(options(first, 0));
    CHECK(distance(resumed(first, second, 0), whole) < 1e-3);
  }
}

GPU_TEST("offload_optimizer equals a training without it") {
  auto args = arguments();
  const auto without = trained(options(args));
  args.offload_optimizer = true;
  etude::Trainer<> trainer(options(args));
  trainer.train();
  CHECK(distance(tensors_of(trainer), without) < 1e-4);  // the CPU computes the updates
  for (const auto& [name, tensor] : trainer.optimizer()->state()) CHECK(tensor.is_cpu());
}

GPU_TEST("gradient_checkpointing draws the same random numbers again") {
  const auto run = [](bool again) {
    auto args = arguments();
    args.gradient_checkpointing = again;
    auto given = options(args);
    torch::manual_seed(5);
    given.model = torch::nn::Sequential(torch::nn::Linear(6, 32), torch::nn::ReLU(), torch::nn::Dropout(0.5),
                                        torch::nn::Linear(32, 32), torch::nn::ReLU(), torch::nn::Dropout(0.5),
                                        torch::nn::Linear(32, 3));
    return trained(std::move(given));
  };
  CHECK(distance(run(true), run(false)) == 0);
}

GPU_TEST("batches come from pinned memory and workers, and accumulation and evaluation run on the GPU") {
  auto args = arguments();
  const auto plain = trained(options(args, 0));
  args.dataloader_num_workers = 2;
  args.dataloader_pin_memory = true;
  CHECK(distance(trained(options(args, 0)), plain) == 0);
  args.gradient_accumulation_steps = 4;
  args.eval_strategy = etude::IntervalStrategy::epoch;
  etude::Trainer<> trainer(options(args, 0));
  trainer.train();
  CHECK(trainer.evaluate().at("eval_loss") < 1.1);
  const auto [x, y] = data();
  const auto output = trainer.predict({x, y});
  CHECK(output.predictions.single().sizes() == torch::IntArrayRef({examples, 3}));
}

/// More than 16 examples take more memory than any GPU has.
struct LargeImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) {
    if (x.size(0) > 16) torch::empty({std::int64_t{1} << 45}, x.options().dtype(torch::kByte));
    return line(x);
  }
  torch::nn::Linear line{register_module("line", torch::nn::Linear(6, 3))};
};
TORCH_MODULE(Large);

GPU_TEST("auto_find_batch_size finds the batch that fits into the GPU's memory") {
  auto args = arguments();
  args.per_device_train_batch_size = 32;
  args.auto_find_batch_size = true;
  args.num_train_epochs = 1;
  auto given = options(args);
  given.model = Large();
  etude::Trainer<> trainer(given);
  trainer.train();
  CHECK(trainer.state().train_batch_size.value_or(0) == 15);  // 0.9 times the size before, from 32 on
}

#if ETUDE_TESTS_CUDA

GPU_TEST("between two logs, nothing waits for the GPU") {
  struct Strict {
    void on(const etude::StepEnd& e) {
      if (e.state.global_step == 3)
        c10::cuda::warning_state().set_sync_debug_mode(c10::cuda::SyncDebugMode::L_ERROR);
      if (e.state.global_step == 20) relax();
      steps = e.state.global_step;
    }
    static void relax() {
      c10::cuda::warning_state().set_sync_debug_mode(c10::cuda::SyncDebugMode::L_DISABLED);
    }
    std::int64_t steps = 0;
  };
  for (const auto optim : {OptimizerNames::adamw_torch_fused, OptimizerNames::sgd, OptimizerNames::lion,
                           OptimizerNames::adamw_8bit, OptimizerNames::lion_8bit}) {
    CAPTURE(etude::to_string(optim));
    auto args = arguments();
    args.optim = optim;
    args.bf16 = optim == OptimizerNames::sgd;
    etude::Trainer<Strict> trainer(options(args));
    CHECK_NOTHROW(trainer.train());
    Strict::relax();
    CHECK(trainer.callback<Strict>().steps == 48);
  }
}

GPU_TEST("estimate_memory is near the peak of LibTorch's allocator") {
  using namespace c10::cuda::CUDACachingAllocator;
  auto args = arguments();
  args.per_device_train_batch_size = 64;
  const auto given = [&] {
    auto result = options(args);
    result.model =
        torch::nn::Sequential(torch::nn::Linear(6, 4096), torch::nn::ReLU(), torch::nn::Linear(4096, 4096),
                              torch::nn::ReLU(), torch::nn::Linear(4096, 3));
    return result;
  };
  double estimated = 0;
  {
    etude::Trainer<> trainer(given());
    estimated = static_cast<double>(etude::estimate_memory(trainer).one_process.peak);
  }
  emptyCache();
  const auto before = getDeviceStats(0).allocated_bytes[0].current;
  resetPeakStats(0);
  etude::Trainer<> trainer(given());
  trainer.train();
  const auto measured = static_cast<double>(getDeviceStats(0).allocated_bytes[0].peak - before);
  MESSAGE("estimated " << estimated / 1e6 << " MB, measured " << measured / 1e6 << " MB");
  CHECK(estimated / measured > 0.75);
  CHECK(estimated / measured < 1.25);
}

GPU_TEST("cuda_graph equals a training without it, with dropout, a schedule and a smaller last batch") {
  for (const bool bf16 : {false, true}) {
    CAPTURE(bf16);
    auto args = arguments();
    args.bf16 = bf16;
    const auto without = trained(options(args));
    args.cuda_graph = true;
    etude::Trainer<Skips> trainer(options(args));
    trainer.train();
    const auto apart = distance(tensors_of(trainer), without);
    MESSAGE("the largest difference of a weight: " << apart);
    CHECK(apart == 0);
    CHECK(trainer.callback<Skips>().steps == 48);
    CHECK(trainer.model().as<Net>().calls < 24);  // the others are replayed
  }
}

GPU_TEST("cuda_graph is captured again after a resume") {
  auto args = arguments();
  args.cuda_graph = true;
  const auto whole = trained(options(args));
  CHECK(distance(resumed(args), whole) < 1e-5);
}

#endif

}  // namespace gpu_training_test
