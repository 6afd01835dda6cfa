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
  std::string unique(const std::string& name);

  void add(const GraphNode& node);

  std::string finish();

 private:
  std::string text_;
  protozero::pbf_writer graph_{text_};
  std::unordered_map<std::string, int> used_;
};

}  // namespace etude::inline v0::detail::tensorboard
