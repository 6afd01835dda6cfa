#include "etude/callbacks/save_training_state.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "etude/base/error.hpp"
#include "etude/callbacks/checkpoint_keeper.hpp"
#include "etude/reflect/check_fields.hpp"

namespace etude::inline v0 {

void SaveTrainingStateCallback::on(const TrainBegin& e) {
  detail::check_fields(*this);
  if (save_every_n_steps) timer.begin(e, *save_every_n_steps, "save_every_n_steps");
  epochs.begin(e);
  if (copies.begin(e, save_dir, "training_states")) kept.clear();
}

void SaveTrainingStateCallback::on(const StepEnd& e) {
  if (save_every_n_steps && timer.due(e, *save_every_n_steps))
    copies.want(e, fmt::format("step_{}", e.state.global_step));
}

void SaveTrainingStateCallback::on(const EpochEnd& e) {
  if (epochs.end(e) && save_every_n_epochs && epochs.ended % *save_every_n_epochs == 0)
    copies.want(e, fmt::format("epoch_{}", epochs.ended));
}

void SaveTrainingStateCallback::on(const TrainingRunEpochEnd& e) {
  if (save_at_end && e.state.global_step >= e.state.max_steps) copies.want(e, "final");
}

void SaveTrainingStateCallback::on(const Stop& e) {
  if (!save_at_end) return;
  if (copies.folder.empty()) copies.begin(e, save_dir, "training_states");  // TrainBegin wasn't received
  copies.want(e, "final");
}

void SaveTrainingStateCallback::on(const Save& e) {
  for (const auto& name : copies.make(e)) {
    std::erase(kept, name);
    kept.push_back(name);
  }
  while (max_checkpoints && std::ssize(kept) > *max_checkpoints) {
    copies.remove(e, kept.front());
    kept.erase(kept.begin());
  }
}

}  // namespace etude::inline v0
