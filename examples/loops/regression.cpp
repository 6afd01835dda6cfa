/// The loop that `../regression.cpp` replaces, in plain LibTorch: `regression_loop EPOCHS DATA [sequential]`.

#include <torch/torch.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

constexpr std::int64_t batch_size = 16, eval_batch_size = 64;
constexpr double learning_rate = 3e-3, weight_decay = 0.01, max_grad_norm = 1;
constexpr std::uint64_t seed = 42;

struct Penguins {
  torch::Tensor inputs, masses;
  Penguins rows(const torch::Tensor& indices) const {
    return {inputs.index_select(0, indices), masses.index_select(0, indices)};
  }
};

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields;
  std::istringstream stream(line);
  for (std::string field; std::getline(stream, field, ',');) fields.push_back(field);
  return fields;
}

Penguins read(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) throw std::runtime_error("can't read " + path);
  const auto names = fields_of(line);
  const auto place = [&](const std::string& name) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) throw std::runtime_error(path + " has no column " + name);
    return static_cast<std::size_t>(found - names.begin());
  };
  const auto species = place("species"), sex = place("sex"), mass = place("body_mass_g");
  const std::vector<std::size_t> measures{place("bill_length_mm"), place("bill_depth_mm"),
                                          place("flipper_length_mm")};
  std::vector<float> inputs, masses;
  while (std::getline(file, line)) {
    const auto fields = fields_of(line);
    if (fields.size() != names.size()) throw std::runtime_error(path + ": fields are missing in: " + line);
    const auto is_missing = [&](std::size_t column) { return fields[column] == "NA"; };
    if (is_missing(sex) || is_missing(mass) || std::any_of(measures.begin(), measures.end(), is_missing))
      continue;
    for (const auto column : measures) inputs.push_back(std::stof(fields[column]));
    for (const auto* each : {"Adelie", "Chinstrap", "Gentoo"}) inputs.push_back(fields[species] == each);
    for (const auto* each : {"female", "male"}) inputs.push_back(fields[sex] == each);
    masses.push_back(std::stof(fields[mass]));
  }
  return {torch::tensor(inputs).reshape({-1, 8}), torch::tensor(masses).unsqueeze(1) / 1000};
}

struct NetImpl : torch::nn::Module {
  explicit NetImpl(const Penguins& train) {
    input_mean = register_buffer("input_mean", train.inputs.mean(0));
    input_scale = register_buffer("input_scale", train.inputs.std(0));
    mass_mean = register_buffer("mass_mean", train.masses.mean(0));
    mass_scale = register_buffer("mass_scale", train.masses.std(0));
  }

  torch::Tensor forward(torch::Tensor inputs) {
    const auto x = torch::relu(hidden1((inputs - input_mean) / input_scale));
    return out(torch::relu(hidden2(x))) * mass_scale + mass_mean;
  }

  torch::Tensor input_mean, input_scale, mass_mean, mass_scale;
  torch::nn::Linear hidden1 = register_module("hidden1", torch::nn::Linear(8, 32));
  torch::nn::Linear hidden2 = register_module("hidden2", torch::nn::Linear(32, 32));
  torch::nn::Linear out = register_module("out", torch::nn::Linear(32, 1));
};
TORCH_MODULE(Net);

int main(int argc, char** argv) {
  if (argc < 3) return std::fprintf(stderr, "regression_loop EPOCHS DATA [sequential]\n"), 1;
  const std::int64_t epochs = std::atoi(argv[1]);
  const bool shuffles = argc == 3;
  const torch::Device device(torch::cuda::is_available() ? torch::kCUDA : torch::kCPU);

  const auto all = read(argv[2]);
  torch::manual_seed(seed);
  const auto count = all.masses.size(0);
  const auto order = torch::randperm(count).split(count * 8 / 10);
  const auto train = all.rows(order[0]), test = all.rows(order[1]);

  torch::manual_seed(seed);
  Net model(train);
  model->to(device);
  std::vector<torch::Tensor> decayed, biases;
  for (const auto& item : model->named_parameters())
    (item.value().dim() > 1 ? decayed : biases).push_back(item.value());
  const auto options = [](double decay) {
    return std::make_unique<torch::optim::AdamWOptions>(
        torch::optim::AdamWOptions(learning_rate).weight_decay(decay));
  };
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(decayed, options(weight_decay));
  groups.emplace_back(biases, options(0));
  torch::optim::AdamW optimizer(std::move(groups));

  const auto train_count = train.masses.size(0), test_count = test.masses.size(0);
  for (std::int64_t epoch = 1; epoch <= epochs; ++epoch) {
    model->train();
    const auto rows = shuffles ? torch::randperm(train_count) : torch::arange(train_count);
    auto total = torch::zeros({}, device);
    double batches = 0;
    for (const auto& some : rows.split(batch_size)) {
      const auto batch = train.rows(some);
      optimizer.zero_grad();
      const auto loss = torch::mse_loss(model(batch.inputs.to(device)), batch.masses.to(device));
      loss.backward();
      torch::nn::utils::clip_grad_norm_(model->parameters(), max_grad_norm);
      optimizer.step();
      total += loss.detach();
      ++batches;
    }
    std::printf("epoch %ld loss %.6f\n", epoch, total.item<double>() / batches);

    model->eval();
    const torch::NoGradGuard no_grad;
    std::vector<torch::Tensor> predictions;
    for (const auto& some : test.inputs.split(eval_batch_size))
      predictions.push_back(model(some.to(device)).cpu());
    const auto predicted = torch::cat(predictions).to(torch::kDouble),
               masses = test.masses.to(torch::kDouble);
    const auto errors = predicted - masses;
    const auto unexplained = errors.square().sum() / (masses - masses.mean()).square().sum();
    std::printf("epoch %ld eval_mse %.6f eval_mae %.6f eval_r2 %.6f\n", epoch,
                errors.square().mean().item<double>(), errors.abs().mean().item<double>(),
                1 - unexplained.item<double>());

    std::ofstream file("predictions.csv");
    file << "prediction,target\n";
    for (std::int64_t i = 0; i < test_count; ++i)
      file << predicted[i].item<double>() << ',' << masses[i].item<double>() << '\n';
    if (!file.flush()) throw std::runtime_error("can't write predictions.csv");
  }
}
