#include "etude/callbacks/save_training_state.hpp"

#include <fmt/format.h>

#include "etude/reflect/check_fields.hpp"

namespace etude::inline v0 {

void SaveTrainingStateCallback::on(const TrainBegin& e) {
  detail::check_fields(*this);
  if (save_every_n_steps) state.timer.begin(e, *save_every_n_steps, "save_every_n_steps");
  state.epochs.begin(e);
  if (state.copies.begin(e, save_dir, "training_states")) state.kept.clear();
}

void SaveTrainingStateCallback::on(const StepEnd& e) {
  if (save_every_n_steps && state.timer.due(e, *save_every_n_steps))
    state.copies.want(e, fmt::format("step_{}", e.state.global_step));
}

void SaveTrainingStateCallback::on(const EpochEnd& e) {
  if (state.epochs.end(e) && save_every_n_epochs && state.epochs.ended % *save_every_n_epochs == 0)
    state.copies.want(e, fmt::format("epoch_{}", state.epochs.ended));
}

void SaveTrainingStateCallback::on(const TrainingRunEpochEnd& e) {
  if (save_at_end && e.state.global_step >= e.state.max_steps) state.copies.want(e, "final");
}

void SaveTrainingStateCallback::on(const Stop& e) {
  if (!save_at_end) return;
  if (state.copies.folder.empty())
    state.copies.begin(e, save_dir, "training_states");  // TrainBegin wasn't received
  state.copies.want(e, "final");
}

void SaveTrainingStateCallback::on(const Save& e) {
  for (const auto& name : state.copies.make(e)) {
    std::erase(state.kept, name);
    state.kept.push_back(name);
  }
  while (max_checkpoints && std::ssize(state.kept) > *max_checkpoints) {
    state.copies.remove(e, state.kept.front());
    state.kept.erase(state.kept.begin());
  }
}

}  // namespace etude::inline v0
