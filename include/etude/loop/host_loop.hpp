#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "etude/base/error.hpp"
#include "etude/data/batch.hpp"
#include "etude/data/dataset_state.hpp"
#include "etude/loop/core.hpp"
#include "etude/loop/remote_control.hpp"
#include "etude/loop/train.hpp"

namespace etude::inline v0 {

/// The micro-batches that a program has given and no update has used yet, as a stream of them.
class HostBatches {
 public:
  explicit HostBatches(const TrainerCore& core) : core_(core) {}

  void add(Batch batch) { waiting_.push_back(std::move(batch)); }
  /// Starts a new group at the training's position.
  void clear();
  std::int64_t size() const { return static_cast<std::int64_t>(waiting_.size()); }

  std::optional<Batch> next();
  /// The epoch's examples up to the last batch taken, if all processes give as many.
  std::int64_t position() const;
  double share() const { return 1; }
  std::shared_ptr<const DatasetState> dataset_state() const { return nullptr; }

 private:
  const TrainerCore& core_;
  std::deque<Batch> waiting_;
  std::int64_t taken_ = 0;  // examples of the group's batches
};

/// A batch that a program gives, as a loader would have made it. Throws DataError if the tensors are no
/// batch.
Batch batch_of_host(Batch batch, const TrainingArguments& args);

/// A training in a program's own loop. The base is for a trainer that never has one.
class AnyHostLoop {
 public:
  explicit AnyHostLoop(TrainerCore& core)
      : clock_(core.phase_clock, core.args, core.options.files(), core.device.is_cpu(), TimedPhase::host),
        training_(core.training),
        under_way_(core.remote) {}
  AnyHostLoop(const AnyHostLoop&) = delete;
  AnyHostLoop& operator=(const AnyHostLoop&) = delete;
  virtual ~AnyHostLoop() = default;

  /// Whether an exception has ended it.
  bool has_failed() const { return has_failed_; }
  /// Leaves out the end events when it is destroyed unfinished.
  void leave() { has_failed_ = true; }
  /// Throws Error if a step has said that the training must stop.
  void check_goes_on() const;

 protected:
  bool has_failed_ = false;
  std::optional<StepOutput> last_;  // the step that ended it

 private:
  PhaseClock::Run clock_;
  RaisedFlag training_;
  RemoteControl::UnderWay under_way_;
};

/// `AnyHostLoop` of a trainer. Its epoch has no end unless a callback sets `should_epoch_stop`.
template <class Events>
class HostLoop final : public AnyHostLoop {
 public:
  explicit HostLoop(Events& events)
      : AnyHostLoop(events.core()), core_(events.core()), loop_(events, Batches::of_host) {}
  /// Ends a training that isn't finished, without an exception.
  ~HostLoop() override {
    if (!has_failed_ && !is_finished_) loop_.abandon();
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
      });
    });
  }

  /// Takes a micro-batch, and makes an update once there are `gradient_accumulation_steps` of them.
  StepOutput step(Batch batch) {
    batches_.add(std::move(batch));
    const auto before = core_.state.global_step;
    failing([&] {
      loop_.part([&] {
        core_.ranks.throw_if_interrupted();
        if (!core_.ranks.several()) core_.remote.take_cancel(core_.control);
        if (batches_.size() >= core_.accumulation.steps() || loop_.stop_is_due()) run_group();
      });
    });
    StepOutput output{.loss = core_.state.global_step > before ? loop_.loss() : torch::Tensor(),
                      .global_step = core_.state.global_step,
                      .should_stop = loop_.stop_is_due()};
    if (output.should_stop) {
      if (core_.state.global_step < core_.state.max_steps) output.stop_reason = loop_.stop_reason();
      last_ = output;
    }
    return output;
  }

  /// A last group may have fewer micro-batches, as at the end of an epoch.
  TrainOutput finish() {
    TrainOutput output;
    failing([&] {
      output = loop_.finish_after([&] {
        if (batches_.size() > 0) run_group();
        if (epoch_is_open_) close_epoch();
      });
    });
    is_finished_ = true;
    return output;
  }

 private:
  using Batches = typename TrainLoop<Events>::Batches;

  template <class Part>
  void failing(Part part) {
    const PhaseClock::Scope scope(core_.phase_clock, TimedPhase::other, /*is_shown=*/false);
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

  void run_group() {
    if (!epoch_is_open_) return batches_.clear();
    loop_.stoppable([&] {
      if (!loop_.may_step() || !loop_.run_group(batches_)) loop_.leave_steps();
    });
    batches_.clear();  // those of a group that was given up
    if (!core_.control.should_epoch_stop || loop_.stop_is_due()) return;
    close_epoch();
    open_epoch();
  }

  TrainerCore& core_;
  TrainLoop<Events> loop_;
  HostBatches batches_{core_};
  bool epoch_is_open_ = false;
  bool is_finished_ = false;
};

}  // namespace etude::inline v0
