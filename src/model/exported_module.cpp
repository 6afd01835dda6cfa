#include "etude/model/exported_module.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/base/lower_case.hpp"
#include "etude/formats/pt2_archive.hpp"
#include "etude/io/entry_name.hpp"
#include "etude/libtorch/autocast.hpp"
#include "etude/libtorch/torch_error.hpp"
#include "etude/model/compiled_graph.hpp"
#include "etude/model/exported_compiled.hpp"
#include "etude/model/exported_program.hpp"

namespace etude::inline v0 {
namespace detail {

namespace {

/// True for the names that Hugging Face gives to inputs that only the loss needs.
bool is_label(std::string_view input) {
  const auto name = lower_case(input);
  return name.find("label") != name.npos || name == "target" || name == "targets" ||
         name == "start_positions" || name == "end_positions";
}

std::string class_of(const ExportedProgram& program, const std::string& path) {
  const auto found = program.classes.find(path);
  return found == program.classes.end() ? "ExportedModule" : found->second;
}

/// Finds the module that a state's dotted name leads to, and creates missing modules on the way. Returns it
/// with the last part of the name.
std::pair<torch::nn::Module*, std::string> place_in(torch::nn::Module& root, const ExportedProgram& program,
                                                    const std::string& name) {
  auto* module = &root;
  std::size_t begin = 0;
  for (auto dot = name.find('.'); dot != name.npos; dot = name.find('.', begin)) {
    const auto part = name.substr(begin, dot - begin);
    const auto children = module->named_children();
    const auto* child = children.find(part);
    module = child
                 ? child->get()
                 : module
                       ->register_module(
                           part, std::make_shared<torch::nn::Module>(class_of(program, name.substr(0, dot))))
                       .get();
    begin = dot + 1;
  }
  return {module, name.substr(begin)};
}

constexpr std::string_view not_asked_for = "load_exported was called without run_compiled_code";

/// Held while an archive is read after loading: clones share the open file.
std::mutex& reading_archives() {
  static std::mutex mutex;
  return mutex;
}

}  // namespace

}  // namespace detail

ExportedModuleImpl::ExportedModuleImpl(Content content)
    : torch::nn::Module(detail::class_of(content.training, "")),
      content_(std::move(content)),
      training_(bound(content_.training)) {
  register_state(content_.training);
  if (content_.evaluation) register_state(*content_.evaluation);
  const auto& tensors = content_.tensors;
  for (const auto& [name, kept] : content_.tied) {
    const auto one = tensors.find(name), other = tensors.find(kept);
    if (one == tensors.end() || other == tensors.end() || !one->second.is_same(other->second) ||
        content_.tied.contains(kept))
      throw CheckpointError(fmt::format("{}: '{}' isn't tied to '{}'", content_.name, detail::printable(name),
                                        detail::printable(kept)));
  }
  for (const auto& [name, own] : content_.adapter)
    if (!named_parameters().contains(own) && !named_buffers().contains(own))
      throw CheckpointError(
          fmt::format("{}: it has no tensor '{}' of the adapter", content_.name, detail::printable(own)));
  if (content_.evaluation) evaluation_.emplace(bound(*content_.evaluation));
  convert(torch::kCPU, {}, false);  // moves the graphs too, if they were exported on another device
}

torch::Tensor ExportedModuleImpl::tensor_of(const detail::ExportedProgram& program,
                                            const detail::ExportedState& state) const {
  const auto& tensors =
      state.kind == detail::ExportedState::Kind::constant ? program.constants : content_.tensors;
  const auto found = tensors.find(state.name);
  if (found == tensors.end())
    throw CheckpointError(
        fmt::format("{}: it has no tensor '{}'", content_.name, detail::printable(state.name)));
  return found->second;
}

void ExportedModuleImpl::register_state(const detail::ExportedProgram& program) {
  using Kind = detail::ExportedState::Kind;
  std::set<std::string> known;
  for (const auto& item : named_parameters()) known.insert(item.key());
  for (const auto& item : named_buffers()) known.insert(item.key());
  for (const auto& state : program.states) {
    const auto tensor = tensor_of(program, state);
    if (state.kind == Kind::constant || !state.is_persistent) {
      constants_.push_back(tensor);
      continue;
    }
    if (!known.insert(state.name).second) continue;
    constexpr std::ptrdiff_t deepest = 64;  // modules are visited recursively, so the depth is limited
    if (state.name.empty() || state.name.front() == '.' || state.name.back() == '.' ||
        state.name.find("..") != std::string::npos || std::ranges::count(state.name, '.') > deepest)
      throw CheckpointError(fmt::format("{}: '{}' isn't a valid name of a parameter or buffer", content_.name,
                                        detail::printable(state.name)));
    const auto [module, name] = detail::place_in(*this, program, state.name);
    const bool trains = state.requires_grad && (tensor.is_floating_point() || tensor.is_complex());
    if (state.kind == Kind::parameter)
      module->register_parameter(name, trains ? tensor.requires_grad_() : tensor, trains);
    else
      module->register_buffer(name, tensor);
  }
}

ExportedModuleImpl::Bound ExportedModuleImpl::bound(detail::ExportedProgram& program) const {
  Bound result{program, {}, {}};
  for (const auto& state : program.states)
    result.tensors.emplace_back(state.index, tensor_of(program, state));
  for (const auto& [output, name] : program.mutations)
    result.mutated.emplace_back(output, tensor_of(program, {detail::ExportedState::Kind::buffer, name}));
  return result;
}

TensorFiles ExportedModuleImpl::tensor_files() const {
  if (content_.adapter.empty()) return {};
  return {{"adapter_model.safetensors", content_.adapter}};
}

std::vector<ExportedModuleImpl::Input> ExportedModuleImpl::inputs() const {
  std::vector<Input> result;
  for (const auto& input : training_.program.inputs) {
    auto& added = result.emplace_back(Input{input.name, input.dtype, {}, detail::is_label(input.name)});
    for (const auto& size : input.sizes) added.sizes.push_back(size.fixed < 0 ? -1 : size.fixed);
  }
  return result;
}

std::vector<std::string> ExportedModuleImpl::input_names() const {
  std::vector<std::string> names;
  for (const auto& input : training_.program.inputs) names.push_back(input.name);
  return names;
}

std::vector<torch::Tensor> ExportedModuleImpl::ordered(const detail::ExportedProgram& program,
                                                       const Tensors& inputs) const {
  std::vector<torch::Tensor> result(program.inputs.size());
  const auto& names = inputs.names();
  const auto no_labels = [](const auto& input) { return !detail::is_label(input.name); };
  if (names.empty()) {
    if (inputs.size() == result.size()) {
      std::ranges::copy(inputs, result.begin());
      return result;
    }
    const auto first = std::ranges::find_if(program.inputs, no_labels);
    if (inputs.size() == 1 && std::ranges::count_if(program.inputs, no_labels) == 1) {
      result[static_cast<std::size_t>(first - program.inputs.begin())] = inputs[0];
      return result;
    }
    throw DataError(
        fmt::format("{} takes {}, but the batch has {} without names: name the fields of the examples",
                    name(), fmt::join(input_names(), ", "),
                    inputs.size() == 1 ? "one tensor" : fmt::format("{} tensors", inputs.size())));
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto found = std::ranges::find(program.inputs, names[i], &detail::ExportedInput::name);
    if (found == program.inputs.end())
      throw DataError(
          fmt::format("{} has no input '{}': it takes {}", name(), names[i], fmt::join(input_names(), ", ")));
    result[static_cast<std::size_t>(found - program.inputs.begin())] = inputs[i];
  }
  return result;
}

const detail::ExportedGraph& ExportedModuleImpl::graph_for(Bound& bound,
                                                           const std::vector<torch::Tensor>& given) {
  const auto& program = bound.program;
  if (std::ranges::all_of(given, [](const auto& tensor) { return tensor.defined(); })) return program.graph;
  std::vector<bool> absent(program.graph.inputs.size());
  for (std::size_t i = 0; i < given.size(); ++i) absent[program.inputs[i].index] = !given[i].defined();
  const auto found = bound.partial.find(absent);
  if (found != bound.partial.end()) return found->second;
  return bound.partial.emplace(absent, program.graph.pruned(absent)).first->second;
}

void ExportedModuleImpl::refuse_mode(const std::string& operation, std::string_view mode) const {
  throw Error(
      fmt::format("{} was exported in one mode, and its {} can't be switched to {} mode: export both modes "
                  "into one file, as tools/export.py does",
                  name(), operation, mode));
}

Tensors ExportedModuleImpl::forward(const Tensors& inputs) {
  auto& bound = !is_training() && evaluation_ ? *evaluation_ : training_;
  auto& program = bound.program;
  if (!evaluation_ && is_training() && !program.no_training.empty())
    refuse_mode(program.no_training, "training");
  if (!evaluation_ && !is_training() && !program.no_evaluation.empty())
    refuse_mode(program.no_evaluation, "evaluation");
  const auto given = ordered(program, inputs);
  const detail::ExportedGraph* graph = nullptr;
  {
    const std::lock_guard lock(mutex_);
    std::vector<std::vector<std::int64_t>> sizes;
    for (const auto& tensor : given) {
      sizes.push_back(tensor.defined() ? tensor.sizes().vec() : std::vector<std::int64_t>{-1});
      if (!tensor.defined()) continue;
      sizes.back().push_back(static_cast<std::int64_t>(tensor.scalar_type()));
      if (!program.has_conditions_of_layout) continue;
      sizes.back().insert(sizes.back().end(), tensor.strides().begin(), tensor.strides().end());
      sizes.back().push_back(tensor.storage_offset());
    }
    if (sizes != bound.checked) {
      program.check_inputs(given);
      bound.checked = std::move(sizes);
    }
    graph = &graph_for(bound, given);
  }
  std::vector<c10::IValue> values(graph->inputs.size());
  for (const auto& [index, tensor] : bound.tensors) values[index] = tensor;
  for (std::size_t i = 0; i < given.size(); ++i)
    if (given[i].defined()) values[program.inputs[i].index] = given[i];
  auto results = graph->run(std::move(values), is_training());

  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < bound.mutated.size(); ++i) {
    const auto& mutated = bound.mutated[i];
    const auto& result = results[mutated.first];
    if (!result.isTensor()) continue;
    with_place([&] { mutated.second.copy_(result.toTensor()); },
               [&] { return fmt::format("buffer {}", program.mutations[i].second); });
  }
  std::vector<torch::Tensor> outputs;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < program.outputs.size(); ++i) {
    auto& value = results[program.outputs[i]];
    if (!value.isTensor()) continue;
    outputs.push_back(std::move(value).toTensor());
    if (!program.output_names.empty()) names.push_back(program.output_names[i]);
  }
  if (outputs.empty()) {
    std::vector<std::string> missing;
    for (std::size_t i = 0; i < given.size(); ++i)
      if (!given[i].defined()) missing.push_back(program.inputs[i].name);
    throw DataError(
        fmt::format("{} can't compute any output: the batch has no {}", name(), fmt::join(missing, ", ")));
  }
  return {std::move(outputs), std::move(names)};
}

HasCompiledGraph::Result ExportedModuleImpl::forward_compiled(const Tensors& inputs) {
  if (!content_.compiled) return {{}, std::string(detail::not_asked_for)};
  if (!is_training()) return {{}, "the model is in evaluation mode"};
  if (!at::GradMode::is_enabled()) return {{}, "gradients are disabled"};
  const auto& program = training_.program;
  const auto given = ordered(program, inputs);
  const auto device = this->device();
  const auto choice = compiled_for(device, autocast_in_force(device.type()));
  if (!choice->bound.graph) return {{}, choice->why_not};
  return detail::run_compiled(choice->bound, given, device, program, name());
}

std::string ExportedModuleImpl::why_no_graph(std::optional<torch::ScalarType> autocast) {
  if (!content_.compiled) return std::string(detail::not_asked_for);
  const auto device = this->device();
  const auto choice = compiled_for(device, autocast);
  if (!choice->bound.graph) return choice->why_not;
  return choice->bound.graph->spec.why_not(choice->bound.tensors, device, /*with_batch=*/false);
}

torch::Device ExportedModuleImpl::device() const {
  return training_.tensors.empty() ? torch::Device(torch::kCPU) : training_.tensors.front().second.device();
}

std::shared_ptr<const ExportedModuleImpl::CompiledChoice> ExportedModuleImpl::compiled_for(
    torch::Device device, std::optional<torch::ScalarType> autocast) {
  const std::lock_guard lock(mutex_);
  if (compiled_ && compiled_->device == device && compiled_->autocast == autocast) return compiled_;
  const auto& program = training_.program;
  auto found = [&] {
    const std::lock_guard reading(detail::reading_archives());
    return content_.compiled->find(device, autocast, program);
  }();
  CompiledChoice choice{device, autocast, {}, std::move(found.why_not)};
  if (found.graph)
    choice.bound = detail::bind_compiled(std::move(found.graph), program,
                                         [&](const auto& state) { return tensor_of(program, state); });
  compiled_ = std::make_shared<const CompiledChoice>(std::move(choice));
  return compiled_;
}

std::vector<torch::Tensor> ExportedModuleImpl::norm_parameters() const {
  std::vector<torch::Tensor> result;
  for (const auto& state : training_.program.states)
    if (state.normalizes) result.push_back(tensor_of(training_.program, state));
  return result;
}

void ExportedModuleImpl::save_exported(const std::filesystem::path& path) const {
  if (!content_.archive)
    throw CheckpointError(fmt::format("{}: it wasn't loaded from a file", content_.name));
  const std::lock_guard lock(detail::reading_archives());
  content_.archive->save(path,
                         [&](const std::string& kind, const std::string& model,
                             const std::string& name) -> const torch::Tensor* {
                           const auto& program = content_.evaluation && model == "eval" ? *content_.evaluation
                                                                                        : content_.training;
                           const auto find = [&](const auto& tensors) {
                             const auto found = tensors.find(name);
                             return found == tensors.end() ? nullptr : &found->second;
                           };
                           const auto* constant = kind == "constants" ? find(program.constants) : nullptr;
                           return constant ? constant : find(content_.tensors);
                         });
}

std::shared_ptr<torch::nn::Module> ExportedModuleImpl::clone(
    const libtorch::Optional<torch::Device>& device) const {
  std::map<c10::TensorImpl*, torch::Tensor> copies;  // tied tensors stay tied
  const auto copy_all = [&](std::map<std::string, torch::Tensor>& tensors) {
    for (auto& [name, tensor] : tensors) {
      auto& copied = copies[tensor.unsafeGetTensorImpl()];
      if (!copied.defined()) copied = tensor.detach().clone();
      tensor = copied;
    }
  };
  auto content = content_;
  copy_all(content.tensors);
  copy_all(content.training.constants);
  if (content.evaluation) {
    content.evaluation = std::make_shared<detail::ExportedProgram>(*content.evaluation);
    copy_all(content.evaluation->constants);
  }
  auto result = std::make_shared<ExportedModuleImpl>(std::move(content));
  if (device)
    result->to(*device);
  else if (!content_.tensors.empty())
    result->to(content_.tensors.begin()->second.device());
  const auto given = named_parameters();
  for (auto& item : result->named_parameters())
    item.value().requires_grad_(given[item.key()].requires_grad());
  const auto from = modules(), to = result->modules();
  for (std::size_t i = 0; i < from.size(); ++i) to[i]->train(from[i]->is_training());
  return result;
}

void ExportedModuleImpl::convert(std::optional<torch::Device> device, std::optional<torch::Dtype> dtype,
                                 bool non_blocking) {
  const torch::NoGradGuard no_grad;
  const auto one = [&](const torch::Tensor& tensor) {
    const auto type = dtype && tensor.is_floating_point() ? *dtype : tensor.scalar_type();
    tensor.set_data(tensor.to(device.value_or(tensor.device()), type, non_blocking));
  };
  for (const auto& tensors : {parameters(), buffers(), constants_})
    for (const auto& tensor : tensors) one(tensor);
  if (!device) return;
  for (auto* bound : {&training_, evaluation_ ? &*evaluation_ : nullptr}) {
    if (!bound) continue;
    bound->program.graph.to(*device);
    bound->partial.clear();
  }
}

void ExportedModuleImpl::to(torch::Device device, torch::Dtype dtype, bool non_blocking) {
  convert(device, dtype, non_blocking);
}

void ExportedModuleImpl::to(torch::Dtype dtype, bool non_blocking) { convert({}, dtype, non_blocking); }

void ExportedModuleImpl::to(torch::Device device, bool non_blocking) { convert(device, {}, non_blocking); }

}  // namespace etude::inline v0
