#include "etude/model/exported_compiled.hpp"

#include <ATen/ops/ones.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/statvfs.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/types.h>
#include <torch/version.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#if __has_include(<elf.h>)
#include <elf.h>
#endif

#include "etude/base/error.hpp"
#include "etude/data/tensors.hpp"
#include "etude/formats/exported_json.hpp"
#include "etude/formats/pt2_archive.hpp"
#include "etude/io/entry_name.hpp"
#include "etude/io/file_system.hpp"
#include "etude/io/private_folder.hpp"
#include "etude/libtorch/autocast.hpp"
#include "etude/libtorch/compiled_library.hpp"
#include "etude/libtorch/foreach.hpp"
#include "etude/libtorch/gradient_hook.hpp"
#include "etude/libtorch/torch_error.hpp"
#include "etude/model/exported_graph.hpp"

namespace etude::inline v0::detail {

namespace {

constexpr std::string_view manifest = "manifest.json";

/// The message of an exception from a compiled library, without its stack frames unless these are shown.
std::string message_of_library(const std::exception& error) {
  std::string text = error.what();
  if (!shows_frames())
    for (const auto* begin : {"\nException raised from", "\nframe #0"})
      text.resize(std::min(text.find(begin), text.size()));
  return text;
}

/// "with autocast to bfloat16"
std::string precision_of(std::optional<torch::ScalarType> autocast) {
  return autocast ? "with autocast to " + dtype_name(*autocast) : "without autocast";
}

/// A hint for a temporary folder in which programs may not be executed; empty if they may.
std::string advice_for([[maybe_unused]] const std::filesystem::path& folder) {
#ifdef ST_NOEXEC
  struct statvfs status {};
  if (::statvfs(folder.c_str(), &status) == 0 && (status.f_flag & ST_NOEXEC) != 0)
    return fmt::format(" ({} is mounted noexec: set TMPDIR to a folder that allows execution)",
                       folder.parent_path().string());
#endif
  return "";
}

void write(const std::filesystem::path& path, std::string_view bytes) {
  default_file_system().create(path)->write(std::as_bytes(std::span(bytes)));
}

/// The backward pass of a compiled graph, which returns the gradients that were computed with the loss. Its
/// first input is the gradient of the loss; the others are those of the other outputs.
class CompiledBackward : public torch::autograd::Node {
 public:
  CompiledBackward(std::string model, std::vector<std::string> outputs, std::vector<torch::Tensor> gradients,
                   const std::vector<torch::Tensor>& parameters)
      : model_(std::move(model)), outputs_(std::move(outputs)), gradients_(std::move(gradients)) {
    torch::autograd::edge_list edges;
    edges.reserve(parameters.size());
    for (const auto& parameter : parameters) edges.push_back(torch::autograd::impl::gradient_edge(parameter));
    set_next_edges(std::move(edges));
  }

  std::string name() const override { return "CompiledGraph"; }
  void will_release_variables() override {
    const std::lock_guard lock(mutex_);
    is_last_ = true;
  }
  void release_variables() override {
    const std::lock_guard lock(mutex_);
    gradients_.clear();
    is_released_ = true;
  }

 protected:
  torch::autograd::variable_list apply(torch::autograd::variable_list&& given) override;

 private:
  std::vector<torch::Tensor> taken();

  std::string model_;
  std::vector<std::string> outputs_;  // titles of the outputs other than the loss
  std::vector<torch::Tensor> gradients_;
  bool is_last_ = false, is_released_ = false;
};

/// Returns the gradients, which the caller may change.
std::vector<torch::Tensor> CompiledBackward::taken() {
  const std::lock_guard lock(mutex_);
  if (is_released_)
    throw Error(
        fmt::format("{}: the backward pass of this step has already run and freed the gradients: to run it "
                    "twice, the first call needs retain_graph",
                    model_));
  auto result = is_last_ ? std::move(gradients_) : gradients_;
  is_released_ = is_last_;
  if (is_last_) gradients_.clear();
  for (auto& gradient : result)
    if (gradient.use_count() > 1 || gradient.storage().use_count() > 1) gradient = gradient.clone();
  return result;
}

torch::autograd::variable_list CompiledBackward::apply(torch::autograd::variable_list&& given) {
  if (at::GradMode::is_enabled())
    throw Error(fmt::format(
        "{}: a compiled graph can't be differentiated twice (create_graph): set compiled_graph=off", model_));
  for (std::size_t i = 1; i < given.size(); ++i)
    if (given[i].defined())
      throw Error(
          fmt::format("{}: the compiled graph has gradients of the loss only, not of the output {}: set "
                      "compiled_graph=off",
                      model_, outputs_[i - 1]));
  if (!given.front().defined()) return torch::autograd::variable_list(num_outputs());
  auto gradients = taken();
  const auto& scale = given.front();
  // On a GPU, reading the number would wait for the device.
  if (!scale.is_cpu() || scale.item<double>() != 1) libtorch::foreach_mul_(gradients, scale);
  return gradients;
}

}  // namespace

void check_library([[maybe_unused]] std::string_view bytes, [[maybe_unused]] std::string_view where) {
#if __has_include(<elf.h>)
  // dlopen maps as much as the headers say: reading past the end of a truncated file is a bus error.
  const auto read = [&]<class Part>(Part& part, std::uint64_t offset) {
    if (offset > bytes.size() || bytes.size() - offset < sizeof(Part))
      throw exported_fault(where, "it is truncated: it has {} bytes", bytes.size());
    std::memcpy(&part, bytes.data() + offset, sizeof(Part));
  };
  if (!bytes.starts_with(ELFMAG)) throw exported_fault(where, "it isn't a shared library");
  Elf64_Ehdr header;
  read(header, 0);
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_type != ET_DYN ||
      header.e_phentsize != sizeof(Elf64_Phdr))
    throw exported_fault(where, "it isn't a 64-bit shared library");
  for (std::uint64_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    read(segment, header.e_phoff + i * sizeof(segment));
    if (segment.p_offset > bytes.size() || bytes.size() - segment.p_offset < segment.p_filesz)
      throw exported_fault(where, "it is truncated: it has {} bytes", bytes.size());
  }
#endif
}

namespace {

/// Checks that a compiled graph returns all outputs of the program, and the buffers that the program's
/// operators declare that they change; batch_norm, for example, declares nothing.
void check_is_complete(const CompiledSpec& spec, const ExportedProgram& program, std::string_view where) {
  const auto returns = [&](auto is_it) { return std::ranges::any_of(spec.outputs, is_it); };
  for (const auto place : program.output_places)
    if (!returns([&](const auto& output) {
          return (output.kind == CompiledOutput::Kind::loss || output.kind == CompiledOutput::Kind::output) &&
                 output.index == place;
        }))
      throw exported_fault(where, "it doesn't return output {} of the model", place);
  const auto check_buffer = [&](const std::string& name) {
    if (!returns([&](const auto& output) {
          return output.kind == CompiledOutput::Kind::buffer && output.name == name;
        }))
      throw exported_fault(where, "it doesn't return buffer {}, which the model changes", in_quotes(name));
  };
  for (const auto& [output, name] : program.mutations) check_buffer(name);
  // A tensor with several names is taken and returned under one of them.
  const auto takes = [&](const std::string& name) {
    return std::ranges::any_of(spec.inputs, [&](const auto& input) {
      return input.kind == CompiledInput::Kind::buffer && input.name == name;
    });
  };
  MemoryOwners owners(program.graph.slots);
  for (const auto& node : program.graph.nodes) {
    owners.add(node);
    owners.visit_written(node, [&](ExportedGraph::Slot owner) {
      for (const auto& state : program.states)
        if (state.kind == ExportedState::Kind::buffer && program.graph.inputs[state.index] == owner &&
            takes(state.name))
          check_buffer(state.name);
    });
  }
}

}  // namespace

void check_compiled_spec(const CompiledSpec& spec, const ExportedProgram& program, std::string_view where) {
  const auto has = [&](ExportedState::Kind kind, const std::string& name) {
    return std::ranges::any_of(program.states,
                               [&](const auto& state) { return state.kind == kind && state.name == name; });
  };
  for (const auto& input : spec.inputs) {
    using Kind = CompiledInput::Kind;
    const bool is_there =
        input.kind == Kind::scale ||
        (input.kind == Kind::input ? std::ranges::count(program.inputs, input.name, &ExportedInput::name) == 1
                                   : has(static_cast<ExportedState::Kind>(input.kind), input.name));
    if (!is_there) throw exported_fault(where, "the model has no {}", input.title());
  }
  for (const auto& output : spec.outputs) {
    using Kind = CompiledOutput::Kind;
    if ((output.kind == Kind::loss || output.kind == Kind::output) &&
        std::ranges::count(program.output_places, output.index) == 0)
      throw exported_fault(where, "the model has no tensor as its output {}", output.index);
    if (output.kind == Kind::buffer && !has(ExportedState::Kind::buffer, output.name))
      throw exported_fault(where, "the model has no buffer {}", in_quotes(output.name));
  }
  check_is_complete(spec, program, where);
}

CompiledGraphs::CompiledGraphs(std::shared_ptr<const Pt2Archive> archive) : archive_(std::move(archive)) {
  const auto text = archive_->compiled_file(std::string(manifest));
  if (text)
    entries_ = read_compiled_manifest(*text, fmt::format("{}: compiled/{}", archive_->name(), manifest));
}

CompiledGraphs::Found CompiledGraphs::find(torch::Device device, std::optional<torch::ScalarType> autocast,
                                           const ExportedProgram& program) {
  if (entries_.empty())
    return {nullptr, "the file has no compiled graph: tools/export.py --compile adds one"};
  if (!libtorch::runs_compiled_graphs())
    return {nullptr,
            fmt::format("LibTorch {} can't run compiled graphs: it must be 2.13 or later", TORCH_VERSION)};
  const auto capability = device.is_cuda() ? libtorch::cuda_capability(device) : std::string();
  std::string unmet;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const auto& entry = entries_[i];
    if (entry.device != device.type() || entry.autocast != autocast) continue;
    unmet = unmet_requirement(entry, TORCH_VERSION, this_processor(), capability);
    if (!unmet.empty()) continue;
    auto& graph = loaded_[{i, device.str()}];
    if (!graph) graph = load(entry, device, program);
    return {graph, ""};
  }
  if (!unmet.empty()) return {nullptr, unmet};
  return {nullptr,
          fmt::format("the file has no compiled graph for {} {}",
                      torch::DeviceTypeName(device.type(), /*lower_case=*/true), precision_of(autocast))};
}

std::shared_ptr<const CompiledGraph> CompiledGraphs::load(const CompiledEntry& entry, torch::Device device,
                                                          const ExportedProgram& program) const {
  const auto read = [&](const std::string& file) {
    if (auto bytes = archive_->compiled_file(file)) return *std::move(bytes);
    throw CheckpointError(fmt::format("{}: compiled/{}: it lists {}, which the file doesn't contain",
                                      archive_->name(), manifest, in_quotes(file)));
  };
  const auto where = fmt::format("{}: compiled/{}", archive_->name(), printable(entry.library));
  // A folder, not a memfd: LibTorch looks for the operators next to the library.
  const PrivateFolder folder("compiled");
  const auto path = folder.path() / "graph.so";
  {
    const auto bytes = read(entry.library);
    check_library(bytes, where);
    write(path, bytes);
  }
  if (!entry.operators.empty()) write(folder.path() / "graph.json", read(entry.operators));
  try {
    libtorch::CompiledLibrary library(path, device);
    auto spec = read_compiled_spec(library.spec(), where);
    check_compiled_spec(spec, program, where);
    const auto takes = library.input_count(), returns = library.output_count();
    if (takes != spec.inputs.size() || returns != spec.outputs.size())
      throw exported_fault(where, "it takes {} tensors and returns {}, but its description says {} and {}",
                           takes, returns, spec.inputs.size(), spec.outputs.size());
    return std::make_shared<const CompiledGraph>(CompiledGraph{std::move(spec), std::move(library)});
  } catch (const CheckpointError&) {
    throw;
  } catch (const std::exception& error) {
    throw exported_fault(where, "it can't be loaded: {}{}", message_of_library(error),
                         advice_for(folder.path()));
  }
}

BoundCompiledGraph bind_compiled(std::shared_ptr<const CompiledGraph> graph, const ExportedProgram& program,
                                 const std::function<torch::Tensor(const ExportedState&)>& tensor_of) {
  const auto& spec = graph->spec;
  BoundCompiledGraph bound{std::move(graph)};
  bound.tensors.resize(spec.inputs.size());
  for (std::size_t i = 0; i < spec.inputs.size(); ++i) {
    using Kind = CompiledInput::Kind;
    const auto& input = spec.inputs[i];
    if (input.kind == Kind::input) {
      const auto found = std::ranges::find(program.inputs, input.name, &ExportedInput::name);
      bound.batch.emplace_back(i, static_cast<std::size_t>(found - program.inputs.begin()));
    } else if (input.kind != Kind::scale) {
      bound.tensors[i] = tensor_of({static_cast<ExportedState::Kind>(input.kind), input.name});
    }
  }
  for (std::size_t place = 0; place < program.outputs.size(); ++place)
    for (std::size_t i = 0; i < spec.outputs.size(); ++i) {
      using Kind = CompiledOutput::Kind;
      const auto& output = spec.outputs[i];
      if ((output.kind == Kind::loss || output.kind == Kind::output) &&
          output.index == program.output_places[place])
        bound.outputs.emplace_back(i, place);
    }
  for (std::size_t i = 0; i < spec.outputs.size(); ++i)
    if (const auto& output = spec.outputs[i]; output.kind == CompiledOutput::Kind::buffer)
      bound.buffers.emplace_back(i, tensor_of({ExportedState::Kind::buffer, output.name}));
  return bound;
}

HasCompiledGraph::Result run_compiled(const BoundCompiledGraph& bound,
                                      const std::vector<torch::Tensor>& given, torch::Device device,
                                      const ExportedProgram& program, const std::string& model) {
  const auto& [spec, library] = *bound.graph;
  auto inputs = bound.tensors;
  for (const auto& [input, place] : bound.batch) inputs[input] = given[place];
  if (auto why_not = spec.why_not(inputs, device); !why_not.empty()) return {{}, std::move(why_not)};
  std::vector<torch::Tensor> results;
  try {
    const torch::NoGradGuard no_grad;
    for (const auto& [input, place] : bound.batch) inputs[input] = inputs[input].contiguous();
    // A new tensor each time, since an output may share memory with it.
    inputs[spec.scale] = at::ones({}, at::TensorOptions(device).dtype(torch::kFloat));
    std::optional<AutocastGuard> no_autocast;  // the graph has its own casts
    if (autocast_in_force(device.type())) no_autocast.emplace(device.type(), std::nullopt);
    results = library.run(std::move(inputs));
    for (const auto& [output, buffer] : bound.buffers) buffer.copy_(results[output]);
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    throw Error(fmt::format("{}: the compiled graph failed: {}", model, message_of_library(error)));
  }

  std::vector<torch::Tensor> gradients, parameters;
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (spec.outputs[i].kind != CompiledOutput::Kind::gradient) continue;
    gradients.push_back(std::move(results[i]));
    parameters.push_back(bound.tensors[spec.outputs[i].source]);
  }
  std::vector<torch::Tensor> outputs;
  std::vector<std::string> names, others;
  std::size_t loss = 0;
  for (const auto& [output, place] : bound.outputs) {
    if (spec.outputs[output].kind == CompiledOutput::Kind::loss) loss = outputs.size();
    auto& tensor = results[output];
    outputs.push_back(tensor.use_count() > 1 ? tensor.detach() : std::move(tensor));
    if (!program.output_names.empty()) names.push_back(program.output_names[place]);
  }
  Tensors result(std::move(outputs), std::move(names));
  if (!result[loss].is_floating_point() || result[loss].dim() != 0)
    throw Error(fmt::format("{}: the compiled graph's loss is {}: must be a single number", model,
                            describe(result[loss])));
  std::vector<std::size_t> differentiable{loss};
  for (std::size_t i = 0; i < result.size(); ++i) {
    if (i == loss || !result[i].is_floating_point()) continue;
    differentiable.push_back(i);
    others.push_back(result.title(i));
  }
  const auto backward =
      libtorch::make_node<CompiledBackward>(model, std::move(others), std::move(gradients), parameters);
  for (const auto i : differentiable) torch::autograd::set_history(result[i], backward);
  return {std::move(result), ""};
}

}  // namespace etude::inline v0::detail
