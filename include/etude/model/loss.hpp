#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/base/parameters.hpp"
#include "etude/data/tensors.hpp"
#include "etude/model/forward.hpp"
#include "etude/model/loss_divisor.hpp"
#include "etude/model/model.hpp"
#include "etude/reflect/type_name.hpp"

namespace etude::inline v0 {
namespace detail {

template <class T>
concept LossOperand = std::same_as<T, torch::Tensor> || std::same_as<T, Tensors>;

template <class T>
inline constexpr bool is_item_count = std::is_arithmetic_v<T>;
template <OptionalLike T>
inline constexpr bool is_item_count<T> =
    std::is_arithmetic_v<std::remove_cvref_t<decltype(*std::declval<T>())>>;

enum class LossForm { kNone, kPlain, kCounting };

template <class Types>
inline constexpr LossForm form_of = LossForm::kNone;
template <LossOperand Output, LossOperand Labels>
inline constexpr LossForm form_of<std::tuple<Output, Labels>> = LossForm::kPlain;
template <LossOperand Output, LossOperand Labels, class Count>
  requires is_item_count<Count>
inline constexpr LossForm form_of<std::tuple<Output, Labels, Count>> = LossForm::kCounting;

// An integer parameter of a plain function may mean anything: in torch::mse_loss it is the reduction.
template <class Types>
inline constexpr bool ends_with_integer = false;
template <class Output, class Labels, std::integral Last>
inline constexpr bool ends_with_integer<std::tuple<Output, Labels, Last>> = true;

/// The parameters of a loss; for templates and overloads, the first of (Tensor, Tensor) and (Tensor, Tensor,
/// double) that they accept. An empty tuple if there are none.
template <class F>
consteval auto loss_parameters() {
  if constexpr (requires(F f) { std::function(f); }) {
    using Types = typename Parameters<decltype(std::function(std::declval<F>()))>::Types;
    if constexpr (std::is_pointer_v<F> && ends_with_integer<Types>) {
      return std::type_identity<std::tuple<>>();
    } else {
      return std::type_identity<Types>();
    }
  } else if constexpr (std::invocable<F&, const torch::Tensor&, const torch::Tensor&>) {
    return std::type_identity<std::tuple<torch::Tensor, torch::Tensor>>();
  } else if constexpr (std::invocable<F&, const torch::Tensor&, const torch::Tensor&, double>) {
    return std::type_identity<std::tuple<torch::Tensor, torch::Tensor, double>>();
  } else {
    return std::type_identity<std::tuple<>>();
  }
}

template <class M>
consteval auto forward_parameters() {
  if constexpr (requires { &M::forward; }) {
    return std::type_identity<typename Parameters<decltype(&M::forward)>::Types>();
  } else {
    return std::type_identity<std::tuple<>>();
  }
}

}  // namespace detail

/// The number of items that a batch's mean loss averages over: the number of elements of the first label
/// tensor, without elements equal to -100 if they are integers.
std::int64_t count_items(const Tensors& labels);

namespace detail {

/// Types that a Loss can be made from.
template <class T>
concept FormOfLoss = HoldsModule<T> || is_shared_ptr<T> ||
                     (form_of<typename decltype(loss_parameters<T>())::type> != LossForm::kNone);

[[noreturn]] void throw_not_one_operand(const Tensors& tensors, std::string_view what);

template <LossOperand T>
const T& operand(const Tensors& tensors, std::string_view what) {
  if constexpr (std::same_as<T, Tensors>) {
    return tensors;
  } else {
    if (tensors.size() == 1) return tensors[0];
    throw_not_one_operand(tensors, what);
  }
}

template <class Count>
Count item_count(std::optional<double> given, const Tensors& labels) {
  if constexpr (OptionalLike<Count>) {
    using Value = std::remove_cvref_t<decltype(*std::declval<Count>())>;
    return given ? Count(static_cast<Value>(*given)) : Count();
  } else {
    return static_cast<Count>(given ? *given : static_cast<double>(count_items(labels)));
  }
}

/// Calls `f` with arguments converted to its parameters.
template <class... Parameter, class F>
torch::Tensor call_loss(std::type_identity<std::tuple<Parameter...>>, F& f, const Tensors& outputs,
                        const Tensors& labels, std::optional<double> num_items) {
  using Types = std::tuple<Parameter...>;
  const auto& output = operand<std::tuple_element_t<0, Types>>(outputs, "outputs");
  const auto& target = operand<std::tuple_element_t<1, Types>>(labels, "labels");
  const auto compute = [&](const auto&... count) -> torch::Tensor {
    constexpr bool takes_them = std::invocable<F&, decltype(output), decltype(target), decltype(count)...>;
    static_assert(takes_them,
                  "etude: a loss takes output and target by value or as const reference, since it must not "
                  "modify them");
    if constexpr (takes_them) {
      using Result = std::invoke_result_t<F&, decltype(output), decltype(target), decltype(count)...>;
      static_assert(std::convertible_to<Result, torch::Tensor>, "etude: a loss must return a torch::Tensor");
      if constexpr (std::convertible_to<Result, torch::Tensor>) return f(output, target, count...);
    }
  };
  if constexpr (form_of<Types> == LossForm::kCounting) {
    return compute(item_count<std::tuple_element_t<2, Types>>(num_items, labels));
  } else {
    return compute();
  }
}

/// Throws DataError for operands with which torch's loss of that name (such as "CrossEntropyLoss") computes
/// something unintended or fails with an unhelpful message: class indices of the wrong type or shape, and
/// elementwise losses of tensors with different types, or different shapes, which LibTorch would broadcast.
void check_operands(std::string_view name, const Tensors& outputs, const Tensors& labels);

/// `loss` as a 0-dim tensor. Throws DataError unless it has one element.
torch::Tensor scalar_loss(const torch::Tensor& loss);

}  // namespace detail

/// A type-erased loss; a copy refers to the same loss. It is made from
/// - a `shared_ptr` or ModuleHolder of a loss module, torch's or a user's, whose `forward` takes `(output,
///   target)`, or one tensor for each of the model's outputs and labels;
/// - any callable `(output, target) -> Tensor`, where each is a torch::Tensor or, for several, a `const
///   Tensors&`;
/// - the same with a third parameter, the number of items (a double, an integer, or an optional of these): a
///   loss that divides its sum by that number, so that accumulated batches are weighted by their items.
class Loss {
 public:
  Loss() = default;

  /// Throws ArgumentError for a null pointer or an empty holder or function.
  template <class T>
    requires(!std::same_as<T, Loss> && detail::FormOfLoss<T>)
  Loss(T loss) {
    if constexpr (detail::HoldsModule<T>) {
      if (loss.is_empty()) throw ArgumentError("loss: the module holder is empty; construct its module");
      set_module(loss.ptr());
    } else if constexpr (detail::is_shared_ptr<T>) {
      if (!loss) throw ArgumentError("loss: it is a null pointer");
      set_module(std::move(loss));
    } else {
      if constexpr (requires { loss == nullptr; }) {
        if (loss == nullptr) throw ArgumentError("loss: it is an empty function");
      }
      set<typename decltype(detail::loss_parameters<T>())::type>(std::move(loss));
    }
  }

  // Compilers name the line that calls this, and after a failed assertion they name it last.
  template <class T>
    requires(!std::same_as<T, Loss> && !detail::FormOfLoss<T>)
  __attribute__((unavailable(
      "etude: a loss is called as (output, target) or (output, target, num_items) and returns a "
      "torch::Tensor; output and target are torch::Tensor or const etude::Tensors&, num_items is a number or "
      "an optional one (not an integer in a plain function, where it could mean anything)"))) Loss(T loss);

  explicit operator bool() const { return compute_ != nullptr; }

  /// The loss as a 0-dim tensor. If `num_items` is unset, a loss that takes a number gets
  /// `count_items(labels)`, and one that takes an optional gets an empty one. Throws DataError if the loss
  /// isn't a single number, if there are more outputs or labels than it takes, and if a torch loss module
  /// would broadcast output and target.
  torch::Tensor operator()(const Tensors& outputs, const Tensors& labels,
                           std::optional<double> num_items = {}) const {
    return detail::scalar_loss(compute_(outputs, labels, num_items));
  }

  /// True if the loss takes the number of items.
  bool counts_items() const { return counts_items_; }

  /// How the losses of a batch's parts combine into the batch's loss; known only for LibTorch's modules.
  LossReduction reduction() const { return module_ ? reduction_of(*module_) : LossReduction::unknown; }
  /// The number that the loss of a batch with these labels is divided by, if its reduction is `mean`. Doesn't
  /// wait for the device of the labels.
  LossDivisor divisor(const Tensors& labels) const;

  /// The loss module, which may have parameters; null for a callable.
  const std::shared_ptr<torch::nn::Module>& module() const { return module_; }

 private:
  template <class Types, class F>
  void set(F f) {
    counts_items_ = detail::form_of<Types> == detail::LossForm::kCounting;
    compute_ = [f = std::move(f)](const Tensors& outputs, const Tensors& labels,
                                  std::optional<double> num_items) mutable {
      return detail::call_loss(std::type_identity<Types>(), f, outputs, labels, num_items);
    };
  }

  template <class M>
  void set_module(std::shared_ptr<M> module) {
    static_assert(std::derived_from<M, torch::nn::Module>,
                  "etude: a loss held by pointer must derive from torch::nn::Module");
    using Types = typename decltype(detail::forward_parameters<M>())::type;
    module_ = module;
    if constexpr (detail::form_of<Types> != detail::LossForm::kNone) {
      set<Types>([module](const auto&... operands) { return module->forward(operands...); });
    } else if constexpr (detail::HasForward<M>) {
      compute_ = [module](const Tensors& outputs, const Tensors& labels, std::optional<double>) {
        std::vector<torch::Tensor> all(outputs.begin(), outputs.end());
        all.insert(all.end(), labels.begin(), labels.end());
        return detail::forward_all<torch::Tensor>(*module, all,
                                                  [](const torch::Tensor& loss) { return loss; });
      };
    } else {
      static_assert(detail::HasForward<M>,
                    "etude: a loss module needs a forward(output, target) that takes torch::Tensor");
    }
    if constexpr (type_name<M>().starts_with("torch::nn::")) {
      compute_ = [compute = std::move(compute_)](const Tensors& outputs, const Tensors& labels,
                                                 std::optional<double> n) {
        constexpr auto name = short_type_name<M>();
        detail::check_operands(name.substr(0, name.rfind("Impl")), outputs, labels);
        return compute(outputs, labels, n);
      };
    }
  }

  std::function<torch::Tensor(const Tensors&, const Tensors&, std::optional<double>)> compute_;
  std::shared_ptr<torch::nn::Module> module_;
  bool counts_items_ = false;

  /// A copy of the class weights on the labels' device, if the module has them on another device.
  struct WeightsElsewhere {
    torch::Tensor original = {}, copy = {};
    std::int64_t version = 0;
  };
  mutable WeightsElsewhere weights_;
};

}  // namespace etude::inline v0
