#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "etude/base/linkage.hpp"
#include "etude/checkpoint/checkpoint.hpp"
#include "etude/checkpoint/resume.hpp"
#include "etude/dispatch/callback_state.hpp"
#include "etude/events.hpp"
#include "etude/loop/core.hpp"
#include "etude/loop/plan.hpp"
#include "etude/loop/snapshot.hpp"
#include "etude/loop/write_checkpoint.hpp"

namespace etude {

/// What one `train()` has to do with checkpoints: it goes on from one, and writes others.
///
/// A training that is resumed raises `TrainBegin` and, within an epoch, `EpochBegin` again, for those who set
/// something up there; afterwards everything that is saved is as it was when the checkpoint was written.
class AnyTrainingCheckpoints {
 public:
  /// What an interruption may go back to: where something began that isn't done.
  class SafePoint {
   private:
    friend class AnyTrainingCheckpoints;
    struct State;
    std::shared_ptr<const State> state_;
  };

  AnyTrainingCheckpoints(const AnyTrainingCheckpoints&) = delete;
  AnyTrainingCheckpoints& operator=(const AnyTrainingCheckpoints&) = delete;

  bool may_save() const {
    return core_.args.save_strategy != SaveStrategy::no || core_.args.load_best_model_at_end;
  }
  bool resumes() const { return point_ != nullptr; }
  /// Whether the state in `output_dir` is not the one that the run has come to.
  bool has_news() const;
  const std::filesystem::path& path() const;

  /// Finds and reads what is to be resumed. Nothing is changed yet.
  void find(const TrainOptions::Resume& resume);

  /// Takes over weights, state and the place in the data; `plan` is what is left to do from there.
  void load_training(TrainPlan& plan);

  /// Takes over the optimizer, the schedule and the callbacks' state, and tells what isn't as it was.
  void load_rest();

  /// Begins the way back after `TrainBegin`: what that has done stays.
  void begun();

  /// As the generators were when the half-done accumulation began.
  void load_group_random();

  /// Puts everything back that events which were raised again have touched.
  void put_back();
  /// The model and its optimizer from that copy; the gradients are zero then.
  void put_back_model();

  void load_half_done();

  /// Writes a checkpoint, and tells of it when it is on the disk.
  void save(std::string reason);

  /// Tells of a checkpoint that is written by now; throws what its writing has thrown.
  void poll();

  /// Waits for the checkpoint that is being written, and tells of it.
  void announce();

  /// Where an evaluation begins, which leaves the model and the generators as they are.
  SafePoint safe_point();

  /// Where an accumulation group begins, whose forward passes don't.
  SafePoint group_safe_point();

  /// Writes a checkpoint on the way out, of `point` if there is one and of this moment if not, unless that is
  /// done already. Callbacks stay as they are now.
  void save_on_the_way_out(const char* reason, const SafePoint* point);

  /// Exchanges the weights for those of the best evaluation, where they were kept.
  void load_best();

 protected:
  explicit AnyTrainingCheckpoints(TrainerCore& core);
  ~AnyTrainingCheckpoints();

  /// Waits for what is being written, and lets others have `output_dir`.
  void close();

 private:
  // What the trainer does.
  virtual std::vector<CallbackState> states() = 0;
  virtual std::filesystem::path save_checkpoint() = 0;
  virtual void raise(Save event) = 0;
  virtual void raise(PushBegin event) = 0;
  virtual void raise(CheckpointLoaded event) = 0;
  virtual void attempt(const std::function<void()>& part) = 0;
  /// Whether somebody hears again of what had begun at `position`, and may change the model then.
  virtual bool hears_again(const DataPosition& position) const = 0;

  SafePoint::State state_now();
  static SafePoint safe_point_of(SafePoint::State state);
  void tell(const std::filesystem::path& checkpoint);
  void go_back(const SafePoint::State& point);
  /// The run may have been killed before everybody heard of the checkpoint that it goes on from.
  void announce_again();
  /// Tells what a person who resumes this training may not expect.
  void tell_of_another_dataset(const DatasetFacts& then) const;
  void tell_if_nothing_is_left(const TrainPlan& plan) const;
  bool same_place(const TrainingProgress& saved) const;
  void load_random(const RandomState& state);

  TrainerCore& core_;
  std::unique_ptr<ResumePoint> point_;
  SafePoint after_begin_;
  std::unique_ptr<TrainingSnapshot> model_after_begin_;
  std::optional<std::pair<std::int64_t, TrainingProgress>> saved_;
};

/// The same of a trainer.
template <class Trainer>
class TrainingCheckpoints final : public AnyTrainingCheckpoints {
 public:
  explicit TrainingCheckpoints(Trainer& trainer) : AnyTrainingCheckpoints(trainer.core_), trainer_(trainer) {}
  ~TrainingCheckpoints() { close(); }

 private:
  std::vector<CallbackState> states() override { return trainer_.states(); }
  std::filesystem::path save_checkpoint() override { return trainer_.derived().save_checkpoint(); }
  void raise(Save event) override { trainer_.raise(std::move(event)); }
  void raise(PushBegin event) override { trainer_.raise(std::move(event)); }
  void raise(CheckpointLoaded event) override { trainer_.raise(std::move(event)); }
  void attempt(const std::function<void()>& part) override { trainer_.attempt(part); }
  bool hears_again(const DataPosition& position) const override {
    constexpr bool of_group = Trainer::template is_heard<BatchFetchBegin>() ||
                              Trainer::template is_heard<BatchFetched>() ||
                              Trainer::template is_heard<StepBegin>();
    return position.begun &&
           (Trainer::template is_heard<EpochBegin>() || (of_group && position.micro_batches > 0));
  }

  Trainer& trainer_;
};

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/loop/impl/checkpoints.ipp"
#endif
