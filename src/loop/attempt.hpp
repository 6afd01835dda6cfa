#pragma once

#include <exception>
#include <string>

#include "etude/loop/core.hpp"
#include "etude/parallel/gradient_reducer.hpp"
#include "etude/trainer_control.hpp"

namespace etude::inline v0 {

/// The part of a step that this process does alone. With several processes, errors that all of them must
/// handle alike are kept until all know of them.
class Attempt {
 public:
  explicit Attempt(TrainerCore& core) : core_(core) {}

  /// Runs `part`, which returns its result. Other exceptions propagate.
  template <class Part>
  void run(Part part) {
    if (!core_.ranks.several()) {
      result_ = part();
      return;
    }
    const Ranks::Telling telling(core_.ranks);
    try {
      result_ = part();
    } catch (const StopTraining& stop) {
      keep(GradientsResult::stopped, stop.what());
    } catch (...) {
      if (!core_.is_too_large(std::current_exception())) throw;
      keep(GradientsResult::out_of_memory, "");
    }
  }

  GradientsResult result() const { return result_; }
  /// The exception that was kept; null if there is none.
  const std::exception_ptr& error() const { return error_; }

  /// Throws the kept exception or, if another process stopped, `of_another`.
  template <class Other>
  [[noreturn]] void rethrow(const Other& of_another) const {
    if (error_) std::rethrow_exception(error_);
    throw of_another;
  }
  /// Throws the kept exception or, without one, StopTraining with the first reason that a process has to
  /// stop. All processes call this.
  [[noreturn]] void rethrow_stop() const;

 private:
  void keep(GradientsResult result, std::string reason);

  TrainerCore& core_;
  GradientsResult result_ = GradientsResult::complete;
  std::string reason_;
  std::exception_ptr error_;
};

}  // namespace etude::inline v0
