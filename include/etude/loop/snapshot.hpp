#pragma once

#include <cstddef>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "etude/data/dataset_state.hpp"
#include "etude/libtorch/generators.hpp"
#include "etude/libtorch/random_state.hpp"
#include "etude/libtorch/tensor_copies.hpp"
#include "etude/metrics/eval_prediction.hpp"
#include "etude/metrics/pending_logs.hpp"
#include "etude/model/carried_state.hpp"
#include "etude/model/model.hpp"
#include "etude/optim/optimizer.hpp"
#include "etude/parallel/communicator.hpp"
#include "etude/precision/grad_scaler.hpp"
#include "etude/trainer_control.hpp"

namespace etude::inline v0 {

class EventSource;

/// The learning rates of an optimizer's parameter groups, and their initial ones.
class LearningRates {
 public:
  explicit LearningRates(Optimizer& optimizer);
  void restore(Optimizer& optimizer) const;
  /// Sets the rates of the groups in proportion to their initial ones: `rate` is the largest.
  void scale_to(double rate, Optimizer& optimizer) const;

 private:
  std::vector<std::pair<double, double>> rates_;  // lr and initial_lr of each group
};

/// The state and options of an optimizer, in host memory.
class OptimizerCopy {
 public:
  /// All processes make it, and each gets the whole state.
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

/// The weights and buffers of the model, in host memory, and of the loss. Those of the model are restored by
/// name, since a model may replace its tensors, and `model_init` the model.
class Weights {
 public:
  explicit Weights(EventSource& events);
  void restore(EventSource& events) const;

 private:
  std::map<std::string, torch::Tensor> model_;
  TensorCopies loss_;
};

/// The buffers of the model, on their devices.
class Buffers {
 public:
  explicit Buffers(EventSource& events);
  void restore(EventSource&) const { copies_.restore(); }
  const TensorCopies& copies() const { return copies_; }

 private:
  TensorCopies copies_;
};

/// The gradients of the model's parameters. `restore` hands its copies out, so it can be called once.
class Gradients {
 public:
  explicit Gradients(EventSource& events);
  void restore(EventSource& events) const;

 private:
  std::vector<std::pair<torch::Tensor, torch::Tensor>> gradients_;  // one per parameter, perhaps undefined
};

/// The optimizers and the scale of fp16. After `restore`, gradients are zero, and an optimizer that didn't
/// exist starts from scratch.
class Optimizers {
 public:
  explicit Optimizers(EventSource& events);
  void restore(EventSource& events) const;

 private:
  std::map<std::string, OptimizerCopy> copies_;  // by name
  std::optional<GradScaler> scaler_;
};

/// The default generators, and those of the user.
class Generators {
 public:
  explicit Generators(EventSource& events);
  /// Warns of a generator whose state can't be restored.
  void restore(EventSource& events) const;
  const RandomState& state() const { return state_; }

 private:
  RandomState state_;
};

/// The default generators that a training on the trainer's device draws from. Faster than all Generators.
class DefaultGenerators {
 public:
  explicit DefaultGenerators(EventSource& events);
  void restore(EventSource&) const { state_.restore(); }

 private:
  DefaultRandomState state_;
};

/// The state that the model carries from batch to batch.
class Carried {
 public:
  explicit Carried(EventSource& events);
  void restore(EventSource& events) const;
  const CarriedTensors& tensors() const { return tensors_; }

 private:
  CarriedTensors tensors_;
};

/// The positions of a sampler and of a stream dataset that have a state.
class DataPositions {
 public:
  explicit DataPositions(EventSource& events);
  void restore(EventSource& events) const;

 private:
  std::optional<std::string> sampler_;
  std::optional<DatasetState> dataset_;
};

/// The requests to the loop.
class Control {
 public:
  explicit Control(EventSource& events);
  void restore(EventSource& events) const;

 private:
  TrainerControl control_;
};

/// The values that wait for the next log.
class Logs {
 public:
  explicit Logs(EventSource& events);
  void restore(EventSource& events) const;

 private:
  PendingLogs logs_;
};

/// The same, but set aside: none wait afterwards, and `restore` puts them before the values added since.
class LogsAside {
 public:
  explicit LogsAside(EventSource& events);
  void restore(EventSource& events) const;

 private:
  PendingLogs logs_;
};

/// The length of the log history: `restore` drops the lines that came after.
class LogHistoryLines {
 public:
  explicit LogHistoryLines(EventSource& events);
  void restore(EventSource& events) const;

 private:
  std::size_t lines_;
};

/// The states of callbacks that have one.
class Callbacks {
 public:
  explicit Callbacks(EventSource& events);
  void restore(EventSource& events) const;

 private:
  nlohmann::ordered_json states_;
};

/// The `compute_metrics` of the options, with the state that it holds by value.
class MetricState {
 public:
  explicit MetricState(EventSource& events);
  void restore(EventSource& events) const;

 private:
  ComputeMetrics compute_metrics_;
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
