#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "etude/events.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

namespace detail {
class OperatorWatch;
}

/// Looks for the first operator that produces inf or NaN from finite numbers, in the forward and backward
/// passes of training, and ends the training with an error that shows this operator and the ones before it,
/// each with the least and greatest absolute values of its inputs and outputs. These values also reveal
/// numbers close to the limits of half precision. Follows Hugging Face's DebugUnderflowOverflow
/// (`debug="underflow_overflow"`), with the same options.
///
/// Hugging Face's class hooks modules and sees only their outputs. LibTorch has no such hooks; this callback
/// sees every operator, including the operators of the backward pass. An infinity that the program itself
/// creates, for example for a mask, isn't an error. Non-finite weights and batches are reported before they
/// are used. Every value is checked and read back, which makes a step many times slower: use the callback to
/// find an error, not to train.
///
/// The weights stay as they were before the failed step. Throws Error at the end of the failed forward or
/// backward pass, and if another such callback is active in this process; ArgumentError at TrainBegin for
/// numbers out of range.
struct DebugUnderflowOverflowCallback {
  ETUDE_STRUCT(DebugUnderflowOverflowCallback,
               (std::int64_t, max_frames_to_save,
                "operators to show, up to the one that failed" | at_least(1), 21),
               (std::vector<std::int64_t>, trace_batch_nums,
                "batches, from 0, all of whose operators are printed"),
               (std::optional<std::int64_t>, abort_after_batch_num,
                "batch after which to stop training" | at_least(0)));

  struct State {
    ETUDE_STRUCT(State, (std::int64_t, batch_number, "the next batch, counted from 0", 0));
  };
  State state = {};
  std::function<void(std::string_view)> print = {};  ///< receives the traces instead of standard output

  bool reads_parameters() const { return true; }

  void on(const TrainBegin& e);
  void on(const StepBegin& e);
  void on(const ForwardBegin& e);
  void on(const BackwardBegin&);
  void on(const BackwardEnd& e);
  void on(const SubstepEnd&) { leave(); }
  void on(const StepEnd&) { leave(); }
  void on(const EpochEnd&);
  void on(const TrainEnd&);
  std::shared_ptr<detail::OperatorWatch> watch = nullptr;  ///< while a batch goes through the model

 private:
  void check() const;
  void leave();
};

}  // namespace etude::inline v0
