#pragma once

#include <cstddef>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "etude/data/dataset_state.hpp"
#include "etude/dispatch/callback_state.hpp"
#include "etude/libtorch/generators.hpp"
#include "etude/libtorch/random_state.hpp"
#include "etude/libtorch/tensor_copies.hpp"
#include "etude/loop/core.hpp"
#include "etude/loop/event_source.hpp"
#include "etude/metrics/pending_logs.hpp"
#include "etude/model/carried_state.hpp"
#include "etude/optim/optimizer.hpp"
#include "etude/parallel/communicator.hpp"
#include "etude/precision/grad_scaler.hpp"

namespace etude::inline v0 {

/// The learning rates of an optimizer's parameter groups, and their initial ones.
class LearningRates {
 public:
  explicit LearningRates(Optimizer& optimizer);
  void restore(Optimizer& optimizer) const;
  /// Sets the rates of the groups in proportion to their initial rates; the largest becomes `rate`.
  void scale_to(double rate, Optimizer& optimizer) const;

 private:
  std::vector<std::pair<double, double>> rates_;  // lr and initial_lr of each group
};

/// The state and options of an optimizer, in host memory.
class OptimizerCopy {
 public:
  /// All processes must construct one, and each gets the whole state.
  OptimizerCopy(Optimizer& optimizer, Communicator& communicator);
  void restore(Optimizer& optimizer) const;
  const LearningRates& rates() const { return rates_; }

 private:
  NamedTensors state_;
  nlohmann::ordered_json options_;
  LearningRates rates_;
};

/// The parts of a training that a Snapshot can have. Each copies the current state on construction, and
/// `restore` restores it.
namespace part {

/// A member of the core that is copied as it is.
template <auto member>
struct Copy {
  explicit Copy(EventSource& events) : value(events.core().*member) {}
  void restore(EventSource& events) const { events.core().*member = value; }
  std::remove_cvref_t<decltype(std::declval<TrainerCore&>().*member)> value;
};

/// The requests to the loop.
using Control = Copy<&TrainerCore::control>;
/// The values that wait for the next log.
using Logs = Copy<&TrainerCore::pending_logs>;

/// Moves those values out, so that none wait afterwards; `restore` inserts them before the values added
/// since.
struct LogsAside {
  explicit LogsAside(EventSource& events) : logs(std::exchange(events.core().pending_logs, {})) {}
  void restore(EventSource& events) const;
  PendingLogs logs;
};

/// The weights and buffers of the model, in host memory, and of the loss. The model's tensors are restored by
/// name, since a model may replace them, and `model_init` may replace the model.
struct Weights {
  explicit Weights(EventSource& events);
  void restore(EventSource& events) const;
  std::map<std::string, torch::Tensor> model;
  TensorCopies loss;
};

/// The buffers of the model, on their devices.
struct Buffers {
  explicit Buffers(EventSource& events);
  void restore(EventSource&) const { copies.restore(); }
  TensorCopies copies;
};

/// The gradients of the model's parameters. `restore` hands its copies out, so it can be called once.
struct Gradients {
  explicit Gradients(EventSource& events);
  void restore(EventSource&) const;
  std::vector<std::pair<torch::Tensor, torch::Tensor>> gradients;  // one per parameter, perhaps undefined
};

/// The optimizers and the scale of fp16. After `restore`, gradients are zero, and an optimizer that didn't
/// exist starts from scratch.
struct Optimizers {
  explicit Optimizers(EventSource& events);
  void restore(EventSource& events) const;
  std::map<std::string, OptimizerCopy> copies;  // by name
  std::optional<GradScaler> scaler;
};

/// The default generators and the user's.
struct Generators {
  explicit Generators(EventSource& events) : state(random_state(events.core().options.generators)) {}
  /// Warns of a generator whose state can't be restored.
  void restore(EventSource& events) const;
  RandomState state;
};

/// The default generators that a training on the trainer's device draws from. Faster than all Generators.
struct DefaultGenerators {
  explicit DefaultGenerators(EventSource& events) : state(events.core().device) {}
  void restore(EventSource&) const { state.restore(); }
  DefaultRandomState state;
};

/// The state that the model carries from batch to batch.
struct Carried {
  explicit Carried(EventSource& events) : tensors(events.core().carried.tensors()) {}
  void restore(EventSource& events) const { events.core().carried.load(tensors); }
  CarriedTensors tensors;
};

/// The positions of a sampler and of a stream dataset that have a state.
struct DataPositions {
  explicit DataPositions(EventSource& events);
  void restore(EventSource& events) const;
  std::optional<std::string> sampler;
  std::optional<DatasetState> dataset;
};

/// The length of the log history: `restore` drops the lines that came after.
struct LogHistoryLines {
  explicit LogHistoryLines(EventSource& events) : lines(events.core().state.log_history.size()) {}
  void restore(EventSource& events) const { events.core().log_history.drop_from(lines); }
  std::size_t lines;
};

/// The states of callbacks that have one.
struct Callbacks {
  explicit Callbacks(EventSource& events) : states(save_states(events.states())) {}
  void restore(EventSource& events) const;
  nlohmann::ordered_json states;
};

/// The `compute_metrics` of the options, with the state that it holds by value.
struct MetricState {
  explicit MetricState(EventSource& events) : compute_metrics(events.core().options.compute_metrics) {}
  void restore(EventSource& events) const { events.core().options.compute_metrics = compute_metrics; }
  ComputeMetrics compute_metrics;
};

}  // namespace part

/// Copies of parts of a training, made on construction; `restore` restores the parts in order. `events` must
/// outlive it.
template <class... Parts>
class Snapshot {
 public:
  explicit Snapshot(EventSource& events) : events_(&events), parts_{Parts(events)...} {}

  void restore() const { (restore<Parts>(), ...); }
  template <class Part>
  void restore() const {
    get<Part>().restore(*events_);
  }
  template <class Part>
  const Part& get() const {
    return std::get<Part>(parts_);
  }

 private:
  EventSource* events_;
  std::tuple<Parts...> parts_;
};

/// A Snapshot that is restored at the end of its scope.
template <class... Parts>
class SnapshotScope {
 public:
  explicit SnapshotScope(EventSource& events) : begin_(events) {}
  SnapshotScope(const SnapshotScope&) = delete;
  SnapshotScope& operator=(const SnapshotScope&) = delete;
  ~SnapshotScope() { begin_.restore(); }

 private:
  Snapshot<Parts...> begin_;
};

/// The state that a training step changes.
using TrainedState = Snapshot<part::Weights, part::Optimizers, part::Generators, part::Carried>;

/// The state that forward passes change, from the beginning of an accumulation group or of an evaluation.
struct WorkBegin : Snapshot<part::Buffers, part::Generators, part::Carried> {
  using Snapshot::Snapshot;
};

}  // namespace etude::inline v0
