#pragma once

#include <concepts>
#include <type_traits>

#include "etude/callback.hpp"

/// Detects members of a callback or a trainer that Etude never uses, but whose names suggest that they were
/// meant for it: handlers and hooks of other trainers, and misspelled declarations.
namespace etude::inline v0 {

struct Context;

namespace mistake {

template <class Class, class Method, class Handler>
struct method_is_never_called_so_write_on_for_its_event_or_declare_handles;
template <class Callback>
struct method_On_is_never_called_so_write_on;
template <class Callback, class List>
struct order_is_declared_by_a_list_so_write;
template <class Callback>
struct run_after_means_nothing_so_write_using_runs_after;
template <class Callback>
struct run_before_means_nothing_so_write_using_runs_before;
template <class Callback>
struct runs_after_must_be_a_public_type_so_write_using_runs_after;
template <class Callback>
struct runs_before_must_be_a_public_type_so_write_using_runs_before;
template <class Callback>
struct run_last_means_nothing_so_write_static_constexpr_bool_runs_last;
template <class Callback>
struct runs_last_must_be_public_so_write_static_constexpr_bool_runs_last;
template <class Callback, class Other>
struct order_is_declared_by_plain_callback_types_so_replace;
template <class Callback>
struct handle_means_nothing_so_write_using_handles;
template <class Callback, class List>
struct handles_is_a_list_so_write;

}  // namespace mistake

// The handlers of Hugging Face's Trainer and of pytorch-accelerated, with the corresponding event here; the
// common ones in other naming styles, and those of Lightning and Keras.
// clang-format off
#define ETUDE_OTHER_HANDLERS(X) \
  X(on_init_end, InitEnd) X(on_train_begin, TrainBegin) X(on_training_run_start, TrainBegin) \
  X(on_epoch_begin, EpochBegin) X(on_train_epoch_start, EpochBegin) X(on_step_begin, StepBegin) \
  X(on_train_step_start, ForwardBegin) X(on_train_step_end, BackwardBegin) X(on_substep_end, SubstepEnd) \
  X(on_pre_optimizer_step, PreOptimizerStep) X(on_optimizer_step, OptimizerStep) X(on_step_end, StepEnd) \
  X(on_log, Log) X(on_evaluation_run_start, EvaluationRunBegin) X(on_eval_epoch_start, EvaluateBegin) \
  X(on_eval_step_start, PredictionStepBegin) X(on_prediction_step, PredictionStep) \
  X(on_eval_step_end, PredictionStep) X(on_evaluate, Evaluate) X(on_eval_epoch_end, Evaluate) \
  X(on_evaluation_run_end, EvaluationRunEnd) X(on_predict, Predict) X(on_save, Save) \
  X(on_push_begin, PushBegin) X(on_epoch_end, EpochEnd) X(on_train_epoch_end, EpochEnd) \
  X(on_training_run_epoch_end, TrainingRunEpochEnd) X(on_stop_training_error, Stop) \
  X(on_train_end, TrainEnd) X(on_training_run_end, TrainEnd) \
  X(onTrainBegin, TrainBegin) X(onTrainEnd, TrainEnd) X(onEpochBegin, EpochBegin) X(onEpochEnd, EpochEnd) \
  X(onStepBegin, StepBegin) X(onStepEnd, StepEnd) X(onLog, Log) X(onEvaluate, Evaluate) X(onSave, Save) \
  X(OnTrainBegin, TrainBegin) X(OnTrainEnd, TrainEnd) X(OnEpochBegin, EpochBegin) X(OnEpochEnd, EpochEnd) \
  X(OnStepBegin, StepBegin) X(OnStepEnd, StepEnd) X(OnLog, Log) X(OnEvaluate, Evaluate) X(OnSave, Save) \
  X(on_train_batch_end, StepEnd) X(on_train_start, TrainBegin) X(on_validation_epoch_end, Evaluate)

// The hooks of pytorch-accelerated's trainer.
#define ETUDE_OTHER_HOOKS(X) \
  X(training_run_start, TrainBegin) X(training_run_end, TrainEnd) X(training_run_epoch_end, TrainingRunEpochEnd) \
  X(train_epoch_start, EpochBegin) X(train_epoch_end, EpochEnd) X(eval_epoch_start, EvaluateBegin) \
  X(eval_epoch_end, Evaluate) X(evaluation_run_start, EvaluationRunBegin) X(evaluation_run_end, EvaluationRunEnd)
// clang-format on

#define ETUDE_DECLARE_EVENT(method, Event) struct Event;
ETUDE_OTHER_HANDLERS(ETUDE_DECLARE_EVENT)
#undef ETUDE_DECLARE_EVENT

namespace detail {

/// Method names, for the first line of an error.
namespace method {
#define ETUDE_DECLARE_NAME(method, Event) struct method;
ETUDE_OTHER_HANDLERS(ETUDE_DECLARE_NAME)
ETUDE_OTHER_HOOKS(ETUDE_DECLARE_NAME)
#undef ETUDE_DECLARE_NAME
}  // namespace method

#define ETUDE_DECLARE_METHOD(method, Event) void method();
struct misspelt_names {
  void On();
  void run_after();
  void run_before();
  void run_last();
  void runs_last();
  void runs_after();
  void runs_before();
};
struct other_handlers {
  ETUDE_OTHER_HANDLERS(ETUDE_DECLARE_METHOD)
};
struct other_hooks {
  ETUDE_OTHER_HOOKS(ETUDE_DECLARE_METHOD)
};
#undef ETUDE_DECLARE_METHOD
template <class T, class Names>
struct with_names : T, Names {};

/// As has_name_on(): if T has one of `Names` too, it is ambiguous here. In a final class, which can't be a
/// base, only public names without overloads can be detected.
template <class T, class Names>
using probed_for = typename std::conditional_t<std::is_final_v<T>, std::type_identity<T>,
                                               std::type_identity<with_names<T, Names>>>::type;

#define ETUDE_HAS(name) (requires { &Probe::name; } == std::is_final_v<T>)

template <class List, template <class...> class Template>
inline constexpr bool is_list_of = false;
template <template <class...> class Template, class... Types>
inline constexpr bool is_list_of<Template<Types...>, Template> = true;

template <class Callback>
concept declares_runs_after = requires { typename Callback::runs_after; };
template <class Callback>
concept declares_runs_before = requires { typename Callback::runs_before; };

template <class Callback, class List>
consteval bool check_order_list() {
  if constexpr (expect<is_list_of<List, callbacks>,
                       mistake::order_is_declared_by_a_list_so_write<Callback, callbacks<List>>>())
    return []<class... Others>(callbacks<Others...>) {
      return (expect<(std::is_class_v<Others> && std::same_as<Others, std::remove_cv_t<Others>>),
                     mistake::order_is_declared_by_plain_callback_types_so_replace<Callback, Others>>() &&
              ...);
    }(List{});
  return false;
}

/// Checks that the declarations of a class are spelled correctly and public.
template <class T>
consteval bool check_declarations() {
  using Probe = probed_for<T, misspelt_names>;
  constexpr bool hides_runs_after = !std::is_final_v<T> && !declares_runs_after<T> && ETUDE_HAS(runs_after);
  constexpr bool hides_runs_before =
      !std::is_final_v<T> && !declares_runs_before<T> && ETUDE_HAS(runs_before);
  constexpr bool has_run_after = !std::is_final_v<T> && ETUDE_HAS(run_after);
  constexpr bool has_run_before = !std::is_final_v<T> && ETUDE_HAS(run_before);
  constexpr bool has_run_last = !std::is_final_v<T> && ETUDE_HAS(run_last);
  constexpr bool hides_runs_last =
      !std::is_final_v<T> && !requires { static_cast<bool>(T::runs_last); } && ETUDE_HAS(runs_last);
  constexpr bool has_On = !declares_events<T> && ETUDE_HAS(On);
  constexpr bool has_handle = requires { requires is_list_of<typename T::handle, events>; };
  return expect<!has_handle, mistake::handle_means_nothing_so_write_using_handles<T>>() &&
         expect<!has_run_after, mistake::run_after_means_nothing_so_write_using_runs_after<T>>() &&
         expect<!has_run_before, mistake::run_before_means_nothing_so_write_using_runs_before<T>>() &&
         expect<!has_run_last,
                mistake::run_last_means_nothing_so_write_static_constexpr_bool_runs_last<T>>() &&
         expect<!hides_runs_last,
                mistake::runs_last_must_be_public_so_write_static_constexpr_bool_runs_last<T>>() &&
         expect<!hides_runs_after,
                mistake::runs_after_must_be_a_public_type_so_write_using_runs_after<T>>() &&
         expect<!hides_runs_before,
                mistake::runs_before_must_be_a_public_type_so_write_using_runs_before<T>>() &&
         expect<!has_On, mistake::method_On_is_never_called_so_write_on<T>>();
}

/// A class that handles the event anyway, or declares its events with `handles`, may have methods of any
/// name.
#define ETUDE_CHECK_METHOD(name, Event)                                                           \
  if constexpr (ETUDE_HAS(name))                                                                  \
    if constexpr (!Handles<T, Event>)                                                             \
      expect<false, mistake::method_is_never_called_so_write_on_for_its_event_or_declare_handles< \
                        T, method::name, void(const Event&)>>();

/// Rejects methods that Hugging Face's Trainer or pytorch-accelerated would call.
template <class T>
consteval bool has_no_other_handlers() {
  if constexpr (!declares_events<T>) {
    using Probe = probed_for<T, other_handlers>;
    ETUDE_OTHER_HANDLERS(ETUDE_CHECK_METHOD)
  }
  return true;
}

/// The same for the hooks of a trainer.
template <class T>
consteval bool has_no_other_hooks() {
  if constexpr (!declares_events<T>) {
    using Probe = probed_for<T, other_hooks>;
    ETUDE_OTHER_HOOKS(ETUDE_CHECK_METHOD)
  }
  return true;
}
#undef ETUDE_CHECK_METHOD
#undef ETUDE_HAS
#undef ETUDE_OTHER_HANDLERS
#undef ETUDE_OTHER_HOOKS

/// All checks of the members besides a callback's handlers.
template <class T>
consteval bool check_names() {
  if constexpr (declares_events<T>) {
    using Handles = typename T::handles;
    if constexpr (!expect<is_list_of<Handles, events>,
                          mistake::handles_is_a_list_so_write<T, events<Handles>>>())
      return false;
  }
  if constexpr (declares_runs_after<T>)
    if constexpr (!check_order_list<T, typename T::runs_after>()) return false;
  if constexpr (declares_runs_before<T>)
    if constexpr (!check_order_list<T, typename T::runs_before>()) return false;
  return check_declarations<T>() && has_no_other_handlers<T>();
}

}  // namespace detail
}  // namespace etude::inline v0
