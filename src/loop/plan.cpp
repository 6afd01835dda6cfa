#include "etude/loop/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "etude/base/counting.hpp"
#include "etude/base/error.hpp"
#include "etude/optim/schedules.hpp"

namespace etude::inline v0 {

namespace detail {

namespace {

/// Counts the updates of epochs, each of which may have its own number of micro-batches per update.
class UpdateCount {
 public:
  UpdateCount(const TrainingArguments& args, const AccumulationOf& accumulation, std::int64_t batches)
      : args_(args), accumulation_(accumulation), batches_(batches) {}

  std::int64_t of(std::int64_t epoch) const { return std::max<std::int64_t>(of(epoch, batches_), 1); }
  std::int64_t of(std::int64_t epoch, std::int64_t batches) const {
    return groups_of(batches, accumulation_ ? accumulation_(epoch) : args_.gradient_accumulation_steps);
  }
  /// The updates in the first `epochs`, the last of which may be partial: a whole number, rounded up.
  double of_all(double epochs) const {
    if (!accumulation_) return share_rounded_up(epochs, static_cast<double>(of(0)));
    if (!(epochs <= most_asked)) refuse();
    const auto whole = static_cast<std::int64_t>(epochs);
    double updates = 0;
    for (std::int64_t epoch = 0; epoch < whole; ++epoch) updates += static_cast<double>(of(epoch));
    if (static_cast<double>(whole) == epochs) return updates;
    const auto last = static_cast<double>(of(whole));
    return updates + share_rounded_up(epochs, last) - static_cast<double>(whole) * last;
  }
  /// The number of epochs needed for this many updates.
  std::int64_t epochs(std::int64_t updates) const {
    if (!accumulation_) return groups_of(updates, of(0));
    std::int64_t epoch = 0;
    for (; updates > 0; updates -= of(epoch++))
      if (epoch == most_asked) refuse();
    return epoch;
  }

 private:
  // A callback is asked for the number of each epoch before the first step, and again when a training is
  // resumed.
  static constexpr std::int64_t most_asked = 1'000'000;

  [[noreturn]] void refuse() const {
    throw ArgumentError(
        fmt::format("num_train_epochs is {} and max_steps is {}: must be at most {} epochs if a callback "
                    "handles AccumulationPlanned, which is raised for each of them",
                    args_.num_train_epochs, args_.max_steps, most_asked));
  }

  const TrainingArguments& args_;
  const AccumulationOf& accumulation_;
  std::int64_t batches_;
};

/// A computed number of steps, as an integer. Throws ArgumentError if it is too large to count.
std::int64_t countable_steps(double steps, const char* field, double value) {
  if (!(steps <= static_cast<double>(most_steps)))
    throw ArgumentError(
        fmt::format("{} is {}: that is {} steps, and must be at most 1e15", field, value, steps));
  return static_cast<std::int64_t>(steps);
}

}  // namespace

}  // namespace detail

TrainPlan plan_training(const TrainingArguments& args, std::optional<std::int64_t> batches_per_epoch,
                        const AccumulationOf& accumulation) {
  if (!batches_per_epoch) {
    if (args.max_steps <= 0)
      throw ArgumentError(fmt::format(
          "max_steps is {}: must be positive, since train_dataset has no length to count epochs by",
          args.max_steps));
    if (args.max_steps > detail::largest_dataset / args.gradient_accumulation_steps)
      throw ArgumentError(
          fmt::format("max_steps is {}: must be at most 2^62 / {}, the gradient_accumulation_steps",
                      args.max_steps, args.gradient_accumulation_steps));
    return {args.max_steps, detail::most_steps, args.max_steps,
            args.max_steps * args.gradient_accumulation_steps};
  }
  const detail::UpdateCount updates(args, accumulation, *batches_per_epoch);
  TrainPlan plan;
  plan.batches_per_epoch = *batches_per_epoch;
  plan.updates_per_epoch = updates.of(0);
  if (args.max_steps > 0) {
    plan.max_steps = args.max_steps;
    plan.num_train_epochs = updates.epochs(args.max_steps);
  } else {
    plan.max_steps = detail::countable_steps(updates.of_all(args.num_train_epochs), "num_train_epochs",
                                             args.num_train_epochs);
    plan.num_train_epochs = static_cast<std::int64_t>(std::ceil(args.num_train_epochs));
  }
  return plan;
}

TrainPlan plan_stepped_training(const TrainingArguments& args, bool has_own_schedule) {
  if (args.max_steps > 0) return plan_training(args, std::nullopt);
  const auto require = [&](bool is_met, std::string_view why) {
    if (!is_met)
      throw ArgumentError(
          fmt::format("max_steps is {}: must be positive for a training by step() {}", args.max_steps, why));
  };
  const auto type = args.lr_scheduler_type;
  require(has_own_schedule || !needs_total_steps(type, args.lr_scheduler_kwargs),
          fmt::format("with the lr_scheduler_type {}, which depends on them; constant doesn't", type));
  require(has_own_schedule || args.warmup_steps == 0 || args.warmup_steps >= 1,
          "if warmup_steps is a fraction of them");
  const auto is_share = [](const Interval& interval) { return interval.unit() == IntervalUnit::share; };
  require(args.logging_strategy != IntervalStrategy::steps || !is_share(args.logging_steps),
          "if logging_steps is a fraction of them");
  require(args.eval_strategy != IntervalStrategy::steps ||
              !is_share(args.eval_steps.value_or(args.logging_steps)),
          "if eval_steps is a fraction of them");
  require(args.save_strategy != SaveStrategy::steps || !is_share(args.save_steps),
          "if save_steps is a fraction of them");
  return {detail::most_steps, detail::most_steps, detail::most_steps, 0};
}

TrainPlan continued(TrainPlan plan, const TrainingArguments& args, std::int64_t global_step,
                    std::int64_t epoch, std::int64_t batches_left, const AccumulationOf& accumulation) {
  const detail::UpdateCount updates(args, accumulation, plan.batches_per_epoch);
  const auto epochs = static_cast<double>(epoch + 1);
  const auto done =
      detail::countable_steps(updates.of_all(epochs), "the checkpoint's number of epochs", epochs) -
      updates.of(epoch, batches_left);
  if (args.max_steps > 0) {
    plan.num_train_epochs = updates.epochs(done + std::max<std::int64_t>(args.max_steps - global_step, 0));
  } else {
    plan.max_steps = global_step + std::max<std::int64_t>(plan.max_steps - done, 0);
  }
  return plan;
}

TrainPlan after(const DonePhases& done, TrainPlan plan) {
  plan.max_steps += done.steps;
  plan.num_train_epochs = std::min(plan.num_train_epochs + done.epochs, detail::most_steps);
  return plan;
}

}  // namespace etude::inline v0
