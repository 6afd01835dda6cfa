#pragma once

#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include <array>
#include <concepts>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "etude/base/parameters.hpp"
#include "etude/data/batch.hpp"
#include "etude/data/tensors.hpp"
#include "etude/model/model.hpp"

namespace etude::inline v0 {

/// A loss and the model outputs that it was computed from.
struct LossOutput {
  torch::Tensor loss;    ///< one element
  Tensors outputs = {};  ///< without the loss
  /// True if the loss is a sum over items divided by `num_items_in_batch`, so that the losses of a group of
  /// micro-batches add up. Otherwise the loss is a mean, and is weighted by the micro-batch's share of the
  /// group's items if the trainer's `loss` or the model says what it averages over, else by its share of the
  /// examples.
  bool counts_items = false;
  /// Parts of the loss by name, one element each: `{{"kl", kl}}`. They are logged and averaged like the loss;
  /// an evaluation adds its prefix ("eval_kl").
  Tensors logs = {};
};

/// The signature of the option `compute_loss`.
using ComputeLoss = LossOutput(Model& model, const Batch& batch, std::optional<double> num_items);

namespace detail {

template <class R>
concept NamedParts = requires(const R& parts) {
                       { parts.begin()->first } -> std::convertible_to<std::string>;
                       { parts.begin()->second } -> std::convertible_to<torch::Tensor>;
                       parts.end();
                     };
template <class R>
concept LossResult = std::same_as<R, LossOutput> || std::same_as<R, torch::Tensor> || NamedParts<R>;

/// The parts and their sum. Throws DataError if there are none.
LossOutput sum_of_parts(std::vector<std::string> names, std::vector<torch::Tensor> parts);

template <LossResult R>
LossOutput loss_output(R result) {
  if constexpr (std::same_as<R, LossOutput>) {
    return result;
  } else if constexpr (std::same_as<R, torch::Tensor>) {
    return {.loss = std::move(result), .outputs = {}};
  } else {
    std::vector<std::string> names;
    std::vector<torch::Tensor> parts;
    for (const auto& [name, part] : result) {
      names.emplace_back(name);
      parts.push_back(part);
    }
    return sum_of_parts(std::move(names), std::move(parts));
  }
}

template <class M>
concept ModelOrModule = std::same_as<M, Model> || HoldsModule<M> || std::derived_from<M, torch::nn::Module> ||
                        std::same_as<M, torch::jit::Module>;

/// Returns the model itself, or its `index`th module of class M, as a reference or in a holder. The model
/// must have `count` modules of that class.
template <ModelOrModule M>
decltype(auto) model_as(Model& model, std::size_t index, std::size_t count) {
  if constexpr (std::same_as<M, Model>) {
    return (model);
  } else {
    using Module = typename ModuleOf<M>::Type;
    auto& module = model.nth<Module>(index, count);
    if constexpr (HoldsModule<M>)
      return M(std::dynamic_pointer_cast<Module>(module.shared_from_this()));
    else
      return (module);
  }
}

/// The parameters of a loss that come before its batch.
template <class... Ms>
struct ModulesOfLoss {
  template <class M>
  using With = ModulesOfLoss<Ms..., M>;

  template <class F, class... Items>
  static constexpr bool are_of() {
    if constexpr ((ModelOrModule<Ms> && ...) && std::invocable<F&, Ms&..., const Batch&, Items...>)
      return LossResult<std::remove_cvref_t<std::invoke_result_t<F&, Ms&..., const Batch&, Items...>>>;
    else
      return false;
  }

  template <class F, class... Items>
  static LossOutput call(F& compute, Model& model, const Batch& batch, Items... items) {
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      std::tuple<decltype(model_as<Ms>(model, 0, 0))...> taken{
          model_as<Ms>(model, before<Ms>(I), before<Ms>(size))...};
      return loss_output(compute(std::get<I>(taken)..., batch, items...));
    }
    (std::index_sequence_for<Ms...>());
  }

 private:
  static constexpr std::size_t size = sizeof...(Ms);

  /// The number of parameters before `end` that are of M's class.
  template <class M>
  static constexpr std::size_t before(std::size_t end) {
    using Module = typename ModuleOf<M>::Type;
    constexpr std::array<bool, size> same{std::same_as<typename ModuleOf<Ms>::Type, Module>...};
    std::size_t count = 0;
    for (std::size_t i = 0; i < end; ++i) count += same[i];
    return count;
  }
};

template <class Found, class Types>
struct UpToBatch : std::type_identity<Found> {};
template <class Found, class Next, class... Rest>
  requires(!std::same_as<Next, Batch>)
struct UpToBatch<Found, std::tuple<Next, Rest...>>
    : UpToBatch<typename Found::template With<Next>, std::tuple<Rest...>> {};

/// The parameters of F before its batch. If F is generic, it takes the model.
template <class F>
struct TakenByLoss : std::type_identity<ModulesOfLoss<Model>> {};
template <class F>
  requires requires(F f) { std::function(f); }
struct TakenByLoss<F>
    : UpToBatch<ModulesOfLoss<>, typename Parameters<decltype(std::function(std::declval<F>()))>::Types> {};

template <class F>
concept FormOfComputeLoss = (!HoldsModule<F>) &&
                            (TakenByLoss<F>::type::template are_of<F, std::optional<double>>() ||
                             TakenByLoss<F>::type::template are_of<F>());

}  // namespace detail

/// A function that computes the loss of a batch. It is called as `(modules..., batch)` or as `(modules...,
/// batch, num_items)`. `modules` are the whole model (`etude::Model&`) or the modules that the function uses,
/// found by type (`NetImpl&` or `Net`). If several of the Modules have the same type, the function must take
/// all of them, in their order. `num_items` is a `std::optional<double>`. The function returns a LossOutput,
/// the loss as a tensor, or the loss's parts by name, such as a `std::map<std::string, torch::Tensor>`: their
/// sum is the loss, and each part is logged.
class ComputeLossOption {
 public:
  ComputeLossOption() = default;
  template <class F>
    requires(!std::derived_from<F, ComputeLossOption> && detail::FormOfComputeLoss<F>)
  ComputeLossOption(F compute) : function_(adapted(std::move(compute))) {}

  template <class F>
    requires(!std::derived_from<F, ComputeLossOption> && !detail::FormOfComputeLoss<F>)
  __attribute__((
      unavailable("etude: compute_loss is called as (modules..., batch) or (modules..., batch, num_items), "
                  "where modules are "
                  "the model, as etude::Model&, or those that it uses, by their own types, batch is const "
                  "etude::Batch&, and "
                  "num_items is std::optional<double>; it returns a torch::Tensor, an etude::LossOutput, or "
                  "parts by name, "
                  "whose sum is the loss"))) ComputeLossOption(F compute);

  explicit operator bool() const { return static_cast<bool>(function_); }
  const std::function<ComputeLoss>& function() const { return function_; }

 private:
  template <class F>
  static std::function<ComputeLoss> adapted(F compute) {
    if constexpr (std::convertible_to<F, std::function<ComputeLoss>>) {
      return compute;
    } else {
      if constexpr (requires { compute == nullptr; })
        if (compute == nullptr) return {};
      return [compute = std::move(compute)](Model& model, const Batch& batch,
                                            std::optional<double> num_items) mutable {
        using Taken = typename detail::TakenByLoss<F>::type;
        if constexpr (Taken::template are_of<F, std::optional<double>>())
          return Taken::call(compute, model, batch, num_items);
        else
          return Taken::call(compute, model, batch);
      };
    }
  }

  std::function<ComputeLoss> function_;
};

}  // namespace etude::inline v0
