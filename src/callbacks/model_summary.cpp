#include "etude/callbacks/model_summary.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdio>
#include <unordered_set>
#include <utility>

#include "etude/any_trainer.hpp"
#include "etude/base/message.hpp"
#include "etude/callbacks/text_table.hpp"
#include "etude/model/model.hpp"

namespace etude::inline v0 {

namespace detail {

namespace {

/// The class name without namespaces, template arguments and "Impl": "Net" for "etude::NetImpl".
std::string short_class_name(std::string name) {
  name = name.substr(0, name.find('<'));
  if (const auto end = name.find_last_of(":."); end != name.npos) name.erase(0, end + 1);
  if (name.size() > 4 && name.ends_with("Impl")) name.resize(name.size() - 4);
  return name;
}

/// A native or TorchScript module.
struct AnyLayer {
  std::string name;
  std::string type;
  std::vector<NamedTensor> parameters;  ///< direct parameters only
  bool has_children;
};

std::vector<AnyLayer> layers_of(const Model& model) {
  std::vector<AnyLayer> layers;
  if (const auto module = model.module()) {
    for (const auto& entry : module->named_modules("", /*include_self=*/true)) {
      const auto& part = *entry.value();
      AnyLayer layer{entry.key(), short_class_name(part.name()), {}, !part.children().empty()};
      for (const auto& item : part.named_parameters(/*recurse=*/false))
        layer.parameters.emplace_back(item.key(), item.value());
      layers.push_back(std::move(layer));
    }
  } else {
    for (const auto& entry : model.as<torch::jit::Module>().named_modules()) {
      const auto type = entry.value.type()->name();
      AnyLayer layer{entry.name, type ? type->name() : "", {}, entry.value.children().size() > 0};
      for (const auto& item : entry.value.named_parameters(/*recurse=*/false))
        layer.parameters.emplace_back(item.name, item.value);
      layers.push_back(std::move(layer));
    }
  }
  return layers;
}

std::int64_t depth_of(std::string_view name) {
  return name.empty() ? 0 : 1 + std::count(name.begin(), name.end(), '.');
}

/// Adds parameters that aren't in `seen` yet.
void count_parameters(const std::vector<NamedTensor>& parameters, std::unordered_set<const void*>& seen,
                      LayerSummary& layer) {
  for (const auto& [name, parameter] : parameters) {
    if (!parameter.defined() || !seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
    layer.parameters += parameter.numel();
    if (parameter.requires_grad()) layer.trainable += parameter.numel();
  }
}

std::int64_t bytes_in(const std::vector<NamedTensor>& tensors) {
  std::int64_t bytes = 0;
  for (const auto& [name, tensor] : tensors)
    if (tensor.defined()) bytes += tensor.numel() * static_cast<std::int64_t>(tensor.element_size());
  return bytes;
}

}  // namespace

}  // namespace detail

ModelSummary summary(const Model& model, std::int64_t max_depth) {
  ModelSummary result;
  std::unordered_set<const void*> seen;
  for (const auto& layer : detail::layers_of(model)) {
    const bool lies_deeper = max_depth >= 0 && detail::depth_of(layer.name) > max_depth;
    if (!lies_deeper &&
        (!layer.parameters.empty() || !layer.has_children || detail::depth_of(layer.name) == max_depth)) {
      LayerSummary row;
      row.name = layer.name;
      row.type = layer.type;
      for (const auto& [name, parameter] : layer.parameters)
        row.shapes += fmt::format("{}{} [{}]", row.shapes.empty() ? "" : ", ", name,
                                  fmt::join(parameter.sizes().vec(), ", "));
      result.layers.push_back(std::move(row));
    }
    if (!result.layers.empty()) detail::count_parameters(layer.parameters, seen, result.layers.back());
  }
  for (const auto& layer : result.layers) {
    result.parameters += layer.parameters;
    result.trainable += layer.trainable;
  }
  result.parameter_bytes = detail::bytes_in(model.named_parameters());
  result.buffer_bytes = detail::bytes_in(model.named_buffers());
  return result;
}

std::string ModelSummary::table() const {
  std::vector<std::vector<std::string>> rows{{"Name", "Type", "Shapes", "Parameters", "Trainable"}};
  for (const auto& layer : layers)
    rows.push_back({layer.name.empty() ? "(model)" : layer.name, layer.type, layer.shapes,
                    detail::in_thousands(layer.parameters),
                    layer.parameters == 0                 ? ""
                    : layer.trainable == layer.parameters ? "yes"
                    : layer.trainable == 0                ? "no"
                                                          : detail::in_thousands(layer.trainable)});
  const auto megabytes = [](std::int64_t bytes) { return static_cast<double>(bytes) / 1e6; };
  return detail::text_table(rows, 3) +
         fmt::format(
             "{} parameters: {} trainable, {} frozen\n{:.3f} MB of parameters, {:.3f} MB of buffers\n",
             detail::in_thousands(parameters), detail::in_thousands(trainable),
             detail::in_thousands(parameters - trainable), megabytes(parameter_bytes),
             megabytes(buffer_bytes));
}

void ModelSummaryCallback::on(const TrainBegin& e) {
  if (!e.state.is_world_process_zero) return;
  auto table = summary(e.model, max_depth).table();
  if (memory && e.args.world_size() > 1)
    table += "memory: estimated in one process only, by estimate_memory(trainer, {.world_size = ...})\n";
  else if (memory)
    table += "\n" + e.trainer.memory_estimate().table();
  print ? print(table) : write_text(stdout, table);
}

}  // namespace etude::inline v0
