#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "etude/events.hpp"
#include "etude/reflect/struct.hpp"

namespace etude {

namespace detail {
class OperatorWatch;
}

/// Looks for the first operator that makes inf or NaN out of numbers that aren't, in the forward and
/// backward passes of training, and ends the training with an error that shows it and the operators before
/// it, each with the least and greatest absolute values of what it was given and what it gave: Hugging
/// Face's DebugUnderflowOverflow (`debug="underflow_overflow"`), with its options. Numbers that come close
/// to the limits of half precision are seen there, too.
///
/// That one hooks modules and sees their outputs only. LibTorch has no such hooks: this one sees every
/// operator, also those of the backward pass. An infinity that the program itself put there, for a mask, is
/// no fault. Weights and batches that aren't finite are an error before they are used. Every value is
/// looked at and read back, which makes a step many times slower: it is for finding a fault, not for
/// training.
///
/// The weights are as they were before the step that failed. Throws Error at the end of the forward or
/// backward pass in question, and where another is at work in this process; ArgumentError at TrainBegin for
/// numbers out of range.
struct DebugUnderflowOverflowCallback {
  using this_callback = DebugUnderflowOverflowCallback;
  ETUDE_STRUCT(DebugUnderflowOverflowCallback,
               (std::int64_t, max_frames_to_save, "operators to show before the one that failed, with it",
                21),
               (std::vector<std::int64_t>, trace_batch_nums,
                "batches, from 0, all of whose operators are printed"),
               (std::optional<std::int64_t>, abort_after_batch_num, "batch after which to stop training"),
               (std::int64_t, batch_number, "the batch that comes next, counted from 0", 0));
  std::function<void(std::string_view)> print = {};  ///< takes the traces instead of standard output

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

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/callbacks/impl/underflow_overflow.ipp"
#endif
