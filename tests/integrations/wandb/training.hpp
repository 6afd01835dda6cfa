#pragma once

#include <limits>
#include <stdexcept>

#include "common/toy.hpp"
#include "etude/integrations/wandb.hpp"

namespace toy::wandb {

inline etude::TrainingArguments arguments(const Folder& folder) {
  return toy::logged_arguments(folder / "out");
}

/// Logs non-finite numbers, and throws where configured.
struct Odd {
  int fail_at = -1;
  void on(const etude::StepEnd& e) {
    if (e.state.global_step == 2) {
      e.log("nan", std::numeric_limits<double>::quiet_NaN());
      e.log("minus_inf", -std::numeric_limits<double>::infinity());
    }
    if (e.state.global_step == fail_at) throw std::runtime_error("on purpose");
  }
};

using Trainer = etude::Trainer<Odd, etude::WandbCallback>;

/// Options of a run in the folder.
inline etude::WandbCallback in(const Folder& folder) {
  etude::WandbCallback callback;
  callback.mode = "offline";
  callback.dir = folder;
  return callback;
}

}  // namespace toy::wandb
