#include "etude/callbacks/underflow_overflow.hpp"

#include <ATen/record_function.h>
#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <deque>
#include <mutex>
#include <string>
#include <utility>

#include "etude/base/counting.hpp"
#include "etude/base/error.hpp"
#include "etude/base/message.hpp"
#include "etude/data/tensors.hpp"
#include "etude/libtorch/record_function.hpp"
#include "etude/metrics/metrics.hpp"
#include "etude/model/model.hpp"
#include "etude/reflect/check_fields.hpp"

namespace etude::inline v0 {

namespace detail {

namespace {

/// The least and greatest absolute value of a tensor, NaN if it contains NaN; nullopt unless it holds floats.
std::optional<std::pair<double, double>> magnitudes(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_floating_point() || tensor.layout() != at::kStrided ||
      tensor.is_meta() || tensor.numel() == 0)
    return std::nullopt;
  const torch::NoGradGuard no_grad;
  const auto type = tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const auto [least, greatest] = tensor.detach().abs().to(type).aminmax();
  const auto both = torch::stack({least, greatest}).to(at::kDouble).cpu();
  return std::pair(both.data_ptr<double>()[0], both.data_ptr<double>()[1]);
}

}  // namespace

/// The values in an operator's inputs or outputs.
struct Magnitudes {
  bool has_inf = false, has_nan = false, has_floats = false;
  std::string text = {};

  void add_tensor(const at::Tensor& tensor, std::string_view name) {
    const auto found = magnitudes(tensor);
    if (!found) return;
    has_floats = true;
    has_nan = has_nan || std::isnan(found->second);
    has_inf = has_inf || std::isinf(found->second);
    text += fmt::format("{:>10.2e} {:>10.2e}  {} {}\n", without_sign_of_nan(found->first),
                        without_sign_of_nan(found->second), name, describe(tensor));
  }

  void add(const c10::IValue& value, const std::string& name) {
    if (value.isTensor()) return add_tensor(value.toTensor(), name);
    if (value.isDouble()) {
      has_nan = has_nan || std::isnan(value.toDouble());
      has_inf = has_inf || std::isinf(value.toDouble());
    } else if (value.isTensorList()) {
      std::size_t i = 0;
      for (const at::Tensor& tensor : value.toTensorVector())
        add_tensor(tensor, fmt::format("{}[{}]", name, i++));
    }
  }

  template <class Values>
  void add_all(const Values& values, std::string_view name) {
    std::size_t i = 0;
    for (const c10::IValue& value : values) add(value, fmt::format("{}[{}]", name, i++));
  }
};

/// While it lives, observes every operator of this thread and of the backward passes that it starts.
class OperatorWatch {
 public:
  OperatorWatch(std::size_t max_frames, bool traces) : max_frames_(max_frames), traces_(traces) {
    OperatorWatch* none = nullptr;
    if (!active().compare_exchange_strong(none, this))
      throw Error("another DebugUnderflowOverflowCallback is already active in this process");
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(begin, end)
                                             .needsInputs(true)
                                             .needsOutputs(true)
                                             .scopes({at::RecordScope::FUNCTION}));
  }
  OperatorWatch(const OperatorWatch&) = delete;
  OperatorWatch& operator=(const OperatorWatch&) = delete;
  ~OperatorWatch() {
    at::removeCallback(handle_);
    active() = nullptr;
  }

  /// The operator that produced the first inf or NaN, and the operators before it; empty if there is none.
  std::string fault() const {
    const std::lock_guard lock(mutex_);
    if (culprit_.empty()) return "";
    std::string text = fmt::format(
        "{}; the operators before it, with the least and greatest absolute values of their inputs and "
        "outputs:\n",
        culprit_);
    for (const auto& frame : frames_) text += frame;
    return text;
  }

  std::string take_trace() {
    const std::lock_guard lock(mutex_);
    return std::exchange(trace_, {});
  }

 private:
  struct Inputs : at::ObserverContext {
    Magnitudes values;
  };

  static std::atomic<OperatorWatch*>& active() {
    static std::atomic<OperatorWatch*> watch{nullptr};
    return watch;
  }

  // LibTorch swallows exceptions thrown here, and would call this again for operators run here.
  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
    const at::RecordFunctionGuard unheard(false);
    auto inputs = std::make_unique<Inputs>();
    inputs->values.add_all(libtorch::inputs_of(function), "input");
    return inputs;
  }

  static void end(const at::RecordFunction& function, at::ObserverContext* context) {
    auto* self = active().load();
    if (self == nullptr || context == nullptr) return;
    const at::RecordFunctionGuard unheard(false);
    Magnitudes outputs;
    outputs.add_all(function.outputs(), "output");
    self->take(function.name(), static_cast<Inputs*>(context)->values, outputs);
  }

  void take(std::string_view name, const Magnitudes& inputs, const Magnitudes& outputs) {
    const std::lock_guard lock(mutex_);
    if (!culprit_.empty() || (!inputs.has_floats && !outputs.has_floats) || libtorch::gives_raw_memory(name))
      return;
    auto frame = fmt::format("{:>10} {:>10}  {}\n", "abs min", "abs max", name) + inputs.text + outputs.text;
    if (traces_) trace_ += frame;
    frames_.push_back(std::move(frame));
    if (frames_.size() > max_frames_) frames_.pop_front();
    if (!inputs.has_floats) return;
    if (outputs.has_nan && !inputs.has_nan)
      culprit_ = fmt::format("{} made NaN", name);
    else if (outputs.has_inf && !inputs.has_inf && !inputs.has_nan)
      culprit_ = fmt::format("{} made inf", name);
  }

  std::size_t max_frames_;
  bool traces_;
  at::CallbackHandle handle_ = 0;
  mutable std::mutex mutex_;  // Some devices run backward passes in separate threads.
  std::deque<std::string> frames_;
  std::string culprit_, trace_;
};

namespace {

void check_is_finite(const at::Tensor& tensor, std::string_view what, std::string_view name) {
  const auto found = magnitudes(tensor);
  if (found && !std::isfinite(found->second))
    throw Error(fmt::format("{} {} has {}: {}", what, name, std::isnan(found->second) ? "NaN" : "inf",
                            describe(tensor)));
}

void check_is_finite(const Tensors& tensors, std::string_view what) {
  for (std::size_t i = 0; i < tensors.size(); ++i)
    check_is_finite(tensors[i], what, tensors.names().empty() ? fmt::format("{}", i) : tensors.names()[i]);
}

}  // namespace

}  // namespace detail

void DebugUnderflowOverflowCallback::on(const TrainBegin& e) {
  detail::check_fields(*this);
  if (e.state.global_step == 0) state = {};
  message(
      e.args, LogLevel::warning,
      "DebugUnderflowOverflowCallback checks every value of every operator: training is many times slower");
}

void DebugUnderflowOverflowCallback::on(const StepBegin& e) {
  for (const auto& [name, parameter] : e.model.named_parameters())
    detail::check_is_finite(parameter, "the parameter", name);
}

void DebugUnderflowOverflowCallback::on(const ForwardBegin& e) {
  watch.reset();
  if (e.batch.inputs.empty())
    throw ArgumentError(
        "DebugUnderflowOverflowCallback can't be used with backward(loss): it watches the forward pass, "
        "which "
        "the program has made already");
  detail::check_is_finite(e.batch.inputs, "of the batch, input");
  detail::check_is_finite(e.batch.labels, "of the batch, label");
  const bool traces = std::find(trace_batch_nums.begin(), trace_batch_nums.end(), state.batch_number) !=
                      trace_batch_nums.end();
  watch = std::make_shared<detail::OperatorWatch>(static_cast<std::size_t>(max_frames_to_save), traces);
}

void DebugUnderflowOverflowCallback::on(const BackwardBegin&) { check(); }

void DebugUnderflowOverflowCallback::on(const BackwardEnd& e) {
  leave();
  if (abort_after_batch_num && state.batch_number > *abort_after_batch_num)
    e.control.request_stop(fmt::format("abort_after_batch_num is {}", *abort_after_batch_num));
}

void DebugUnderflowOverflowCallback::on(const EpochEnd&) { watch.reset(); }

void DebugUnderflowOverflowCallback::on(const TrainEnd&) { watch.reset(); }

void DebugUnderflowOverflowCallback::check() const {
  if (!watch) return;
  if (const auto fault = watch->fault(); !fault.empty())
    throw Error(fmt::format("in batch {}, {}", state.batch_number, fault));
}

void DebugUnderflowOverflowCallback::leave() {
  if (!watch) return;
  check();
  if (const auto trace = watch->take_trace(); !trace.empty()) {
    const auto text = fmt::format("batch {}:\n{}", state.batch_number, trace);
    print ? print(text) : write_text(stdout, text);
  }
  watch.reset();
  detail::count_up(state.batch_number);
}

}  // namespace etude::inline v0
