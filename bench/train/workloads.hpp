#pragma once

#include <fmt/format.h>
#include <torch/nn.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gpt2/gpt2.hpp"

/// The networks, data and loss that every contestant trains. peers.py has the same networks in Python, with
/// the same parameter names.
namespace bench {

struct Moment {
  static Moment now() { return {std::chrono::steady_clock::now(), std::clock()}; }
  std::chrono::steady_clock::time_point wall;
  std::clock_t cpu;  // of all threads
};

/// Times a training from inside the network, so that the trainer needs no hooks: between call `warmup` of
/// `forward` and call `warmup + steps` there are exactly `steps` whole steps, in any trainer.
struct Clock {
  void start(std::int64_t warmup, std::int64_t steps) {
    *this = {.first = warmup, .last = warmup + steps, .started = Moment::now()};
  }
  void tick() {
    if (calls == 0) first_call = Moment::now();
    if (pause && calls >= first && calls <= last && (calls - first) % slice == 0) pause();
    if (calls == first) begin = Moment::now();
    if (calls == last) end = Moment::now();
    ++calls;
  }
  /// The number of steps to train: the last tick is at the beginning of the last one.
  std::int64_t steps_to_train() const { return last + 1; }

  std::int64_t first = 0, last = 0, calls = 0;
  Moment started = {}, first_call = {}, begin = {}, end = {};
  std::int64_t slice = 0;            // in steps
  std::function<void()> pause = {};  // before each slice and after the last, if set
};
inline Clock training_clock;

struct Network : torch::nn::Module {
  torch::Tensor forward(torch::Tensor inputs) {
    if (is_training()) training_clock.tick();
    return logits(inputs);
  }
  /// [examples, classes], or [examples * context, classes].
  virtual torch::Tensor logits(torch::Tensor inputs) = 0;
};

inline torch::Tensor loss(torch::Tensor logits, torch::Tensor targets) {
  return torch::nn::functional::cross_entropy(logits, targets.flatten());
}

/// True if weight decay applies to a parameter: as in Hugging Face's Trainer and Etude, it doesn't apply to
/// biases and normalisations.
inline bool decays(const std::string& parameter) {
  return !parameter.ends_with("bias") && parameter.find("norm") == std::string::npos &&
         parameter.find("ln_") == std::string::npos;
}

struct Perceptron : Network {
  explicit Perceptron(const std::vector<std::int64_t>& sizes) {
    for (std::size_t i = 0; i + 1 < sizes.size(); ++i)
      layers.push_back(register_module(fmt::format("layer{}", i), torch::nn::Linear(sizes[i], sizes[i + 1])));
  }
  torch::Tensor logits(torch::Tensor x) override {
    for (std::size_t i = 0; i + 1 < layers.size(); ++i) x = torch::relu(layers[i](x));
    return layers.back()(x);
  }
  std::vector<torch::nn::Linear> layers;
};

/// The network of examples/digits.cpp without its dropout, and without the biases that the normalisations
/// cancel: their gradients are rounding errors, which Adam would scale up to the size of all others.
struct ConvNet : Network {
  torch::Tensor logits(torch::Tensor pixels) override {
    const auto x = torch::relu(first_norm(first(pixels)));
    return head(torch::max_pool2d(torch::relu(second_norm(second(x))), 2).flatten(1));
  }
  torch::nn::Conv2d first =
      register_module("first", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 24, 3).padding(1).bias(false)));
  torch::nn::BatchNorm2d first_norm = register_module("first_norm", torch::nn::BatchNorm2d(24));
  torch::nn::Conv2d second = register_module(
      "second", torch::nn::Conv2d(torch::nn::Conv2dOptions(24, 48, 3).padding(1).bias(false)));
  torch::nn::BatchNorm2d second_norm = register_module("second_norm", torch::nn::BatchNorm2d(48));
  torch::nn::Linear head = register_module("head", torch::nn::Linear(48 * 4 * 4, 10));
};

inline constexpr std::int64_t context = 16, characters = 64, width = 32, heads = 4, layers = 8;

struct BlockImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x, torch::Tensor mask) {
    const auto batch = x.size(0), length = x.size(1);
    const auto parts =
        qkv(norm1(x)).reshape({batch, length, 3, heads, width / heads}).permute({2, 0, 3, 1, 4});
    const auto scores =
        parts[0].matmul(parts[1].transpose(-1, -2)) / std::sqrt(static_cast<double>(width / heads));
    const auto mixed = scores.masked_fill(mask, -1e9).softmax(-1).matmul(parts[2]);
    x = x + out(mixed.transpose(1, 2).reshape({batch, length, width}));
    return x + down(torch::gelu(up(norm2(x))));
  }
  torch::nn::LayerNorm norm1 =
      register_module("norm1", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
  torch::nn::Linear qkv = register_module("qkv", torch::nn::Linear(width, 3 * width));
  torch::nn::Linear out = register_module("out", torch::nn::Linear(width, width));
  torch::nn::LayerNorm norm2 =
      register_module("norm2", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
  torch::nn::Linear up = register_module("up", torch::nn::Linear(width, 4 * width));
  torch::nn::Linear down = register_module("down", torch::nn::Linear(4 * width, width));
};
TORCH_MODULE(Block);

/// The network of examples/char_lm.cpp: a hundred small parameter tensors.
struct Transformer : Network {
  Transformer() {
    for (std::int64_t i = 0; i < layers; ++i)
      blocks.push_back(register_module(fmt::format("block{}", i), Block()));
  }
  torch::Tensor logits(torch::Tensor text) override {
    const auto mask = torch::ones({context, context}, torch::kBool).triu(1);
    auto x = embedding(text) + position;
    for (auto& block : blocks) x = block(x, mask);
    return head(norm(x)).flatten(0, 1);
  }
  torch::nn::Embedding embedding = register_module("embedding", torch::nn::Embedding(characters, width));
  torch::Tensor position = register_parameter("position", 0.02 * torch::randn({context, width}));
  std::vector<Block> blocks;
  torch::nn::LayerNorm norm =
      register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
  torch::nn::Linear head = register_module("head", torch::nn::Linear(width, characters));
};

/// The model of examples/gpt2.cpp.
struct GPT2 : Network {
  static gpt2::Config config() {
    return {.vocab_size = 512,
            .n_positions = 64,
            .n_embd = 128,
            .n_layer = 4,
            .n_head = 4,
            .resid_pdrop = 0,
            .embd_pdrop = 0,
            .attn_pdrop = 0};
  }
  torch::Tensor logits(torch::Tensor ids) override { return model->forward(ids).flatten(0, 1); }
  gpt2::GPT2 model = register_module("model", gpt2::GPT2(config()));
};

struct Examples {
  torch::Tensor inputs, targets;
};

/// Points around the origin, each labelled by a random linear map.
inline Examples classified_noise(std::int64_t count, std::int64_t features, std::int64_t classes) {
  const auto inputs = torch::randn({count, features});
  return {inputs, inputs.matmul(torch::randn({features, classes})).argmax(1)};
}

/// Pixels [1792, 64] between 0 and 1, and digits [1792]: a multiple of the batch size, 32.
inline Examples digits() {
  std::ifstream file(ETUDE_EXAMPLE_DATA "/optdigits.csv");
  std::vector<float> numbers;
  for (std::string number; std::getline(file, number, numbers.size() % 65 == 64 ? '\n' : ',');)
    numbers.push_back(std::stof(number));
  const auto table = torch::tensor(numbers).reshape({-1, 65}).narrow(0, 0, 1792);
  return {table.narrow(1, 0, 64).contiguous() / 16, table.select(1, 64).to(torch::kLong)};
}

/// Windows of a text in which each token depends on the previous one and a random number.
inline Examples windows(std::int64_t count, std::int64_t length, std::int64_t tokens) {
  const std::int64_t stride = length / 2;
  std::mt19937 die(1);
  std::vector<std::int64_t> text(static_cast<std::size_t>((count - 1) * stride + length + 1), 1);
  for (std::size_t i = 1; i < text.size(); ++i)
    text[i] = (5 * text[i - 1] + static_cast<std::int64_t>(die() % 4)) % tokens;
  const auto all = torch::tensor(text);
  const auto cut = [&](std::int64_t from) {
    return all.narrow(0, from, all.size(0) - 1).unfold(0, length, stride).contiguous();
  };
  return {cut(0), cut(1)};
}

struct Workload {
  std::string name;
  std::int64_t batch_size;
  std::function<std::shared_ptr<Network>()> network;
  std::function<Examples()> examples;
};

inline const std::vector<Workload>& workloads() {
  using Sizes = std::vector<std::int64_t>;
  static const std::vector<Workload> all{
      {"tiny", 32,
       [] {
         return std::make_shared<Perceptron>(Sizes{4, 16, 2});
       },
       [] { return classified_noise(4096, 4, 2); }},
      {"perceptron", 32,
       [] {
         return std::make_shared<Perceptron>(Sizes{64, 64, 64, 10});
       },
       digits},
      {"wide", 32,
       [] {
         return std::make_shared<Perceptron>(Sizes{784, 1024, 10});
       },
       [] { return classified_noise(2048, 784, 10); }},
      {"convnet", 32, [] { return std::make_shared<ConvNet>(); },
       [] {
         const auto [pixels, labels] = digits();
         return Examples{pixels.reshape({-1, 1, 8, 8}), labels};
       }},
      {"transformer", 8, [] { return std::make_shared<Transformer>(); },
       [] { return windows(2048, context, characters); }},
      {"gpt2", 8, [] { return std::make_shared<GPT2>(); },
       [] { return windows(1024, GPT2::config().n_positions, GPT2::config().vocab_size); }}};
  return all;
}

}  // namespace bench
