/// Measures the parts of a training (data loading, the update, evaluation and prediction, logging) and the
/// simplest code that does the same, in the same run. `parts_bench [--json FILE] [ROUNDS]`: each line begins
/// with the simple code and its speed, followed by the speedups of the other contestants.

#include <fmt/format.h>
#include <malloc.h>
#include <torch/data.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <etude/etude.hpp>

#include "measure.hpp"

namespace {

struct Rows : torch::data::datasets::Dataset<Rows> {
  Rows(torch::Tensor x_, torch::Tensor y_) : x(std::move(x_)), y(std::move(y_)) {}
  torch::data::Example<> get(std::size_t i) override {
    return {x[static_cast<std::int64_t>(i)], y[static_cast<std::int64_t>(i)]};
  }
  torch::optional<std::size_t> size() const override { return static_cast<std::size_t>(x.size(0)); }
  torch::Tensor x, y;
};

/// Keeps the compiler from removing unused results.
void use(const torch::Tensor& tensor) { asm volatile("" : : "r"(tensor.data_ptr()) : "memory"); }

/// Loads one epoch of shuffled batches.
void data(bench::Rounds& rounds, const char* name, std::vector<std::int64_t> sizes, std::int64_t batch_size) {
  const auto examples = sizes[0];
  const auto x = torch::randn(sizes), y = torch::randint(10, {examples});
  const auto batches = examples / batch_size;
  const auto order = torch::randperm(examples);

  const auto gather = [&](const torch::Tensor& from, std::int64_t first) {
    auto batch_sizes = from.sizes().vec();
    batch_sizes[0] = batch_size;
    const auto to = torch::empty(batch_sizes, from.options());
    const auto bytes = from.nbytes() / static_cast<std::size_t>(examples);
    for (std::int64_t i = 0; i < batch_size; ++i)
      std::memcpy(static_cast<char*>(to.data_ptr()) + static_cast<std::size_t>(i) * bytes,
                  static_cast<const char*>(from.data_ptr()) +
                      static_cast<std::size_t>(order.data_ptr<std::int64_t>()[first + i]) * bytes,
                  bytes);
    use(to);
  };
  const auto torch_loader = torch::data::make_data_loader<torch::data::samplers::RandomSampler>(
      Rows(x, y).map(torch::data::transforms::Stack<>()),
      torch::data::DataLoaderOptions().batch_size(static_cast<std::size_t>(batch_size)));
  const etude::DataLoader ours({x, y}, {.batch_size = batch_size, .shuffle = true});
  std::int64_t epoch = 0;
  rounds.row(name, "batches", static_cast<double>(batches),
             {{"memcpy of each row",
               [&] {
                 return bench::seconds([&] {
                   for (std::int64_t i = 0; i < batches; ++i)
                     gather(x, i * batch_size), gather(y, i * batch_size);
                 });
               }},
              {"index_select",
               [&] {
                 return bench::seconds([&] {
                   for (std::int64_t i = 0; i < batches; ++i) {
                     const auto index = order.narrow(0, i * batch_size, batch_size);
                     use(x.index_select(0, index)), use(y.index_select(0, index));
                   }
                 });
               }},
              {"torch's DataLoader and Stack",
               [&] {
                 return bench::seconds([&] {
                   for (const auto& batch : *torch_loader) use(batch.data);
                 });
               }},
              {"etude", [&] {
                 return bench::seconds([&] {
                   auto stream = ours.begin_epoch(epoch++);
                   while (const auto batch = stream.next()) use(batch->inputs[0]);
                 });
               }}});
}

/// Keeps a core busy.
void work(double microseconds) {
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count() <
         microseconds) {
  }
}

/// Examples that take 20 microseconds each to make.
struct Slow {
  std::int64_t size() const { return 3200; }
  torch::Tensor get(std::int64_t) const {
    work(20);
    return example;
  }
  torch::Tensor example = torch::zeros({16});
};

/// Runs a loop that takes a millisecond per batch; making a batch of 32 examples takes two thirds of that.
void workers(bench::Rounds& rounds) {
  const auto run = [](int count) {
    const etude::DataLoader loader(Slow(), {.batch_size = 32, .num_workers = count});
    return bench::seconds([&] {
      auto stream = loader.begin_epoch(0);
      while (stream.next()) work(1000);
    });
  };
  rounds.row("a loop of 1 ms a batch over a dataset of 0.64 ms a batch", "batches", 100,
             {{"the loop alone",
               [] {
                 return bench::seconds([] {
                   for (int i = 0; i < 100; ++i) work(1000);
                 });
               }},
              {"etude, no worker", [=] { return run(0); }},
              {"etude, one worker", [=] { return run(1); }}});
}

/// Compares an update with clipping to moving the bytes that it has to move: it reads the gradient twice
/// (once for the norm), the value and two moments once, and writes the latter three: 32 bytes per parameter.
/// In bfloat16 that is half, and with kahan 4 bytes more.
void update(bench::Rounds& rounds, std::int64_t layers, std::int64_t size) {
  const auto parameters = [&](torch::ScalarType type = torch::kFloat) {
    etude::NamedTensors result;
    for (std::int64_t i = 0; i < layers; ++i)
      result.emplace_back(std::to_string(i), torch::randn({size}).to(type).set_requires_grad(true));
    return result;
  };
  const auto ours = parameters(), theirs = parameters(), in_8_bits = parameters();
  etude::AdamW optimizer({{ours, {}, {}}});
  const auto with_kahan = parameters(torch::kBFloat16), with_noise = parameters(torch::kBFloat16);
  etude::AdamW kahan({{with_kahan, {}, {}}}, {.rounding = etude::Rounding::kahan});
  etude::AdamW stochastic({{with_noise, {}, {}}}, {.rounding = etude::Rounding::stochastic});
  etude::AdamW8bit optimizer_8bit({{in_8_bits, {}, {}}});
  std::vector<torch::Tensor> list;
  for (const auto& [name, tensor] : theirs) list.push_back(tensor);
  torch::optim::AdamW torch_optimizer(list);
  const auto gradients = [](const etude::NamedTensors& of) {
    for (const auto& [name, tensor] : of) tensor.mutable_grad() = torch::randn_like(tensor.detach());
  };
  const auto update_by = [&](etude::Optimizer& by, const etude::NamedTensors& of) {
    by.zero_grad();
    gradients(of);
    return bench::seconds([&] {
      by.clip_grad_norm_in_step(1.0);
      by.step();
    });
  };
  const auto bytes = static_cast<std::size_t>(layers * size * 16);  // each byte is read and written
  const std::vector<char> from(bytes, 'x');
  std::vector<char> to(bytes);
  rounds.row(fmt::format("clipping and AdamW, {} tensors of {}", layers, size), "updates", 1,
             {{"memcpy of as many bytes",
               [&] {
                 return bench::seconds([&] {
                   std::memcpy(to.data(), from.data(), bytes);
                   asm volatile("" : : "r"(to.data()) : "memory");
                 });
               }},
              {"torch::optim::AdamW and clip_grad_norm_",
               [&] {
                 gradients(theirs);
                 return bench::seconds([&] {
                   torch::nn::utils::clip_grad_norm_(list, 1.0);
                   torch_optimizer.step();
                 });
               }},
              {"etude", [&] { return update_by(optimizer, ours); }},
              {"etude, bfloat16, kahan", [&] { return update_by(kahan, with_kahan); }},
              {"etude, bfloat16, stochastic", [&] { return update_by(stochastic, with_noise); }},
              {"etude, moments of 8 bits", [&] { return update_by(optimizer_8bit, in_8_bits); }}});
}

/// Updates by torch::optim, by Etude's default optimizer of the same kind, and by the bit-identical one.
template <class Torch, class Ours, class Options>
void exact_update(bench::Rounds& rounds, const char* name, std::int64_t layers, std::int64_t size,
                  Options options) {
  const auto parameters = [&] {
    torch::manual_seed(0);
    etude::NamedTensors result;
    for (std::int64_t i = 0; i < layers; ++i)
      result.emplace_back(std::to_string(i), torch::randn({size}).set_requires_grad(true));
    return result;
  };
  const auto theirs = parameters(), fast = parameters(), exact = parameters();
  std::vector<torch::Tensor> list;
  for (const auto& [key, tensor] : theirs) list.push_back(tensor);
  Torch torch_optimizer(list, options.lr);
  Ours fast_optimizer({{fast, {}, {}}}, options);
  options.fused = false;
  Ours exact_optimizer({{exact, {}, {}}}, options);
  const std::int64_t updates = std::max<std::int64_t>(1, 1'000'000 / (layers * (size + 1'000)));
  const auto run = [=](auto& by, const etude::NamedTensors& of) {
    by.zero_grad();
    for (const auto& [key, tensor] : of) tensor.sum().backward();
    return bench::seconds([&] {
      for (std::int64_t i = 0; i < updates; ++i) by.step();
    });
  };
  rounds.row(fmt::format("{}, {} tensors of {}", name, layers, size), "updates", static_cast<double>(updates),
             {{"torch::optim", [&] { return run(torch_optimizer, theirs); }},
              {"etude", [&] { return run(fast_optimizer, fast); }},
              {"etude, fused=false", [&] { return run(exact_optimizer, exact); }}});
  for (std::int64_t i = 0; i < layers; ++i)
    if (const auto at = static_cast<std::size_t>(i); !torch::equal(exact[at].second, theirs[at].second))
      throw std::runtime_error(fmt::format("{} isn't bit-identical to torch::optim", name));
}

void exact_updates(bench::Rounds& rounds, std::int64_t layers, std::int64_t size) {
  namespace optim = torch::optim;
  exact_update<optim::AdamW, etude::AdamW>(rounds, "AdamW", layers, size, etude::AdamWOptions());
  exact_update<optim::Adam, etude::Adam>(rounds, "Adam", layers, size, etude::AdamOptions());
  exact_update<optim::SGD, etude::SGD>(rounds, "SGD", layers, size, etude::SGDOptions());
  exact_update<optim::RMSprop, etude::RMSprop>(rounds, "RMSprop", layers, size, etude::RMSpropOptions());
  exact_update<optim::Adagrad, etude::Adagrad>(rounds, "Adagrad", layers, size, etude::AdagradOptions());
}

struct NetImpl : torch::nn::Module {
  explicit NetImpl(std::int64_t width)
      : layers(register_module("layers",
                               torch::nn::Sequential(torch::nn::Linear(64, width), torch::nn::ReLU(),
                                                     torch::nn::Linear(width, width), torch::nn::ReLU(),
                                                     torch::nn::Linear(width, 10)))) {}
  torch::Tensor forward(torch::Tensor x) { return layers->forward(x); }
  torch::nn::Sequential layers;
};
TORCH_MODULE(Net);

etude::TrainingArguments quiet() {
  return {.output_dir = "/nonexistent",
          .per_device_eval_batch_size = 64,
          .save_strategy = etude::SaveStrategy::no,
          .log_level = etude::LogLevel::critical,
          .disable_tqdm = true};
}

/// Computes the loss over a dataset, and all predictions.
void evaluation(bench::Rounds& rounds, std::int64_t width) {
  const std::int64_t examples = 16'384, batch_size = 64, batches = examples / batch_size;
  const auto x = torch::randn({examples, 64}), y = torch::randint(10, {examples});
  Net net(width);
  etude::Trainer<etude::NoDefaultCallbacks> trainer({.model = net,
                                                     .args = quiet(),
                                                     .loss = torch::nn::CrossEntropyLoss(),
                                                     .eval_dataset = etude::Dataset(x, y)});
  const auto batch = [&](const torch::Tensor& tensor, std::int64_t i) {
    return tensor.narrow(0, i * batch_size, batch_size).clone();
  };
  rounds.row(fmt::format("evaluation, 64-{0}-{0}-10", width), "batches", static_cast<double>(batches),
             {{"forward and loss",
               [&] {
                 const torch::NoGradGuard no_grad;
                 net->eval();
                 return bench::seconds([&] {
                   double total = 0;
                   for (std::int64_t i = 0; i < batches; ++i)
                     total +=
                         torch::cross_entropy_loss(net->forward(batch(x, i)), batch(y, i)).item<double>();
                 });
               }},
              {"etude", [&] { return bench::seconds([&] { trainer.evaluate(); }); }}});
  rounds.row(fmt::format("prediction, 64-{0}-{0}-10", width), "batches", static_cast<double>(batches),
             {{"forward and cat",
               [&] {
                 const torch::NoGradGuard no_grad;
                 net->eval();
                 return bench::seconds([&] {
                   std::vector<torch::Tensor> all;
                   for (std::int64_t i = 0; i < batches; ++i) all.push_back(net->forward(batch(x, i)));
                   use(torch::cat(all));
                 });
               }},
              {"etude", [&] { return bench::seconds([&] { trainer.predict(x); }); }}});
}

/// Logs as a training with `logging_steps = 1` does, compared with writing a line of text to /dev/null.
void logging(bench::Rounds& rounds) {
  const int lines = 20'000;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> nowhere(std::fopen("/dev/null", "w"), std::fclose);
  etude::Trainer<etude::NoDefaultCallbacks> trainer({.model = Net(8), .args = quiet()});
  rounds.row("logging", "lines", lines,
             {{"fmt::print",
               [&] {
                 return bench::seconds([&] {
                   for (int i = 0; i < lines; ++i)
                     fmt::print(nowhere.get(),
                                "loss: {:.4f}, grad_norm: {:.4f}, learning_rate: {:.3e}, epoch: {:.2f}\n",
                                1. / (i + 1), 1. / (i + 2), 1e-3, i * 1e-3);
                 });
               }},
              {"etude, into the history", [&] {
                 return bench::seconds([&] {
                   for (int i = 0; i < lines; ++i) {
                     etude::Metrics logs{
                         {"loss", 1. / (i + 1)}, {"grad_norm", 1. / (i + 2)}, {"learning_rate", 1e-3}};
                     trainer.log(logs);
                   }
                 });
               }}});
}

struct BlockImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return x + second(torch::gelu(first(x))); }
  torch::nn::Linear first{register_module("first", torch::nn::Linear(256, 1024))};
  torch::nn::Linear second{register_module("second", torch::nn::Linear(1024, 256))};
};
TORCH_MODULE(Block);

/// Runs forward and backward passes of a deep model, once keeping activations and once recomputing them.
void recomputation(bench::Rounds& rounds) {
  mallopt(M_MMAP_THRESHOLD, 1 << 20);  // so that freed memory is returned to the system
  torch::nn::Sequential kept, recomputed;
  for (int i = 0; i < 16; ++i) {
    kept->push_back(Block());
    recomputed->push_back(Block());
  }
  const etude::Model model(recomputed);
  const etude::RecomputedUnits units(model);
  const auto x = torch::randn({1024, 256});
  const auto pass = [&](torch::nn::Sequential& net) {
    return bench::seconds([&] { net->forward(x).square().mean().backward(); });
  };
  rounds.row("forward and backward, 16 blocks 256-1024-256", "batches", 1,
             {{"activations kept", [&] { return pass(kept); }},
              {"computed again", [&] { return pass(recomputed); }}});
  const auto mebibytes = [&](torch::nn::Sequential& net) {
    malloc_trim(0);
    etude::reset_peak_resident_memory();
    const auto before = etude::resident_memory();
    pass(net);
    return static_cast<double>(etude::peak_resident_memory() - before) / (1 << 20);
  };
  const auto all = mebibytes(kept), some = mebibytes(recomputed);
  fmt::print("- peak memory of that: activations kept {:.0f} MiB; computed again {:.0f} MiB\n", all, some);
}

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  bench::Rounds rounds(argc, argv, 15);
  data(rounds, "data: rows of 16 numbers, batches of 256", {51'200, 16}, 256);
  data(rounds, "data: images of 28x28, batches of 64", {12'800, 1, 28, 28}, 64);
  data(rounds, "data: images of 3x32x32, batches of 128", {12'800, 3, 32, 32}, 128);
  workers(rounds);
  update(rounds, 100, 4096);
  update(rounds, 12, 1 << 20);
  exact_updates(rounds, 6, 64);
  exact_updates(rounds, 100, 4096);
  exact_updates(rounds, 12, 1 << 20);
  evaluation(rounds, 64);
  evaluation(rounds, 512);
  logging(rounds);
  recomputation(rounds);
}
