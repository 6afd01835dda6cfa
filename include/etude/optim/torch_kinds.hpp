#pragma once

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>

#include "etude/reflect/allowed.hpp"

/// Describes LibTorch's optimizers: the names of their options and their per-parameter state, which are the
/// same as in Etude's.
namespace etude::inline v0::detail {

using allowed::at_least;

/// Describes one of torch's option types: `name`; `options(known, visit)` calls visit(name, value, allowed)
/// for each option, which it may change; `fault(known)` describes an invalid combination; `moments(known,
/// state, visit)` calls visit(name, tensor) for each tensor in a parameter's `State`; `steps(state)` points
/// to the step count, or is null if there is none.
template <typename Options>
struct TorchKind;

/// Counts steps, and takes any combination of options.
template <typename ParamState>
struct SteppedTorchKind {
  using State = ParamState;

  template <typename Options>
  static std::string fault(const Options&) {
    return "";
  }
  static std::int64_t* steps(State& state) { return &state.step(); }
};

template <typename Options, typename ParamState>
struct TorchAdamKind : SteppedTorchKind<ParamState> {
  template <typename Visit>
  static void options(Options& known, Visit visit) {
    visit("lr", known.lr(), at_least(0));
    visit("beta1", std::get<0>(known.betas()), at_least(0).below(1));
    visit("beta2", std::get<1>(known.betas()), at_least(0).below(1));
    visit("eps", known.eps(), at_least(0));
    visit("weight_decay", known.weight_decay(), at_least(0));
    visit("amsgrad", known.amsgrad());
  }

  template <typename Visit>
  static void moments(const Options& known, ParamState& state, Visit visit) {
    visit("exp_avg", state.exp_avg());
    visit("exp_avg_sq", state.exp_avg_sq());
    if (known.amsgrad()) visit("max_exp_avg_sq", state.max_exp_avg_sq());
  }
};

template <>
struct TorchKind<torch::optim::AdamOptions>
    : TorchAdamKind<torch::optim::AdamOptions, torch::optim::AdamParamState> {
  static constexpr const char* name = "Adam";
};

template <>
struct TorchKind<torch::optim::AdamWOptions>
    : TorchAdamKind<torch::optim::AdamWOptions, torch::optim::AdamWParamState> {
  static constexpr const char* name = "AdamW";
};

template <>
struct TorchKind<torch::optim::SGDOptions> {
  using State = torch::optim::SGDParamState;
  static constexpr const char* name = "SGD";

  template <typename Visit>
  static void options(torch::optim::SGDOptions& known, Visit visit) {
    visit("lr", known.lr(), at_least(0));
    visit("momentum", known.momentum(), at_least(0));
    visit("dampening", known.dampening());
    visit("weight_decay", known.weight_decay(), at_least(0));
    visit("nesterov", known.nesterov());
  }
  static std::string fault(const torch::optim::SGDOptions& known);

  template <typename Visit>
  static void moments(const torch::optim::SGDOptions& known, State& state, Visit visit) {
    if (known.momentum() != 0) visit("momentum_buffer", state.momentum_buffer());
  }
  static std::int64_t* steps(State&) { return nullptr; }
};

template <>
struct TorchKind<torch::optim::RMSpropOptions> : SteppedTorchKind<torch::optim::RMSpropParamState> {
  static constexpr const char* name = "RMSprop";

  template <typename Visit>
  static void options(torch::optim::RMSpropOptions& known, Visit visit) {
    visit("lr", known.lr(), at_least(0));
    visit("alpha", known.alpha(), at_least(0));
    visit("eps", known.eps(), at_least(0));
    visit("weight_decay", known.weight_decay(), at_least(0));
    visit("momentum", known.momentum(), at_least(0));
    visit("centered", known.centered());
  }

  template <typename Visit>
  static void moments(const torch::optim::RMSpropOptions& known, State& state, Visit visit) {
    visit("square_avg", state.square_avg());
    if (known.momentum() > 0) visit("momentum_buffer", state.momentum_buffer());
    if (known.centered()) visit("grad_avg", state.grad_avg());
  }
};

template <>
struct TorchKind<torch::optim::AdagradOptions> : SteppedTorchKind<torch::optim::AdagradParamState> {
  static constexpr const char* name = "Adagrad";

  template <typename Visit>
  static void options(torch::optim::AdagradOptions& known, Visit visit) {
    visit("lr", known.lr(), at_least(0));
    visit("lr_decay", known.lr_decay(), at_least(0));
    visit("weight_decay", known.weight_decay(), at_least(0));
    visit("initial_accumulator_value", known.initial_accumulator_value(), at_least(0));
    visit("eps", known.eps(), at_least(0));
  }

  template <typename Visit>
  static void moments(const torch::optim::AdagradOptions&, State& state, Visit visit) {
    visit("sum", state.sum());
  }
};

template <>
struct TorchKind<torch::optim::LBFGSOptions> {
  static constexpr const char* name = "LBFGS";  // its state is shared by all parameters

  template <typename Visit>
  static void options(torch::optim::LBFGSOptions& known, Visit visit) {
    visit("lr", known.lr(), at_least(0));
    visit("max_iter", known.max_iter(), at_least(1));
    visit_optional("max_eval", known.max_eval(), visit, at_least(1));
    visit("tolerance_grad", known.tolerance_grad());
    visit("tolerance_change", known.tolerance_change());
    visit("history_size", known.history_size(), at_least(1));
    visit_optional("line_search_fn", known.line_search_fn(), visit);
  }
  static std::string fault(const torch::optim::LBFGSOptions& known);

 private:
  // Older LibTorch versions have their own optional type.
  template <typename Optional, typename Visit, typename... Range>
  static void visit_optional(const char* option, Optional& target, Visit& visit, Range... range) {
    using Standard = std::optional<typename Optional::value_type>;
    if constexpr (std::same_as<Optional, Standard>) {
      visit(option, target, range...);
    } else {
      Standard value;
      if (target) value = *target;
      visit(option, value, range...);
      target.reset();
      if (value) target = *value;
    }
  }
};

/// Calls `use` with the options cast to their actual type and returns true, if LibTorch defines that type.
template <typename Use>
bool with_known_options(torch::optim::OptimizerOptions& options, Use use) {
  const auto used = [&]<typename Options>(Options* known) {
    if (known) use(*known);
    return known != nullptr;
  };
  namespace optim = torch::optim;
  return used(dynamic_cast<optim::AdamWOptions*>(&options)) ||
         used(dynamic_cast<optim::AdamOptions*>(&options)) ||
         used(dynamic_cast<optim::SGDOptions*>(&options)) ||
         used(dynamic_cast<optim::RMSpropOptions*>(&options)) ||
         used(dynamic_cast<optim::AdagradOptions*>(&options)) ||
         used(dynamic_cast<optim::LBFGSOptions*>(&options));
}

}  // namespace etude::inline v0::detail
