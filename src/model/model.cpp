#include "etude/model/model.hpp"

#include <fmt/ranges.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <ranges>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/data/batch.hpp"
#include "etude/data/tensors.hpp"
#include "etude/model/forward.hpp"
#include "etude/model/modules.hpp"
#include "etude/reflect/type_name.hpp"

namespace etude::inline v0 {
namespace detail {

namespace {

std::vector<NamedTensor> listed(const torch::OrderedDict<std::string, torch::Tensor>& tensors) {
  std::vector<NamedTensor> result;
  for (const auto& item : tensors) result.emplace_back(item.key(), item.value());
  return result;
}

}  // namespace

std::string AnyNativeModel::name() const { return any_.name(); }
std::vector<NamedTensor> AnyNativeModel::parameters() const { return listed(any_.named_parameters()); }
std::vector<NamedTensor> AnyNativeModel::buffers() const { return listed(any_.named_buffers()); }
bool AnyNativeModel::is_training() const { return any_.is_training(); }
void AnyNativeModel::train(bool on) { any_.train(on); }
void AnyNativeModel::to(torch::Device device) { any_.to(device); }

std::function<void()> AnyNativeModel::keep_training_flags() const {
  std::vector<std::pair<std::shared_ptr<torch::nn::Module>, bool>> flags;
  for (auto& module : any_.modules()) flags.emplace_back(module, module->is_training());
  // Parents come first: train() on a parent sets all children, whose own flags follow.
  return [flags = std::move(flags)] {
    for (const auto& [module, training] : flags) module->train(training);
  };
}

namespace {

class ScriptModel final : public AnyModel {
 public:
  explicit ScriptModel(torch::jit::Module module) : module_(std::move(module)) {
    const auto method = module_.find_method("forward");
    if (!method.has_value()) return;
    has_forward_ = true;
    for (const auto& argument : method->function().getSchema().arguments()) {
      required_ += !argument.default_value().has_value();
      ++most_;
    }
    --required_, --most_;  // `self` doesn't count
  }

  std::string name() const override { return module_.type()->name()->name(); }
  bool has_forward() const override { return has_forward_; }
  bool accepts(std::size_t count) const override {
    return has_forward_ && required_ <= count && count <= most_;
  }
  Tensors forward(const Tensors& inputs) override {
    return tensors_of(module_.forward(std::vector<c10::IValue>(inputs.begin(), inputs.end())));
  }

  std::vector<NamedTensor> parameters() const override { return listed(module_.named_parameters()); }
  std::vector<NamedTensor> buffers() const override { return listed(module_.named_buffers()); }
  bool is_training() const override { return module_.is_training(); }
  void train(bool on) override { module_.train(on); }
  void to(torch::Device device) override { module_.to(device); }
  torch::jit::Module* script() override { return &module_; }

  std::function<void()> keep_training_flags() const override {
    std::vector<std::pair<torch::jit::Module, bool>> flags;
    for (const auto& module : module_.modules()) {
      if (module.hasattr("training")) flags.emplace_back(module, module.is_training());
    }
    return [flags = std::move(flags)]() mutable {
      for (auto& [module, training] : flags) module.setattr("training", training);
    };
  }

 private:
  template <class List>
  static std::vector<NamedTensor> listed(const List& tensors) {
    std::vector<NamedTensor> result;
    for (const auto& tensor : tensors) result.emplace_back(tensor.name, tensor.value);
    return result;
  }

  torch::jit::Module module_;
  bool has_forward_ = false;
  std::size_t required_ = 0, most_ = 0;
};

}  // namespace

std::shared_ptr<AnyModel> script_model(torch::jit::Module module) {
  return std::make_shared<ScriptModel>(std::move(module));
}

}  // namespace detail

void Model::throw_is_not(std::string_view type, std::size_t found, std::size_t wanted) const {
  if (found == 0) throw ArgumentError(fmt::format("the model is {} and not {}", name(), type));
  throw ArgumentError(fmt::format(
      "the model has {} modules of type {}, and {} are asked for: take all of them, in their order, "
      "or one by its name, model.as<{}>(\"NAME\")",
      found, type, wanted, type));
}

std::vector<Model> Model::modules() const {
  std::vector<Model> result;
  if (const auto* several = dynamic_cast<ModulesImpl*>(model_->module().get()))
    for (const auto& named : several->parts()) result.push_back(named.part.model);
  return result;
}

Model Model::module(const std::string& name) const {
  const auto* several = dynamic_cast<ModulesImpl*>(model_->module().get());
  if (!several)
    throw ArgumentError(
        fmt::format("the model is {} and has no modules by name, such as {}", this->name(), name));
  std::vector<std::string> names;
  for (const auto& named : several->parts()) {
    if (named.name == name) return named.part.model;
    names.push_back(named.name);
  }
  throw ArgumentError(fmt::format("the model has no module '{}': it has {}", name, fmt::join(names, ", ")));
}

std::vector<NamedTensor> Model::named_parameters() const { return each_once(model_->parameters()); }

std::vector<NamedTensor> Model::named_buffers() const { return each_once(model_->buffers()); }

std::vector<torch::Tensor> Model::parameters() const {
  std::vector<torch::Tensor> result;
  for (auto& [name, tensor] : named_parameters()) result.push_back(std::move(tensor));
  return result;
}

std::vector<NamedTensor> Model::named_state() const {
  auto result = model_->parameters();
  std::ranges::move(model_->buffers(), std::back_inserter(result));
  return result;
}

std::vector<NamedTensor> Model::state_dict() const {
  auto result = named_state();
  std::erase_if(result,
                [tied = model_->tied_names()](const auto& named) { return tied.contains(named.first); });
  return result;
}

std::vector<NamedTensor> state_dict(const torch::nn::Module& module) {
  auto result = detail::listed(module.named_parameters());
  std::ranges::move(detail::listed(module.named_buffers()), std::back_inserter(result));
  return result;
}

EvalGuard Model::eval_guard() const {
  EvalGuard guard(model_->keep_training_flags());
  eval();
  return guard;
}

std::vector<NamedTensor> Model::each_once(std::vector<NamedTensor> tensors) {
  std::set<const void*> seen;
  std::erase_if(tensors,
                [&](const auto& named) { return !seen.insert(named.second.unsafeGetTensorImpl()).second; });
  return tensors;
}

void Model::refuse(const Tensors& inputs) const {
  if (!has_forward())
    throw ArgumentError(
        fmt::format("the model {} has no forward, which is needed here: only a compute_loss or a "
                    "training_step of its trainer can do without",
                    name()));
  std::vector<std::size_t> counts;
  for (std::size_t n = 0; n <= detail::max_forward_tensors; ++n) {
    if (accepts(n)) counts.push_back(n);
  }
  throw DataError(fmt::format("the forward of {} takes {} tensors, not {}: {}", name(),
                              fmt::join(counts, " or "), inputs.size(), describe(inputs)));
}

void Model::load_state_dict(const std::vector<NamedTensor>& state) const {
  std::unordered_map<std::string, const torch::Tensor*> given;
  std::vector<std::string> faults;
  for (const auto& [name, tensor] : state) {
    if (!given.emplace(name, &tensor).second) faults.push_back(fmt::format("{} is given twice", name));
  }
  std::vector<std::pair<torch::Tensor, const torch::Tensor*>> copies;
  const auto every = named_state();
  std::set<const void*> filled;
  for (const auto& [name, own] : every)
    if (given.contains(name)) filled.insert(own.unsafeGetTensorImpl());
  for (const auto& [name, own] : every) {
    const auto found = given.extract(name);
    if (!found) {
      if (!filled.contains(own.unsafeGetTensorImpl())) faults.push_back(fmt::format("{} is missing", name));
    } else if (found.mapped()->sizes() != own.sizes()) {
      faults.push_back(fmt::format("{} must be {}, not {}", name, describe(own), describe(*found.mapped())));
    } else {
      copies.emplace_back(own, found.mapped());
    }
  }
  for (const auto& [name, tensor] : state) {
    if (given.erase(name) > 0) faults.push_back(fmt::format("{} is not in the model", name));
  }
  if (!faults.empty()) {
    throw CheckpointError(
        fmt::format("these tensors don't fit {}:\n{}", this->name(), fmt::join(faults, "\n")));
  }
  const torch::NoGradGuard no_grad;
  for (const auto& [own, value] : copies) own.copy_(*value);
}

ModelGuard::~ModelGuard() {
  try {
    if (restore_) restore_();
  } catch (...) {  // a module whose train() throws keeps its current mode
  }
}

Tensors Model::forward(const Tensors& inputs) const {
  if (!accepts(inputs.size())) refuse(inputs);
  return model_->forward(inputs);
}

}  // namespace etude::inline v0
