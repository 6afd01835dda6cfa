#pragma once

#include <cstdint>
#include <optional>
#include <protozero/pbf_writer.hpp>
#include <string>
#include <unordered_map>
#include <vector>

namespace etude::inline v0::detail::tensorboard {

/// A node of a graph.
struct GraphNode {
  std::string name;  ///< its scopes, outermost first, separated by slashes, and its own name
  std::string op;
  std::vector<std::string> inputs = {};  ///< the names of other nodes
  std::string attributes = {};           ///< shown as text
  std::optional<std::vector<std::int64_t>> shape = {};
};

/// Writes a GraphDef, in the form of PyTorch's SummaryWriter.
class GraphWriter {
 public:
  /// `name`, with a number appended if it is taken.
  std::string unique(const std::string& name) {
    const auto count = used_[name]++;
    return count == 0 ? name : unique(name + '_' + std::to_string(count));
  }

  void add(const GraphNode& node) {
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

  std::string finish() {
    {
      protozero::pbf_writer versions(graph_, 4);
      versions.add_int32(1, 22);
    }
    return text_;
  }

 private:
  std::string text_;
  protozero::pbf_writer graph_{text_};
  std::unordered_map<std::string, int> used_;
};

}  // namespace etude::inline v0::detail::tensorboard
