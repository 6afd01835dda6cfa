#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "etude/reflect/enum.hpp"

/// The table of optimizers, which doesn't need LibTorch.
namespace etude::inline v0 {

/// The abilities of an optimizer.
struct OptimizerTraits {
  /// Updates each element by itself, so that processes can keep shares that cut through parameters.
  bool is_elementwise = false;
  /// Updates bfloat16 parameters in float32 and then rounds them so that small updates aren't lost.
  bool rounds_bfloat16 = false;
  /// Takes sparse gradients, perhaps only with some options.
  bool takes_sparse_gradients = false;
  /// A step requires the closure, which it may call several times.
  bool needs_closure = false;

  friend bool operator==(const OptimizerTraits&, const OptimizerTraits&) = default;
};

/// Expands to `optimizer(name, class, (defaults), traits...)` for each optimizer: its name in
/// `TrainingArguments::optim`, which is Hugging Face's where it has one; the options whose defaults differ
/// from those of the class's `Options`; and what it can do.
// clang-format off
#define ETUDE_OPTIMIZERS(optimizer)                                                                        \
  optimizer(adamw_torch, AdamW, (.fused = false), .is_elementwise = true, .rounds_bfloat16 = true)         \
  optimizer(adamw_torch_fused, AdamW, (), .is_elementwise = true, .rounds_bfloat16 = true)                 \
  optimizer(adamw_8bit, AdamW8bit, ())                                                                     \
  optimizer(adam, Adam, (), .is_elementwise = true, .rounds_bfloat16 = true)                               \
  optimizer(sgd, SGD, (), .is_elementwise = true, .rounds_bfloat16 = true, .takes_sparse_gradients = true) \
  optimizer(adagrad, Adagrad, (), .is_elementwise = true, .takes_sparse_gradients = true)                  \
  optimizer(rmsprop, RMSprop, (), .is_elementwise = true)                                                  \
  optimizer(lbfgs, LBFGS, (), .needs_closure = true)                                                       \
  optimizer(adafactor, Adafactor, ())                                                                      \
  optimizer(lion, Lion, (), .is_elementwise = true, .rounds_bfloat16 = true)                               \
  optimizer(lion_8bit, Lion8bit, ())                                                                       \
  optimizer(schedule_free_adamw, AdamWScheduleFree, (), .is_elementwise = true, .rounds_bfloat16 = true)   \
  optimizer(schedule_free_sgd, SGDScheduleFree, (), .is_elementwise = true, .rounds_bfloat16 = true)       \
  optimizer(sparse_adam, SparseAdam, (), .takes_sparse_gradients = true)                                   \
  optimizer(lamb, LAMB, ())                                                                                \
  optimizer(lars, LARS, ())                                                                                \
  optimizer(stable_adamw, StableAdamW, ())                                                                 \
  optimizer(muon, Muon, ())                                                                                \
  optimizer(galore_adamw, GaLoreAdamW, ())                                                                 \
  optimizer(soap, SOAP, ())                                                                                \
  optimizer(nadam, NAdam, (), .is_elementwise = true, .rounds_bfloat16 = true)                             \
  optimizer(radam, RAdam, (), .is_elementwise = true, .rounds_bfloat16 = true)                             \
  optimizer(adamax, Adamax, (), .is_elementwise = true, .rounds_bfloat16 = true)                           \
  optimizer(adadelta, Adadelta, (), .is_elementwise = true)                                                \
  optimizer(asgd, ASGD, (), .is_elementwise = true)                                                        \
  optimizer(rprop, Rprop, (), .is_elementwise = true)                                                      \
  optimizer(ademamix, AdEMAMix, (), .is_elementwise = true, .rounds_bfloat16 = true)
// clang-format on

#define ETUDE_DETAIL_OPTIMIZER_NAME(name, ...) name,
#define ETUDE_DETAIL_OPTIMIZER_TEXT(name, ...) #name,
#define ETUDE_DETAIL_OPTIMIZER_TRAITS(name, type, defaults, ...) OptimizerTraits{__VA_ARGS__},

enum class OptimizerNames { ETUDE_OPTIMIZERS(ETUDE_DETAIL_OPTIMIZER_NAME) };
constexpr auto etude_enum_names(OptimizerNames) {
  return std::to_array<std::string_view>({ETUDE_OPTIMIZERS(ETUDE_DETAIL_OPTIMIZER_TEXT)});
}

/// The traits of each optimizer, in the order of `OptimizerNames`.
inline constexpr auto optimizer_traits =
    std::to_array<OptimizerTraits>({ETUDE_OPTIMIZERS(ETUDE_DETAIL_OPTIMIZER_TRAITS)});

constexpr const OptimizerTraits& traits_of(OptimizerNames optim) {
  return optimizer_traits[static_cast<std::size_t>(optim)];
}

/// The names of the optimizers with a trait, separated by commas.
std::string optimizers_with(bool OptimizerTraits::*trait);

#undef ETUDE_DETAIL_OPTIMIZER_NAME
#undef ETUDE_DETAIL_OPTIMIZER_TEXT
#undef ETUDE_DETAIL_OPTIMIZER_TRAITS

}  // namespace etude::inline v0
