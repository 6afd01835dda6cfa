#include "etude/trainer_control.hpp"

#include <string_view>

namespace etude::inline v0 {

void TrainerControl::request_stop(std::string_view reason) {
  should_training_stop = true;
  if (stop_reason.empty()) stop_reason = reason;
}

void TrainerControl::add(const TrainerControl& other) {
  if (other.should_training_stop) request_stop(other.stop_reason);
  should_epoch_stop |= other.should_epoch_stop;
  should_save |= other.should_save;
  should_evaluate |= other.should_evaluate;
  should_log |= other.should_log;
}

}  // namespace etude::inline v0
