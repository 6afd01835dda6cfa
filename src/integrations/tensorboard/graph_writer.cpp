#include "etude/integrations/tensorboard/graph_writer.hpp"

#include <string>

namespace etude::inline v0::detail::tensorboard {

std::string GraphWriter::unique(const std::string& name) {
  const auto count = used_[name]++;
  return count == 0 ? name : unique(name + '_' + std::to_string(count));
}

void GraphWriter::add(const GraphNode& node) {
  protozero::pbf_writer def(graph_, 1);
  def.add_string(1, node.name);
  def.add_string(2, node.op);
  for (const auto& input : node.inputs) def.add_string(3, input);
  if (!node.attributes.empty()) {
    protozero::pbf_writer entry(def, 5);
    entry.add_string(1, "attr");
    protozero::pbf_writer value(entry, 2);
    value.add_bytes(2, node.attributes);
  }
  if (node.shape) {
    protozero::pbf_writer entry(def, 5);
    entry.add_string(1, "_output_shapes");
    protozero::pbf_writer value(entry, 2), list(value, 1), shape(list, 7);
    for (const auto size : *node.shape) {
      protozero::pbf_writer dim(shape, 2);
      dim.add_int64(1, size);
    }
  }
}

std::string GraphWriter::finish() {
  {
    protozero::pbf_writer versions(graph_, 4);
    versions.add_int32(1, 22);
  }
  return text_;
}

}  // namespace etude::inline v0::detail::tensorboard
