#include "work_under_way.hpp"

#include <memory>

#include "etude/base/message.hpp"
#include "etude/loop/snapshot.hpp"

namespace etude::inline v0 {

void WorkUnderWay::begin_reentry() {
  remaining_ = core_.progress.loop.epoch_is_open() ? Reentry::epoch : Reentry::nothing;
}

void WorkUnderWay::enter_epoch() {
  const bool in_group = core_.progress.position.micro_batches > 0;
  remaining_ = in_group ? Reentry::group : Reentry::nothing;
  in_group ? checkpoints_.put_back_model() : checkpoints_.put_back();
}

void WorkUnderWay::begin_group() {
  if (remaining_ == Reentry::group) checkpoints_.load_group_begin();
  const bool may_save = core_.may_save();
  if (core_.args.auto_microbatching || !core_.carried.empty() ||
      (may_save && (core_.accumulation.steps() > 1 || core_.args.save_on_exception)))
    core_.work_begin = std::make_unique<WorkBegin>(events_);
  if (may_save && core_.args.save_on_exception) begin_.emplace(events_);
}

bool WorkUnderWay::enter_group() {
  if (!reenters_group()) return false;
  checkpoints_.put_back();
  checkpoints_.load_half_done();
  return true;
}

void WorkUnderWay::forget_group() {
  begin_.reset();
  core_.work_begin.reset();
  forget_half_done();
}

bool WorkUnderWay::forget_half_done() {
  if (!reenters_group()) return false;
  checkpoints_.put_back();
  checkpoints_.load_group_begin();
  core_.progress.position.micro_batches = 0;
  return true;
}

void WorkUnderWay::begin_evaluation() {
  if (!core_.may_save()) return;
  core_.work_begin = std::make_unique<WorkBegin>(events_);
  begin_.emplace(events_);
}

void WorkUnderWay::give_up() {
  core_.optimizers.zero_grad();
  core_.return_carried();
  begin_.reset();
  if (remaining_ == Reentry::group) return;
  core_.work_begin.reset();
  core_.progress.position.micro_batches = 0;
}

void WorkUnderWay::end() {
  begin_.reset();
  core_.work_begin.reset();
}

SafePoint WorkUnderWay::at_exception() {
  if (!core_.work_begin) core_.work_begin = std::make_unique<WorkBegin>(events_);
  return SafePoint(events_);
}

void WorkUnderWay::save_after_exception(const std::optional<SafePoint>& now) {
  if (!core_.args.save_on_exception || !core_.progress.loop.has_started() || !may_save()) return;
  if (core_.updating) {
    message(core_.args, LogLevel::warning,
            "no checkpoint is written after this exception: it interrupted an update");
    return;
  }
  if (core_.shard_stage && core_.ranks.world_size() > 1) {
    message(core_.args, LogLevel::warning,
            "no checkpoint is written after this exception: the other processes have a part of its state");
    return;
  }
  const auto& begin = begin_ ? begin_ : now;
  checkpoints_.save_on_the_way_out("exception", begin ? &*begin : nullptr);
}

void WorkUnderWay::save_after(const Interrupted& interrupted) {
  if (!may_save() || core_.updating) return;
  message(core_.args, LogLevel::warning, "{}: writing a checkpoint; a second signal ends at once",
          interrupted.what());
  const bool in_group = core_.progress.loop == LoopState{TrainingStage::epochs, EpochStage::steps};
  checkpoints_.save_on_the_way_out("interrupted", begin_ && !in_group ? &*begin_ : nullptr);
}

bool WorkUnderWay::reenters_group() {
  if (remaining_ != Reentry::group) return false;
  remaining_ = Reentry::nothing;
  return true;
}

bool WorkUnderWay::may_save() const {
  return core_.may_save() && core_.progress.loop.stage != TrainingStage::done &&
         remaining_ == Reentry::nothing;
}

}  // namespace etude::inline v0
