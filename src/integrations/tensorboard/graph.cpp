#include "etude/integrations/tensorboard/graph.hpp"

#include <c10/util/Type.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <string>
#include <typeinfo>
#include <utility>

#include "etude/integrations/tensorboard/graph_writer.hpp"
#include "etude/integrations/tensorboard/script_graph.hpp"

namespace etude::inline v0::detail::tensorboard {

namespace {

/// The class name alone: "Net" for "etude::Net<int>Impl".
std::string class_of(const torch::nn::Module& module) {
  auto name = c10::demangle(typeid(module).name());
  name = name.substr(0, name.find('<'));
  if (const auto end = name.find_last_of(":. "); end != name.npos) name.erase(0, end + 1);
  if (name.size() > 4 && name.ends_with("Impl")) name.resize(name.size() - 4);
  return name.empty() ? "Module" : name;
}

std::string shapes_of(const torch::nn::Module& module) {
  std::string text;
  for (const auto& item : module.named_parameters(/*recurse=*/false)) {
    if (!text.empty()) text += ", ";
    text += item.key() + " [";
    for (const auto size : item.value().sizes())
      text += (text.ends_with('[') ? "" : ", ") + std::to_string(size);
    text += ']';
  }
  return text;
}

void add_tree(const torch::nn::Module& module, const std::string& scope, GraphWriter& graph) {
  const auto children = module.named_children();
  auto shapes = shapes_of(module);
  // A node with a scope's name is shown as another one within it, so one with layers gets a name there.
  if (children.is_empty())
    graph.add({.name = graph.unique(scope), .op = class_of(module), .attributes = std::move(shapes)});
  else if (!shapes.empty())
    graph.add({.name = graph.unique(scope + "/parameters"),
               .op = class_of(module),
               .attributes = std::move(shapes)});
  for (const auto& child : children)
    add_tree(*child.value(), scope + '/' + class_of(*child.value()) + '[' + child.key() + ']', graph);
}

}  // namespace

std::string graph_of(const Model& model) {
  GraphWriter graph;
  if (const auto module = model.module())
    add_tree(*module, class_of(*module), graph);
  else
    add_script(model.as<torch::jit::Module>(), graph);
  return graph.finish();
}

}  // namespace etude::inline v0::detail::tensorboard
