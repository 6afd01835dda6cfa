// Fuzzes a file of torch.export. Bytes that don't begin like an archive are read as the JSON in such a file,
// of a program or of its compiled graphs, without a checksum in the way. Graphs are read but not run: running
// them would test LibTorch's operators.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "etude/formats/pt2_archive.hpp"
#include "etude/model/exported_compiled_spec.hpp"
#include "etude/model/exported_program.hpp"

namespace {

using etude::detail::ExportedGraph;

void require(bool good) {
  if (!good) std::abort();
}

// The guarantee for a graph, computed another way: each value is defined before it is used.
void check(const ExportedGraph& graph) {
  std::vector<bool> defined(graph.slots);
  const auto define = [&](ExportedGraph::Slot slot) {
    require(slot < graph.slots && !defined[slot]);
    defined[slot] = true;
  };
  for (const auto slot : graph.inputs)
    if (slot != ExportedGraph::no_slot) define(slot);
  for (const auto& node : graph.nodes) {
    for (const auto& argument : node.arguments)
      for (const auto& use : argument.uses) {
        const bool may_be_none = argument.form == ExportedGraph::Argument::Form::optional_tensors ||
                                 argument.form == ExportedGraph::Argument::Form::integers;
        if (use.slot == ExportedGraph::no_slot)
          require(may_be_none);
        else
          require(use.slot < graph.slots && defined[use.slot]);
      }
    if (node.operation) require(node.arguments.size() == node.operation->schema().arguments().size());
    for (const auto& inner : node.graphs) check(inner);
    for (const auto slot : node.outputs) define(slot);
    for (const auto slot : node.freed) require(slot < graph.slots);
  }
  require(graph.constant_outputs.size() == graph.outputs.size());
  for (const auto slot : graph.outputs)
    require(slot == ExportedGraph::no_slot || (slot < graph.slots && defined[slot]));
}

void read_program(std::string_view json) {
  auto program = etude::detail::read_program(json, "fuzz");
  check(program.graph);
  for (const auto& state : program.states) require(state.index < program.graph.inputs.size());
  for (const auto& input : program.inputs) require(input.index < program.graph.inputs.size());
  for (const auto output : program.outputs) require(output < program.graph.outputs.size());
  require(program.output_places.size() == program.outputs.size());
  require(program.output_names.empty() || program.output_names.size() == program.outputs.size());
  etude::detail::follow_mode(program);
  std::vector<bool> absent(program.graph.inputs.size());
  if (!program.inputs.empty()) absent[program.inputs.back().index] = true;
  program.graph.pruned(absent);
}

// Reading every element touches no memory outside of the file's tensors.
void read_tensors(const etude::Pt2Archive::NamedTensors& tensors) {
  for (const auto& [name, tensor] : tensors) {
    if (tensor.numel() == 0) continue;
    const auto* last = static_cast<const char*>(tensor.data_ptr());
    std::int64_t elements = 1;
    for (std::int64_t d = 0; d < tensor.dim(); ++d) {
      last += (tensor.size(d) - 1) * tensor.stride(d) * static_cast<std::int64_t>(tensor.element_size());
      elements *= tensor.size(d);
    }
    const auto* begin = static_cast<const char*>(tensor.storage().data());
    require(elements == tensor.numel() && last >= begin &&
            last + tensor.element_size() <= begin + tensor.storage().nbytes());
    const volatile char byte = *last;
    static_cast<void>(byte);
  }
}

void read_compiled_spec(std::string_view json) {
  const auto spec = etude::detail::read_compiled_spec(json, "fuzz");
  require(spec.scale < spec.inputs.size());
  for (const auto& input : spec.inputs)
    for (const auto& size : input.sizes) require(size.fixed >= 0 || size.symbol < spec.symbols.size());
  for (const auto& output : spec.outputs)
    if (output.kind == etude::detail::CompiledOutput::Kind::gradient)
      require(output.source < spec.inputs.size() && spec.inputs[output.source].trains);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    if (bytes.starts_with("PK")) {
      const etude::Pt2Archive archive(bytes, "fuzz");
      archive.extra_files();
      if (const auto manifest = archive.compiled_file("manifest.json"))
        etude::detail::read_compiled_manifest(*manifest, "fuzz");
      for (const auto& model : archive.models()) {
        read_tensors(archive.weights(model));
        read_tensors(archive.constants(model));
        read_program(archive.graph(model));
      }
    } else if (bytes.starts_with(R"({"format")")) {
      etude::detail::read_compiled_manifest(bytes, "fuzz");
    } else if (bytes.starts_with(R"({"inputs")")) {
      read_compiled_spec(bytes);
    } else {
      read_program(bytes);
    }
  } catch (const etude::CheckpointError&) {
  }
  return 0;
}
