#include "etude/loop/stepped_training.hpp"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>

#include "etude/base/counting.hpp"
#include "etude/base/error.hpp"
#include "etude/base/function_ref.hpp"
#include "etude/base/scoped_value.hpp"
#include "etude/data/dataset_state.hpp"
#include "etude/loop/core.hpp"
#include "etude/loop/remote_control.hpp"
#include "micro_batches.hpp"
#include "train.hpp"

namespace etude::inline v0 {

namespace {

/// Turns a batch from the program into one as a loader would make it. Throws DataError if the tensors don't
/// form a batch.
Batch batch_of_program(Batch batch, const TrainingArguments& args) {
  // If the program has set the size, it assembled the batch itself, and tensors may have other first
  // dimensions.
  if (batch.size <= 0) batch = make_batch(std::move(batch.inputs), std::move(batch.labels));
  return split_labels(std::move(batch), args.label_names.value_or(DataLoaderOptions().label_names));
}

}  // namespace

/// The micro-batches that a program has given and no update has used yet.
class ProgramBatches final : public BatchSource {
 public:
  explicit ProgramBatches(const TrainerCore& core) : core_(core) {}

  void add(Batch batch) { waiting_.push_back(std::move(batch)); }
  /// Starts a new group at the training's position.
  void clear() {
    waiting_.clear();
    taken_ = 0;
  }
  std::int64_t size() const { return static_cast<std::int64_t>(waiting_.size()); }

  std::optional<Batch> next() override {
    if (waiting_.empty()) return std::nullopt;
    auto batch = std::move(waiting_.front());
    waiting_.pop_front();
    taken_ += batch.size;
    return batch;
  }
  /// Assumes that all processes give equally many examples.
  std::int64_t position() const override {
    const auto& before = core_.progress.position.examples;
    return std::min(before + taken_ * core_.ranks.world_size(), detail::largest_dataset);
  }
  double share() const override { return 1; }
  std::shared_ptr<const DatasetState> dataset_state() const override { return nullptr; }

 private:
  const TrainerCore& core_;
  std::deque<Batch> waiting_;
  std::int64_t taken_ = 0;  // examples of the group's batches
};

/// One training. Its epoch has no end unless a callback sets `should_epoch_stop`.
class SteppedTraining::Training {
 public:
  explicit Training(EventSource& events)
      : core_(events.core()),
        clock_(core_.activity_clock, core_.args, core_.options.files(), core_.device.is_cpu(),
               TimedActivity::program),
        training_(core_.activity, Activity::training),
        under_way_(core_.remote),
        loop_(events, TrainLoop::Batches::of_program) {}
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;
  ~Training() {
    if (!has_failed_ && !is_finished_) loop_.abandon();
  }

  /// Whether an exception has ended it.
  bool has_failed() const { return has_failed_; }

  /// Throws Error if a step has said that the training must stop, or if the training's steps are made by
  /// other calls.
  void check_goes_on(const char* method, bool gives_losses) {
    if (last_)
      throw Error(fmt::format(
          "{} was called after the training has stopped at step {} ({}): call finish(), and begin() for "
          "another",
          method, last_->global_step,
          last_->stop_reason.empty() ? "max_steps are done" : last_->stop_reason));
    if (gives_losses_.value_or(gives_losses) != gives_losses)
      throw Error(fmt::format("{} was called in a training by {}: must be one or the other until finish()",
                              method, gives_losses ? "step(batch)" : "backward(loss)"));
  }

  void begin(const TrainOptions& options) {
    failing([&] {
      if (core_.args.auto_find_batch_size)
        throw ArgumentError(
            "auto_find_batch_size is true: must be false for step(), whose batches the program chooses");
      loop_.prepare(options);
      loop_.part([&] {
        loop_.begin();
        open_epoch();
        loop_.settle_program_state();
        remember();
      });
    });
  }

  StepOutput step(Batch batch) {
    gives_losses_ = false;
    batches_.add(std::move(batch));
    const auto before = core_.state.global_step;
    failing([&] {
      loop_.part([&] {
        // The program's variables already reflect this batch, so it is used before an interruption.
        if (core_.options.program_state.empty()) core_.ranks.throw_if_interrupted();
        if (!core_.ranks.several()) core_.remote.take_cancel(core_.control);
        if (batches_.size() >= core_.accumulation.steps() || loop_.stop_is_due()) run_group();
      });
    });
    return output_since(before);
  }

  /// Throws ArgumentError, and changes nothing, if the program can't compute the losses.
  void take_losses() {
    if (!gives_losses_) loop_.update().take_losses();
    gives_losses_ = true;
  }

  void backward(const LossOutput& computed, std::optional<std::size_t> optimizer) {
    in_group([&] {
      if (!group_is_open_) begin_group();
      if (!is_given_up_) loop_.update().add_loss(computed, optimizer);
    });
    has_loss_ = true;
    has_shared_loss_ |= !optimizer;
  }
  void backward(Batch batch) {
    in_group([&] {
      if (!group_is_open_) begin_group();
      if (!is_given_up_) loop_.update().add_loss_of(std::move(batch));
    });
    has_loss_ = has_shared_loss_ = true;
  }

  const torch::Tensor& loss() const { return loop_.loss(); }

  /// Throws Error if there are no losses to update with.
  void check_loss(const char* method) const {
    if (!has_loss_)
      throw Error(std::string(method) + " was called without a loss: must come after backward(loss)");
  }

  /// Throws ArgumentError if the group has accumulated gradients of a loss that several optimizers share.
  void check_update(std::size_t optimizer) {
    if (const auto of_group = loop_.update().size(); of_group > 1 && has_shared_loss_)
      throw ArgumentError(
          fmt::format("gradient_accumulation_steps is {0}: must be 1 for update(\"{1}\") after "
                      "backward(loss), which adds "
                      "one optimizer's gradients to another's; call backward(loss, \"{1}\")",
                      of_group, core_.optimizers[optimizer].name));
  }

  void update(std::size_t optimizer) {
    if (micro_batches_ + 1 < loop_.update().size()) return;
    in_group([&] {
      if (!is_given_up_) loop_.update().make_step(optimizer);
    });
  }

  StepOutput update() {
    const auto before = core_.state.global_step;
    has_loss_ = false;
    in_group([&] {
      if (!is_given_up_ && ++micro_batches_ < loop_.update().size()) return loop_.update().end_micro_batch();
      complete_group();
    });
    return output_since(before);
  }

  /// A last group may have fewer micro-batches, as at the end of an epoch.
  TrainOutput finish() {
    TrainOutput output;
    failing([&] {
      output = loop_.finish_after([&] {
        if (batches_.size() > 0) run_group();
        if (group_is_open_) loop_.stoppable([&] { complete_group(); });
        if (gives_losses_.value_or(false)) loop_.leave_steps();
        if (epoch_is_open_) close_epoch();
      });
    });
    is_finished_ = true;
    return output;
  }

 private:
  void failing(detail::FunctionRef<void()> part) {
    const ActivityClock::Scope scope(core_.activity_clock, TimedActivity::other, /*is_shown=*/false);
    try {
      part();
    } catch (...) {
      has_failed_ = true;
      throw;
    }
  }

  void open_epoch() {
    while (loop_.has_epoch()) {
      loop_.open_epoch([] {});
      epoch_is_open_ = true;
      if (!loop_.epoch_had_ended()) return;
      close_epoch();
    }
  }
  void close_epoch() {
    loop_.close_epoch();
    epoch_is_open_ = false;
  }

  StepOutput output_since(std::int64_t before) {
    StepOutput output{.loss = core_.state.global_step > before ? loop_.loss() : torch::Tensor(),
                      .global_step = core_.state.global_step,
                      .should_stop = loop_.stop_is_due()};
    if (output.should_stop) {
      if (core_.state.global_step < core_.state.max_steps) output.stop_reason = loop_.stop_reason();
      last_ = output;
    }
    return output;
  }

  /// Runs a part of a group whose losses the program computes; a StopTraining abandons the group.
  void in_group(detail::FunctionRef<void()> part) {
    failing([&] {
      loop_.part([&] {
        bool is_done = false;
        loop_.stoppable([&] {
          part();
          is_done = true;
        });
        is_given_up_ |= !is_done;
      });
    });
  }
  /// Begins the next group: its snapshot is taken before the program's forward passes.
  void remember() {
    if (epoch_is_open_ && !loop_.stop_is_due() && core_.progress.position.micro_batches == 0)
      loop_.update().remember();
  }
  void begin_group() {
    group_is_open_ = true;
    micro_batches_ = 0;
    has_shared_loss_ = false;
    is_given_up_ = !epoch_is_open_ || !loop_.may_step();
    if (!is_given_up_) loop_.update().begin_losses();
  }
  void complete_group() {
    group_is_open_ = false;
    if (is_given_up_) return loop_.leave_steps();
    loop_.complete_update();
    renew_epoch();
    remember();
  }

  void run_group() {
    if (!epoch_is_open_) return batches_.clear();
    loop_.stoppable([&] {
      if (!loop_.may_step() || !loop_.run_group(batches_)) loop_.leave_steps();
    });
    batches_.clear();  // drops the batches of a group that was given up
    renew_epoch();
  }
  void renew_epoch() {
    if (!core_.control.should_epoch_stop || loop_.stop_is_due()) return;
    close_epoch();
    open_epoch();
  }

  TrainerCore& core_;
  ActivityClock::Run clock_;
  ScopedValue<Activity> training_;
  RemoteControl::UnderWay under_way_;
  TrainLoop loop_;
  ProgramBatches batches_{core_};
  std::optional<StepOutput> last_;    // the step that ended it
  std::optional<bool> gives_losses_;  // whether the program gives losses; unset before its first call
  bool group_is_open_ = false;        // a group with losses of the program
  std::int64_t micro_batches_ = 0;    // the finished micro-batches of this group
  bool has_loss_ = false;             // whether there was a loss since the last update()
  bool has_shared_loss_ = false;      // whether the group has a loss that isn't a single optimizer's
  bool is_given_up_ = false;          // whether the group was given up
  bool epoch_is_open_ = false;
  bool has_failed_ = false;
  bool is_finished_ = false;
};

SteppedTraining::SteppedTraining(EventSource& events) : events_(events) {}

SteppedTraining::~SteppedTraining() = default;

void SteppedTraining::check_none(const char* method) const {
  if (training_)
    throw Error(std::string(method) + " was called before finish(): a training by step() is under way");
}

void SteppedTraining::begin(const TrainOptions& options) {
  const Calls::Scope call(events_.core().calls, Calls::step);
  check_none("begin()");
  begin_training(options);
}

StepOutput SteppedTraining::step(Batch batch) {
  const Calls::Scope call(events_.core().calls, Calls::step);
  if (!training_) begin_training({});
  training_->check_goes_on("step()", /*gives_losses=*/false);
  auto checked = batch_of_program(std::move(batch), events_.core().args);
  StepOutput output;
  in_training([&](Training& training) { output = training.step(std::move(checked)); });
  return output;
}

bool SteppedTraining::takes_losses() const { return training_ && !is_running_ && !events_.core().evaluation; }

void SteppedTraining::backward(const LossOutput& computed, std::optional<std::string_view> optimizer) {
  auto& core = events_.core();
  const Calls::Scope call(core.calls, Calls::step);
  check_takes_loss();
  const auto place = optimizer ? std::optional(core.optimizers.find(*optimizer)) : std::nullopt;
  training_->take_losses();
  core.loss_check.before_backward(computed.loss, Batch());
  in_training([&](Training& training) { training.backward(computed, place); });
}

void SteppedTraining::backward(Batch batch) {
  const Calls::Scope call(events_.core().calls, Calls::step);
  check_takes_loss();
  auto checked = batch_of_program(std::move(batch), events_.core().args);
  training_->take_losses();
  in_training([&](Training& training) { training.backward(std::move(checked)); });
}

void SteppedTraining::check_takes_loss() {
  if (!training_) throw Error("backward() was called, but no training is under way: must come after begin()");
  training_->check_goes_on("backward()", /*gives_losses=*/true);
}

torch::Tensor SteppedTraining::loss() const { return training_ ? training_->loss() : torch::Tensor(); }

StepOutput SteppedTraining::update() {
  const Calls::Scope call(events_.core().calls, Calls::step);
  check_loss("update()");
  StepOutput output;
  in_training([&](Training& training) { output = training.update(); });
  return output;
}

void SteppedTraining::update(std::string_view optimizer) {
  auto& core = events_.core();
  const Calls::Scope call(core.calls, Calls::step);
  check_loss("update()");
  const auto place = core.optimizers.find(optimizer);
  training_->check_update(place);
  in_training([&](Training& training) { training.update(place); });
}

void SteppedTraining::check_loss(const char* method) {
  if (!training_)
    throw Error(fmt::format("{} was called, but no training is under way: must come after begin()", method));
  training_->check_goes_on(method, /*gives_losses=*/true);
  training_->check_loss(method);
}

TrainOutput SteppedTraining::finish() {
  const Calls::Scope call(events_.core().calls, Calls::step);
  if (!training_) throw Error("finish() was called, but no training by step() is under way");
  TrainOutput output;
  in_training([&](Training& training) { output = training.finish(); });
  training_.reset();
  output.time_by_activity = events_.core().activity_clock.times();
  return output;
}

void SteppedTraining::abandon() noexcept { training_.reset(); }

void SteppedTraining::begin_training(const TrainOptions& options) {
  events_.core().prepare_machine();
  training_ = std::make_unique<Training>(events_);
  in_training([&](Training& training) { training.begin(options); });
}

template <class Act>
void SteppedTraining::in_training(Act act) {
  const ScopedValue running(is_running_, true);
  try {
    events_.guarded([&] { act(*training_); });
  } catch (...) {
    if (training_->has_failed()) training_.reset();
    throw;
  }
}

}  // namespace etude::inline v0
