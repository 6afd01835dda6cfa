#pragma once

#include <torch/nn/module.h>

#include <concepts>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "etude/events.hpp"
#include "etude/model/model.hpp"

namespace etude::inline v0 {

/// Moves modules that the trainer doesn't know to the model's device, before training, an evaluation or a
/// prediction: `MoveModulesToDeviceCallback(teacher, head)`. Each argument is a `shared_ptr` or
/// `ModuleHolder` of a torch module. The trainer moves the model and a loss module itself. Follows
/// pytorch-accelerated's callback of this name, which finds the modules among the trainer's attributes and
/// skips predictions.
class MoveModulesToDeviceCallback {
 public:
  /// Throws ArgumentError for a null pointer or an empty holder.
  template <class... Modules>
    requires(sizeof...(Modules) > 0 &&
             (!std::same_as<std::remove_cvref_t<Modules>, MoveModulesToDeviceCallback> && ...))
  explicit MoveModulesToDeviceCallback(Modules... modules) : modules_{pointer(std::move(modules))...} {
    check();
  }

  void on(const TrainBegin& e) { move(e.model); }
  void on(const EvaluationRunBegin& e) { move(e.model); }
  void on(const PredictBegin& e) { move(e.model); }

 private:
  using Pointer = std::shared_ptr<torch::nn::Module>;

  template <class M>
  static Pointer pointer(M module) {
    constexpr bool is_pointer = std::convertible_to<M, Pointer>;
    static_assert(
        is_pointer || detail::HoldsModule<M>,
        "etude: MoveModulesToDeviceCallback is no template, and takes each module as a shared_ptr or "
        "ModuleHolder: MoveModulesToDeviceCallback(teacher, head)");
    if constexpr (is_pointer)
      return module;
    else if constexpr (detail::HoldsModule<M>)
      return module.is_empty() ? nullptr : Pointer(module.ptr());
  }

  void check() const;
  void move(const Model& model) const;

  std::vector<Pointer> modules_;
};

}  // namespace etude::inline v0
