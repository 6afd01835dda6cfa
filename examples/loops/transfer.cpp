/// The loop that examples/transfer.cpp replaces, written by hand in plain LibTorch.

#include <torch/script.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

struct HeadImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor features) { return head(features); }
  torch::nn::Linear head = register_module("head", torch::nn::Linear(32, 10));
};
TORCH_MODULE(Head);

std::pair<torch::Tensor, torch::Tensor> read_digits() {
  std::ifstream file(ETUDE_EXAMPLE_DATA "/optdigits.csv");
  if (!file) throw std::runtime_error("can't read optdigits.csv");
  std::vector<float> numbers;
  for (std::string number; std::getline(file, number, numbers.size() % 65 == 64 ? '\n' : ',');)
    numbers.push_back(std::stof(number));
  const auto table = torch::tensor(numbers).reshape({-1, 65});
  return {table.narrow(1, 0, 64) / 16, table.select(1, 64).to(torch::kLong)};
}

struct Part {
  torch::Tensor pixels, digits;
};

struct Net {
  torch::jit::Module backbone;
  Head head;

  torch::Tensor forward(const torch::Tensor& pixels) { return head(backbone.forward({pixels}).toTensor()); }
  void train(bool on) {
    backbone.train(on);
    head->train(on);
  }
};

bool decays(const std::string& name) { return name.find("bias") == std::string::npos; }

/// The index of the backbone's layer that a parameter belongs to: "0.weight" is in the first.
std::vector<std::string> layers_of(const torch::jit::Module& backbone) {
  std::vector<std::string> layers;
  for (const auto& parameter : backbone.named_parameters()) {
    const auto layer = parameter.name.substr(0, parameter.name.find('.'));
    if (layers.empty() || layers.back() != layer) layers.push_back(layer);
  }
  return layers;
}

struct Group {
  std::vector<torch::Tensor> parameters;
  double rate, weight_decay;
};

/// Groups with and without weight decay for each layer; each layer's rate is `decay` times the next layer's.
std::vector<Group> groups_of(Net& net, double rate, double decay, double weight_decay, bool with_backbone) {
  std::vector<Group> groups;
  const auto layers = layers_of(net.backbone);
  for (std::size_t i = 0; with_backbone && i < layers.size(); ++i) {
    const double lower = rate * std::pow(decay, static_cast<double>(layers.size() - i));
    std::vector<torch::Tensor> with, without;
    for (const auto& parameter : net.backbone.named_parameters())
      if (parameter.name.rfind(layers[i] + ".", 0) == 0)
        (decays(parameter.name) ? with : without).push_back(parameter.value);
    groups.push_back({with, lower, weight_decay});
    groups.push_back({without, lower, 0});
  }
  groups.push_back({{net.head->head->weight}, rate, weight_decay});
  groups.push_back({{net.head->head->bias}, rate, 0});
  return groups;
}

std::unique_ptr<torch::optim::AdamW> optimizer_of(const std::vector<Group>& groups) {
  std::vector<torch::optim::OptimizerParamGroup> parameters;
  for (const auto& group : groups) parameters.emplace_back(group.parameters);
  auto optimizer = std::make_unique<torch::optim::AdamW>(parameters, torch::optim::AdamWOptions());
  // Passed to the constructor, a rate of 0.001 would count as unset, since it is LibTorch's default.
  for (std::size_t i = 0; i < groups.size(); ++i) {
    auto& options = static_cast<torch::optim::AdamWOptions&>(optimizer->param_groups()[i].options());
    options.lr(groups[i].rate).weight_decay(groups[i].weight_decay);
  }
  return optimizer;
}

std::vector<torch::Tensor> trainable(Net& net) {
  auto all = net.head->parameters();
  for (const auto& parameter : net.backbone.parameters())
    if (parameter.requires_grad()) all.push_back(parameter);
  return all;
}

void fit(Net& net, torch::optim::Optimizer& optimizer, const Part& data, int epochs) {
  constexpr std::int64_t batch_size = 32;
  const auto count = data.pixels.size(0);
  torch::nn::CrossEntropyLoss loss_of;
  net.train(true);
  for (int epoch = 1; epoch <= epochs; ++epoch) {
    auto total = torch::zeros({});
    std::int64_t steps = 0;
    for (std::int64_t first = 0; first < count; first += batch_size, ++steps) {
      const auto size = std::min(batch_size, count - first);
      optimizer.zero_grad();
      const auto loss =
          loss_of(net.forward(data.pixels.narrow(0, first, size)), data.digits.narrow(0, first, size));
      loss.backward();
      torch::nn::utils::clip_grad_norm_(trainable(net), 1.0);
      optimizer.step();
      total += loss.detach();
    }
    std::printf("epoch %d loss %.6f\n", epoch, total.item<double>() / static_cast<double>(steps));
  }
}

/// Uses the names of a module with a backbone and a head, for torch.load in Python.
void save(Net& net, const std::string& path) {
  c10::Dict<std::string, torch::Tensor> state;
  for (const auto& parameter : net.backbone.named_parameters())
    state.insert("backbone." + parameter.name, parameter.value.detach());
  for (const auto& buffer : net.backbone.named_buffers())
    state.insert("backbone." + buffer.name, buffer.value);
  for (const auto& parameter : net.head->named_parameters())
    state.insert(parameter.key(), parameter.value().detach());
  const auto bytes = torch::pickle_save(state);
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!file.flush()) throw std::runtime_error("can't write " + path);
}

int main(int argc, char** argv) try {
  constexpr double rate = 4e-3, decay = 0.5, weight_decay = 0;
  constexpr int epochs = 4;
  const auto [pixels, digits] = read_digits();
  torch::manual_seed(42);
  const auto order = torch::randperm(digits.size(0)).split(digits.size(0) * 8 / 10);
  const Part train{pixels.index_select(0, order[0]), digits.index_select(0, order[0])};
  const Part test{pixels.index_select(0, order[1]), digits.index_select(0, order[1])};

  torch::manual_seed(1);
  Net net{torch::jit::load(argc > 1 ? argv[1] : "backbone.pt"), Head()};

  for (auto parameter : net.backbone.parameters()) parameter.set_requires_grad(false);
  fit(net, *optimizer_of(groups_of(net, rate, 1, weight_decay, false)), train, epochs);

  for (auto parameter : net.backbone.parameters()) parameter.set_requires_grad(true);
  fit(net, *optimizer_of(groups_of(net, rate, decay, weight_decay, true)), train, epochs);
  save(net, "transferred.pt");

  net.train(false);
  const torch::NoGradGuard no_grad;
  const auto right = net.forward(test.pixels).argmax(1) == test.digits;
  std::printf("accuracy %.4f\n", right.to(torch::kDouble).mean().item<double>());
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
