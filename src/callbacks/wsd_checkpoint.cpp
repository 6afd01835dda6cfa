#include "etude/callbacks/wsd_checkpoint.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "etude/any_trainer.hpp"
#include "etude/base/error.hpp"
#include "etude/optim/schedule_options.hpp"
#include "etude/optim/schedules.hpp"
#include "etude/training_arguments.hpp"

namespace etude::inline v0 {

void WSDCheckpointCallback::on(const TrainBegin& e) {
  if (e.trainer.options().lr_scheduler)
    throw ArgumentError(
        "lr_scheduler is set: WSDCheckpointCallback needs lr_scheduler_type warmup_stable_decay instead");
  if (e.args.lr_scheduler_type != SchedulerType::warmup_stable_decay)
    throw ArgumentError(
        fmt::format("lr_scheduler_type is {}: WSDCheckpointCallback needs warmup_stable_decay",
                    e.args.lr_scheduler_type));
  const auto options = detail::schedule_options<WarmupStableDecayOptions>(e.args.lr_scheduler_type,
                                                                          e.args.lr_scheduler_kwargs);
  const auto max_steps = e.state.max_steps, decay = options.num_decay_steps.value_or(0);
  const auto warmup = get_warmup_steps(e.args, max_steps);
  // The update after this many steps is the first one below the peak, or the last one at the peak.
  pre_decay_step = warmup + options.num_stable_steps.value_or(max_steps - warmup - decay);
  post_decay_step = std::min(pre_decay_step + decay, max_steps);
  state.copies.begin(e, save_dir, "wsd_checkpoints");
}

void WSDCheckpointCallback::on(const StepEnd& e) {
  const auto step = e.state.global_step;
  if (step == pre_decay_step) state.copies.want(e, fmt::format("checkpoint_{}_wsd_pre_decay", step));
  if (step == post_decay_step && step > pre_decay_step)
    state.copies.want(e, fmt::format("checkpoint_{}_wsd_post_decay", step));
}

}  // namespace etude::inline v0
