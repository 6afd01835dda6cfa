#pragma once

#include <etude.h>
#include <torch/types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "etude/loop/compute_loss.hpp"
#include "etude/model/exported_module.hpp"
#include "etude/optim/flat_layout.hpp"
#include "etude/parallel/distributed_data_parallel.hpp"
#include "etude/trainer.hpp"
#include "fields.hpp"
#include "guard.hpp"
#include "options.hpp"

namespace etude::inline v0::c {

/// Memory of the program that checkpoints keep.
class ProgramMemory {
 public:
  ProgramMemory(torch::Tensor memory, std::string name)
      : memory_(std::move(memory)), name_(std::move(name)) {}
  torch::Tensor state() const { return memory_.contiguous(); }
  /// Throws CheckpointError if the shape or type differs.
  void load_state(const torch::Tensor& saved);

 private:
  torch::Tensor memory_;
  std::string name_;
};

/// A trainer for a program that has its own loop, and handles signals and the terminal itself.
class ProgramTrainer final
    : public TrainerBase<ProgramTrainer, Quiet, DistributedDataParallel, RuntimeCallbacks> {
 public:
  /// `step` makes the optimizer's step, given the learning rate; if empty, the arguments name the optimizer.
  ProgramTrainer(TrainerOptions options, std::function<void(double)> step);

  std::unique_ptr<Optimizer> create_optimizer();

  /// Whether a training in the program's loop is under way.
  bool is_stepping() const { return stepped_.is_under_way(); }
  /// Ends that training, without an evaluation or a checkpoint.
  void abandon() noexcept { stepped_.abandon(); }
  /// The loss of the last update of that training; undefined if there is none.
  torch::Tensor step_loss() const { return stepped_.loss(); }
  torch::Device device() const { return core().device; }
  /// The number of batches of an update.
  std::int64_t batches_per_update() const { return core().accumulation.steps(); }
  /// The outputs of a batch in evaluation mode, without gradients.
  Tensors outputs_of(const Batch& batch);

 private:
  std::function<void(double)> step_;
};

}  // namespace etude::inline v0::c

struct etude_trainer {
  etude_trainer(const std::string& file, etude::c::Options given);

  /// Throws ArgumentError if nothing computes the loss.
  void check_loss() const;
  /// Makes a dataset whose labels are optional.
  etude::Dataset dataset_of(const etude::c::ProgramTensors& tensors) const;
  /// The newest value of a number. Throws Refusal, which lists all names, for an unknown one.
  double number(std::string_view name);
  /// The parameters with their names, which are collected in the first call.
  const std::vector<etude::NamedTensor>& parameters();
  const etude::NamedTensor& parameter(const std::string& name);
  /// The gradient of a parameter; undefined if it has none.
  torch::Tensor gradient(const etude::NamedTensor& parameter);

  etude::c::Turn turn;
  etude::c::Options options;
  etude::ExportedModule model;
  etude::c::Fields fields;
  etude::c::Fields::Shared shared;  // the last batch of step or backward
  std::deque<etude::c::ProgramMemory> memory;
  etude::c::ProgramTrainer trainer;

  bool has_stopped = false;         ///< whether only finish is left to call
  std::optional<bool> halves = {};  ///< whether steps are made by backward and update
  bool has_gradients = false;       ///< whether backward was called since the last update
  torch::Tensor loss = {};          ///< of the last update
  etude::Metrics metrics = {};      ///< of the last evaluation, unless the log history has them
  etude::Tensors outputs = {};      ///< of the last prediction
  std::string state_text = {};

 private:
  std::vector<etude::NamedTensor> parameters_;
  std::unordered_map<std::string_view, std::size_t> places_;  // of `parameters_`
  std::shared_ptr<const etude::FlatLayout> layout_;
  std::unordered_map<std::string_view, std::size_t> slots_;  // of `layout_`
};

namespace etude::inline v0::c {

/// Whether a function may be called in callbacks.
inline constexpr bool in_callbacks = true;
inline constexpr bool not_in_callbacks = false;

/// Runs a call with a trainer: `act(trainer)`.
template <class Act>
etude_status call(etude_trainer* trainer, const char* function, bool is_nestable, Act act) noexcept {
  return guarded([&] {
    auto& it = required(trainer, "trainer");
    const Turn::Call turn(it.turn, function, is_nestable);
    act(it);
  });
}

}  // namespace etude::inline v0::c
