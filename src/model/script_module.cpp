#include "etude/model/script_module.hpp"

#include <fmt/format.h>

#include <memory>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/data/tensors_of.hpp"

namespace etude::inline v0 {
namespace detail {

ScriptPart::ScriptPart(torch::jit::Module script)
    : torch::nn::Module(script.type()->name()->name()), script_(std::move(script)) {
  torch::nn::Module::train(script_.is_training());
  for (const auto& each : script_.named_parameters(/*recurse=*/false))
    register_parameter(each.name, each.value, each.value.requires_grad());
  for (const auto& each : script_.named_buffers(/*recurse=*/false)) register_buffer(each.name, each.value);
  for (const auto& each : script_.named_children())
    register_module(each.name, std::make_shared<ScriptPart>(each.value));
}

void ScriptPart::train(bool on) {
  torch::nn::Module::train(on);
  if (script_.hasattr("training")) script_.setattr("training", on);
}

}  // namespace detail

ScriptModuleImpl::ScriptModuleImpl(torch::jit::Module script) : detail::ScriptPart(std::move(script)) {
  if (!script_.find_method("forward").has_value())
    throw ArgumentError(fmt::format("the TorchScript module {} has no forward", name()));
}

Tensors ScriptModuleImpl::forward(const Tensors& inputs) {
  return tensors_of(script_.forward(std::vector<c10::IValue>(inputs.begin(), inputs.end())));
}

}  // namespace etude::inline v0
