#pragma once

#include <concepts>
#include <type_traits>

#include "etude/callback.hpp"
#include "etude/callback_checks.hpp"

/// The methods of Hugging Face's Trainer and pytorch-accelerated that are events here, and a check that
/// nobody writes one and waits for it to be called.

// clang-format off
#define ETUDE_DETAIL_EVENT_METHODS(METHOD)            \
  METHOD(on_init_end, InitEnd)                        \
  METHOD(on_train_begin, TrainBegin)                  \
  METHOD(on_train_end, TrainEnd)                      \
  METHOD(on_epoch_begin, EpochBegin)                  \
  METHOD(on_epoch_end, EpochEnd)                      \
  METHOD(on_step_begin, StepBegin)                    \
  METHOD(on_step_end, StepEnd)                        \
  METHOD(on_substep_end, SubstepEnd)                  \
  METHOD(on_pre_optimizer_step, PreOptimizerStep)     \
  METHOD(on_optimizer_step, OptimizerStep)            \
  METHOD(on_prediction_step, PredictionStep)          \
  METHOD(on_evaluate, Evaluate)                       \
  METHOD(on_predict, Predict)                         \
  METHOD(on_save, Save)                               \
  METHOD(on_log, Log)                                 \
  METHOD(on_push_begin, PushBegin)                    \
  METHOD(on_training_run_start, TrainBegin)           \
  METHOD(on_training_run_end, TrainEnd)               \
  METHOD(on_training_run_epoch_end, TrainingRunEpochEnd) \
  METHOD(on_train_epoch_start, EpochBegin)            \
  METHOD(on_train_epoch_end, EpochEnd)                \
  METHOD(on_train_step_start, ForwardBegin)           \
  METHOD(on_train_step_end, BackwardBegin)            \
  METHOD(on_eval_epoch_start, EvaluateBegin)          \
  METHOD(on_eval_epoch_end, Evaluate)                 \
  METHOD(on_eval_step_start, PredictionStepBegin)     \
  METHOD(on_eval_step_end, PredictionStep)            \
  METHOD(on_evaluation_run_start, EvaluationRunBegin) \
  METHOD(on_evaluation_run_end, EvaluationRunEnd)     \
  METHOD(on_stop_training_error, Stop)

/// The hooks of pytorch-accelerated's trainer.
#define ETUDE_DETAIL_TRAINER_HOOKS(METHOD)         \
  METHOD(training_run_start, TrainBegin)           \
  METHOD(training_run_end, TrainEnd)               \
  METHOD(training_run_epoch_end, TrainingRunEpochEnd) \
  METHOD(train_epoch_start, EpochBegin)            \
  METHOD(train_epoch_end, EpochEnd)                \
  METHOD(eval_epoch_start, EvaluateBegin)          \
  METHOD(eval_epoch_end, Evaluate)                 \
  METHOD(evaluation_run_start, EvaluationRunBegin) \
  METHOD(evaluation_run_end, EvaluationRunEnd)
// clang-format on

namespace etude {

#define ETUDE_DETAIL_DECLARE_EVENT(name, Event) struct Event;
ETUDE_DETAIL_EVENT_METHODS(ETUDE_DETAIL_DECLARE_EVENT)
#undef ETUDE_DETAIL_DECLARE_EVENT

namespace mistake {

template <class Class, class Method, class Handler>
struct method_is_never_called_so_write_on_as;

namespace method {
#define ETUDE_DETAIL_DECLARE_METHOD(name, Event) struct name;
ETUDE_DETAIL_EVENT_METHODS(ETUDE_DETAIL_DECLARE_METHOD)
ETUDE_DETAIL_TRAINER_HOOKS(ETUDE_DETAIL_DECLARE_METHOD)
#undef ETUDE_DETAIL_DECLARE_METHOD
}  // namespace method
}  // namespace mistake

namespace detail {

#define ETUDE_DETAIL_DECLARE_MEMBER(name, Event) void name();
struct event_methods {
  ETUDE_DETAIL_EVENT_METHODS(ETUDE_DETAIL_DECLARE_MEMBER)
};
struct trainer_hooks {
  ETUDE_DETAIL_TRAINER_HOOKS(ETUDE_DETAIL_DECLARE_MEMBER)
};
#undef ETUDE_DETAIL_DECLARE_MEMBER

/// As `with_name_probe`: a name that T has too is ambiguous.
template <class T, class Names>
struct with_names : T, Names {};

template <class T, class Event, class... Known>
inline constexpr bool handles_instead = ((std::same_as<Event, Known> && Handles<T, Known>) || ...);

#define ETUDE_DETAIL_IS_ABSENT(name, Event)                                    \
  static_cast<void>(                                                           \
      expect<                                                                  \
          (requires { &Probe::name; } || handles_instead<T, Event, Known...>), \
          mistake::method_is_never_called_so_write_on_as<T, mistake::method::name, void(const Event&)>>());

/// Refuses a method that is called in Hugging Face's Trainer or pytorch-accelerated and never here. One
/// beside a handler for the same event is the class's own matter.
template <class T, class... Known>
consteval bool has_no_event_methods() {
  if constexpr (!std::is_final_v<T>) {
    using Probe = with_names<T, event_methods>;
    ETUDE_DETAIL_EVENT_METHODS(ETUDE_DETAIL_IS_ABSENT)
  }
  return true;
}

/// The same for the hooks of a trainer.
template <class T, class... Known>
consteval bool has_no_trainer_hooks() {
  if constexpr (!std::is_final_v<T>) {
    using Probe = with_names<T, trainer_hooks>;
    ETUDE_DETAIL_TRAINER_HOOKS(ETUDE_DETAIL_IS_ABSENT)
  }
  return has_no_event_methods<T, Known...>();
}

#undef ETUDE_DETAIL_IS_ABSENT

}  // namespace detail
}  // namespace etude
