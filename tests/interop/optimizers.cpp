#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/base/read_file.hpp"
#include "etude/formats/safetensors.hpp"
#include "etude/optim/cpu_kernels.hpp"
#include "etude/optim/create.hpp"
#include "etude/optim/optimizer.hpp"
#include "etude/optim/parameter_groups.hpp"
#include "etude/reflect/command_line.hpp"
#include "etude/reflect/enum.hpp"
#include "etude/training_arguments.hpp"

// The C++ half of optimizers.py: trains the same networks as the script.
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

/// Initial weights by name, and batches by name, in float64 (tokens in int64).
using Tensors = std::map<std::string, torch::Tensor>;

struct Case {
  explicit Case(const Json& json)
      : arguments(etude::parse_arguments<etude::TrainingArguments>(
            json.at("arguments").get<std::vector<std::string>>())),
        network(json.at("network")),
        type(json.at("dtype") == "float64" ? at::kDouble : at::kFloat),
        kernels(json.at("kernels")),
        max_norm(json.at("max_norm")),
        accumulation(json.at("accumulation")),
        batches(json.at("batches")),
        steps(json.at("steps")) {}

  etude::TrainingArguments arguments;
  std::string network;
  at::ScalarType type;
  bool kernels;
  double max_norm;  // 0 doesn't clip
  std::int64_t accumulation, batches, steps;
};

/// One training, whose network has the weights NETWORK/NAME.
class Training {
 public:
  Training(const Case& of, const Tensors& tensors, const Json& factors)
      : case_(of), tensors_(tensors), factors_(factors) {
    for (const auto& [name, values] : tensors) {
      if (!name.starts_with(of.network + "/")) continue;
      const auto own = name.substr(of.network.size() + 1);
      const auto parameter = values.to(of.type).clone().set_requires_grad(!own.starts_with("frozen"));
      parameters_.emplace_back(own, parameter);
      by_name_[own] = parameter;
    }
    optimizer_ = etude::make_optimizer(of.arguments, parameters_);
  }

  const etude::NamedTensors& parameters() const { return parameters_; }

  /// Adds copies of the weights to `results`, and as "averaged NAME" the weights to evaluate and save if they
  /// differ.
  void record(const std::string& prefix, etude::NamedTensors& results) {
    const auto add = [&](const char* kind) {
      for (const auto& [name, values] : parameters_)
        results.emplace_back(fmt::format("{}/{}{}", prefix, kind, name), values.detach().clone());
    };
    add("");
    if (!optimizer_->use_weights(etude::WeightsInUse::averaged)) return;
    add("averaged ");
    optimizer_->use_weights(etude::WeightsInUse::training);
  }

  /// Makes step `number`, counted from 0. Returns the norm of its gradients if it clips.
  double step(std::int64_t number) {
    const double factor =
        factors_.at(static_cast<std::size_t>(number) % factors_.size()).template get<double>();
    for (std::size_t i = 0; i < optimizer_->param_groups().size(); ++i) {
      const double initial = optimizer_->param_groups()[i].initial_lr;
      optimizer_->set_learning_rates(i, initial * factor, initial);
    }
    const auto compute = [&] {
      optimizer_->zero_grad();
      torch::Tensor total = torch::zeros({}, case_.type);
      for (std::int64_t pass = 0; pass < case_.accumulation; ++pass) {
        const auto part = loss(number, pass) / static_cast<double>(case_.accumulation);
        part.backward();
        total += part.detach();
      }
      return total;
    };
    if (optimizer_->needs_closure()) {
      optimizer_->step(compute);
      return 0;
    }
    compute();
    double norm = 0;
    if (case_.max_norm > 0) norm = optimizer_->clip_grad_norm_in_step(case_.max_norm).item<double>();
    optimizer_->step();
    return norm;
  }

  /// Continues from this training's weights, state and options in a new optimizer.
  Training resumed() const {
    Training next(case_, tensors_, factors_);
    {
      const torch::NoGradGuard no_grad;
      for (const auto& [name, parameter] : parameters_) next.by_name_.at(name).copy_(parameter);
    }
    std::vector<std::string> differences;
    next.optimizer_->load_options(optimizer_->options_state(), differences);
    if (!differences.empty()) throw std::runtime_error("a resumed option differs: " + differences.front());
    etude::NamedTensors state;
    for (const auto& [name, tensor] : optimizer_->state()) state.emplace_back(name, tensor.clone());
    next.optimizer_->load_state(state);
    return next;
  }

 private:
  torch::Tensor loss(std::int64_t step, std::int64_t pass) const {
    const auto batch = [&](const char* name) {
      const auto data = tensors_.at(name)[step % case_.batches][pass];
      return data.is_floating_point() ? data.to(case_.type) : data;
    };
    const auto& p = by_name_;
    const bool with_sometimes = step % 3 == 1;
    if (case_.network == "dense") {
      auto h = torch::conv1d(batch("inputs"), p.at("conv.weight"));
      h = torch::tanh(torch::linear(h.flatten(1), p.at("first.weight"), p.at("first.bias")));
      h = h * p.at("norm.weight") + p.at("frozen.weight");
      if (with_sometimes)
        h = h + torch::tanh(torch::linear(h, p.at("sometimes.weight"), p.at("sometimes.bias")));
      const auto output = torch::linear(h, p.at("second.weight"), p.at("second.bias")) * p.at("scale");
      return (output - batch("targets")).square().mean();
    }
    const auto rows = [&](const char* name) {
      return torch::embedding(p.at(name), batch("tokens"), -1, false, /*sparse=*/true);
    };
    auto h = rows("first.weight").sum(1);
    if (with_sometimes) h = h + rows("sometimes.weight").sum(1);
    return ((h * rows("second.weight").sum(1)) - batch("products")).square().mean();
  }

  const Case& case_;
  const Tensors& tensors_;
  const Json& factors_;
  etude::NamedTensors parameters_;
  std::map<std::string, torch::Tensor> by_name_;
  std::unique_ptr<etude::Optimizer> optimizer_;
};

/// The name of the first parameter that isn't equal bit for bit, or nothing.
std::string difference(const etude::NamedTensors& a, const etude::NamedTensors& b) {
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!a[i].second.equal(b[i].second)) return a[i].first;
  return "";
}

/// Adds the weights after each step in `records` to `results`, and the norms of all steps.
Json run(const std::string& name, const Json& json, const Tensors& tensors, const Json& request,
         etude::NamedTensors& results) {
  const Case of(json);
  etude::detail::uses_cpu_kernels() = of.kernels;
  const auto records = request.at("records").get<std::vector<std::int64_t>>();
  Training training(of, tensors, request.at("factors"));
  std::vector<double> norms;
  std::unique_ptr<Training> resumed;
  for (std::int64_t i = 0; i < of.steps; ++i) {
    norms.push_back(training.step(i));
    if (resumed) resumed->step(i);
    if (i + 1 == of.steps / 2) resumed = std::make_unique<Training>(training.resumed());
    if (std::ranges::find(records, i + 1) != records.end())
      training.record(fmt::format("{}/{}", name, i + 1), results);
  }
  results.emplace_back(fmt::format("{}/norms", name), torch::tensor(norms, at::kDouble));
  return {{"differs_after_resume", difference(resumed->parameters(), training.parameters())}};
}

void run_all(const fs::path& folder) {
  const auto request = Json::parse(etude::detail::read_file(folder / "request.json").value());
  const auto data = etude::load_safetensors(folder / "data.safetensors");
  const Tensors tensors(data.tensors.begin(), data.tensors.end());
  etude::NamedTensors results;
  Json cases = Json::object();
  for (const auto& [name, json] : request.at("cases").items()) {
    try {
      cases[name] = run(name, json, tensors, request, results);
    } catch (const std::exception& error) {
      cases[name] = {{"error", error.what()}};
    }
  }
  etude::save_safetensors(folder / "results.safetensors", results);
  const Json report{{"optimizers", etude::enum_names<etude::OptimizerNames>}, {"cases", cases}};
  std::ofstream(folder / "report.json") << report;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: {} FOLDER\n", argv[0]);
    return 2;
  }
  at::set_num_threads(1);
  try {
    run_all(argv[1]);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
