#include <ATen/Parallel.h>
#include <ATen/record_function.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <cstdlib>
#include <map>
#include <new>
#include <string>

#include "common/toy.hpp"
#include "etude/libtorch/autocast.hpp"
#include "etude/libtorch/optim.hpp"
#include "etude/optim/cpu_kernels.hpp"
#include "etude/optim/rules/adam.hpp"
#include "etude/optim/rules/sgd.hpp"

// Measures the cost of a step, apart from the model, in counts, which have no noise.

namespace {

thread_local std::int64_t allocations = 0;

/// Counts the calls of each LibTorch operator while it lives.
class Operators {
 public:
  Operators()
      : handle_(at::addThreadLocalCallback(
            at::RecordFunctionCallback(note).scopes({at::RecordScope::FUNCTION}))) {
    counts().clear();
  }
  ~Operators() { at::removeCallback(handle_); }

  static std::map<std::string, std::int64_t>& counts() {
    static std::map<std::string, std::int64_t> all;
    return all;
  }

 private:
  static std::unique_ptr<at::ObserverContext> note(const at::RecordFunction& function) {
    ++counts()[function.name()];
    return nullptr;
  }
  at::CallbackHandle handle_;
};

/// The 64-64-64-10 perceptron, and 40 batches of 8 for it.
torch::nn::Sequential perceptron() {
  return torch::nn::Sequential(torch::nn::Linear(64, 64), torch::nn::ReLU(), torch::nn::Linear(64, 64),
                               torch::nn::ReLU(), torch::nn::Linear(64, 10));
}
constexpr std::int64_t batch_size = 8, examples = 40 * batch_size;
struct Data {
  torch::Tensor x = torch::randn({examples, 64}), y = torch::randint(10, {examples});
};

struct NetImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) { return layers->forward(x); }
  torch::nn::Sequential layers = register_module("layers", perceptron());
};
TORCH_MODULE(Net);

etude::TrainingArguments arguments() {
  auto args = toy::arguments();
  args.per_device_train_batch_size = batch_size;
  args.num_train_epochs = 3;
  args.weight_decay = 0.01;
  args.max_grad_norm = 0.01;  // so that every step clips
  return args;
}

/// Calls `begin` when 10 steps are done, and `end` after 100 more.
struct From10To110 {
  std::function<void()> begin, end;
  void on(const etude::StepEnd& e) {
    if (e.state.global_step == 10) begin();
    if (e.state.global_step == 110) end();
  }
};

/// The fastest loop that one would write by hand: the parameters and the gradients are one vector each, a
/// batch takes one index_select per tensor, one fused step also clips, and nothing is read back.
void train_by_hand(const Data& data, const std::function<void(int)>& step_done) {
  auto net = perceptron();
  std::int64_t size = 0;
  for (const auto& parameter : net->parameters()) size += parameter.numel();
  auto values = torch::zeros(size), gradients = torch::zeros(size), mean = torch::zeros(size),
       square = torch::zeros(size), steps = torch::zeros({});
  std::int64_t offset = 0;
  for (auto& parameter : net->parameters()) {
    const auto part = values.narrow(0, offset, parameter.numel()).view(parameter.sizes());
    part.copy_(parameter.detach());
    parameter.set_data(part);
    parameter.mutable_grad() = gradients.narrow(0, offset, parameter.numel()).view(parameter.sizes());
    offset += parameter.numel();
  }
  auto total = torch::zeros({});
  torch::Tensor order;
  for (int step = 0; step < 120; ++step) {
    if (step % 40 == 0) order = torch::randperm(examples);
    const auto index = order.narrow(0, step % 40 * batch_size, batch_size);
    const auto loss =
        torch::cross_entropy_loss(net->forward(data.x.index_select(0, index)), data.y.index_select(0, index));
    loss.backward();
    const torch::NoGradGuard no_grad;
    const auto divisor = (at::linalg_vector_norm(gradients, 2) / 0.01).clamp_min_(1);
    steps.add_(1);
#if ETUDE_HAS_FUSED_OPTIMIZERS
    at::_fused_adamw_(values, gradients, mean, square, {}, steps, 1e-3, 0.9, 0.999, 0.01, 1e-8, false, false,
                      divisor);
#endif
    gradients.zero_();
    total.add_(loss.detach());
    step_done(step + 1);
  }
}

// Sanitizers replace the allocator, too.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNTS_ALLOCATIONS 0
#elif defined(__has_feature)
#define COUNTS_ALLOCATIONS !(__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#else
#define COUNTS_ALLOCATIONS 1
#endif

}  // namespace

#if COUNTS_ALLOCATIONS
// Replaced for the whole program, LibTorch included.
void* operator new(std::size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
#endif

TEST_CASE("a step runs no more operators than the best loop by hand, and reads nothing back") {
  const Data data;
  std::optional<Operators> counting;
  std::map<std::string, std::int64_t> ours, theirs;
  etude::Trainer<From10To110> trainer({.model = Net(),
                                       .args = arguments(),
                                       .loss = torch::nn::CrossEntropyLoss(),
                                       .train_dataset = {data.x, data.y}},
                                      From10To110{[&] { counting.emplace(); },
                                                  [&] {
                                                    ours = Operators::counts();
                                                    counting.reset();
                                                  }});
  trainer.train();
  train_by_hand(data, [&](int step) {
    if (step == 10) counting.emplace();
    if (step == 110) {
      theirs = Operators::counts();
      counting.reset();
    }
  });
  const auto sum = [](const auto& counts) {
    std::int64_t all = 0;
    for (const auto& [name, count] : counts) all += count;
    return all;
  };
  CAPTURE(fmt::format("{}", ours));
  CAPTURE(fmt::format("{}", theirs));
  REQUIRE(sum(theirs) > 0);
  CHECK(sum(ours) <= sum(theirs));
  CHECK(ours.count("aten::_local_scalar_dense") == 0);
  CHECK(ours.at("aten::addmm") == 300);  // 100 steps of 3 layers were counted
}

namespace {

/// Runs the code for other devices, in place of our kernels for the CPU.
struct WithoutKernels {
  WithoutKernels() { etude::detail::uses_cpu_kernels() = false; }
  WithoutKernels(const WithoutKernels&) = delete;
  WithoutKernels& operator=(const WithoutKernels&) = delete;
  ~WithoutKernels() { etude::detail::uses_cpu_kernels() = true; }
};

using Counts = std::map<std::string, std::int64_t>;

/// The operators for which the host waits for a device, in 100 steps of a training between two logs, and the
/// number of losses that were computed in them.
struct Reads {
  Counts operators;
  std::int64_t losses = 0;
};
Reads reads_in_100_steps(etude::TrainingArguments args) {
  const WithoutKernels as_on_other_devices;
  const Data data;
  args.logging_strategy = etude::IntervalStrategy::steps;
  args.logging_steps = 115;
  std::optional<Operators> counting;
  Counts counts;
  etude::Trainer<From10To110> trainer({.model = Net(),
                                       .args = std::move(args),
                                       .loss = torch::nn::CrossEntropyLoss(),
                                       .train_dataset = {data.x, data.y}},
                                      From10To110{[&] { counting.emplace(); },
                                                  [&] {
                                                    counts = Operators::counts();
                                                    counting.reset();
                                                  }});
  trainer.train();
  Reads reads{.operators = {}, .losses = counts.at("aten::cross_entropy_loss")};
  for (const std::string name : {"item", "_local_scalar_dense", "is_nonzero", "equal", "nonzero", "_unique2",
                                 "masked_select", "repeat_interleave"})
    if (const auto found = counts.find("aten::" + name); found != counts.end())
      reads.operators.insert(*found);
  return reads;
}

}  // namespace

TEST_CASE("between logs nothing waits for the device, but fp16 once per update") {
  const auto check_none = [](const etude::TrainingArguments& args) {
    const auto reads = reads_in_100_steps(args);
    CHECK(reads.losses == 100);
    CHECK(reads.operators == Counts{});
  };
  auto args = arguments();
  check_none(args);

  args.bf16 = true;
  check_none(args);

  args = arguments();
  args.optim = etude::OptimizerNames::sgd;
  args.max_grad_value = 0.1;
  check_none(args);

  if (!etude::computes_in_float16(torch::kCPU)) return;
  args = arguments();
  args.fp16 = true;
  const auto reads = reads_in_100_steps(args);
  CHECK(reads.losses >= 100);  // updates may be skipped
  CHECK(reads.operators == Counts{{"aten::item", reads.losses}, {"aten::_local_scalar_dense", reads.losses}});
}

TEST_CASE("clipping and the optimizer's step read nothing, or would fail on a device that has no values") {
  const auto weight = torch::ones({8, 8}, torch::kMeta).requires_grad_();
  const auto check = [&](etude::Optimizer& optimizer) {
    for (int i = 0; i < 2; ++i) {
      (weight * weight).sum().backward();
      CHECK(optimizer.clip_grad_norm_in_step(1).is_meta());
      optimizer.clip_grad_value(1);
      CHECK(optimizer.clip_grad_norm(1).is_meta());
      optimizer.step();
      optimizer.zero_grad();
    }
  };
  const std::vector<etude::ParameterGroup> groups{
      {.parameters = {{"weight", weight}}, .lr = {}, .weight_decay = {}}};
  etude::AdamW adam(groups);
  check(adam);
  etude::SGD sgd(groups, {.lr = 0.1, .momentum = 0.9});
  check(sgd);
  CHECK_THROWS(torch::ones({}, torch::kMeta).item<double>());
}

TEST_CASE("a step allocates nothing but its tensors" * doctest::skip(!COUNTS_ALLOCATIONS)) {
  /// Runs forward and backward in the simplest form, and doesn't count their allocations.
  struct Counted : etude::TrainerBase<Counted, From10To110> {
    using TrainerBase::TrainerBase;
    torch::Tensor training_step(etude::Batch&) {
      const auto before = allocations;
      const auto parameter = model().parameters().front();
      parameter.mutable_grad() = torch::zeros_like(parameter.detach());
      inside += allocations - before;
      return loss;
    }
    torch::Tensor loss = torch::zeros({});
    std::int64_t inside = 0;
  };
  const Data data;
  std::int64_t begin = 0, all = 0;
  Counted* running = nullptr;
  Counted trainer({.model = Net(),
                   .args = arguments(),
                   .loss = torch::nn::CrossEntropyLoss(),
                   .train_dataset = {data.x, data.y}},
                  From10To110{[&] { begin = allocations - running->inside; },
                              [&] { all = allocations - running->inside - begin; }});
  running = &trainer;
  trainer.train();

  // A step makes two tensors for the batch and one for the norm of the gradients. Epochs begin at steps 41
  // and 81.
  const auto before = allocations;
  for (int i = 0; i < 300; ++i) at::empty({8, 64});
  const auto tensors = allocations - before;
  CAPTURE(all);
  CHECK(all - tensors < 40);
  CHECK(all >= tensors);
}
