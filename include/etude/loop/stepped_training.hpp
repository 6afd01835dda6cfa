#pragma once

#include <torch/types.h>

#include <memory>
#include <optional>
#include <string_view>

#include "etude/data/batch.hpp"
#include "etude/loop/event_source.hpp"
#include "etude/trainer_options.hpp"

namespace etude::inline v0 {

/// The trainings of a trainer in a program's own loop: see `TrainerBase::begin`.
class SteppedTraining {
 public:
  /// `events` must outlive this.
  explicit SteppedTraining(EventSource& events);
  SteppedTraining(const SteppedTraining&) = delete;
  SteppedTraining& operator=(const SteppedTraining&) = delete;
  /// Ends a training that isn't finished, without an exception.
  ~SteppedTraining();

  /// Throws Error, with the name of `method`, if a training is under way.
  void check_none(const char* method) const;

  void begin(const TrainOptions& options);
  /// Takes a micro-batch, and makes an update once there are `gradient_accumulation_steps` of them.
  StepOutput step(Batch batch);

  /// Whether backward(loss) was called by the program between its steps, rather than within a training step.
  bool takes_losses() const;
  /// Adds the gradients of a loss, for all parameters or for those of one optimizer.
  void backward(const LossOutput& computed, std::optional<std::string_view> optimizer = {});
  /// Computes the loss of a batch, and adds its gradients.
  void backward(Batch batch);
  /// Ends a micro-batch, and makes an update once there are `gradient_accumulation_steps` of them.
  StepOutput update();
  /// Makes the step of one optimizer before the steps of the others.
  void update(std::string_view optimizer);

  TrainOutput finish();
  /// Ends the training under way, if there is one, without an evaluation or a checkpoint.
  void abandon() noexcept;

  /// Whether a training is under way: neither finished nor ended by an exception.
  bool is_under_way() const { return training_ != nullptr; }
  /// The loss of the last update of the training under way: see StepOutput. Undefined if there is none.
  torch::Tensor loss() const;

 private:
  class Training;

  void begin_training(const TrainOptions& options);
  /// Throws Error unless the program may give a loss now.
  void check_takes_loss();
  /// Throws Error unless a loss has come since the last update.
  void check_loss(const char* method);
  /// Calls `act(training)` with the error handling of a trainer's methods.
  template <class Act>
  void in_training(Act act);

  EventSource& events_;
  std::unique_ptr<Training> training_;  // the one under way
  bool is_running_ = false;             // whether a method is being called
};

}  // namespace etude::inline v0
