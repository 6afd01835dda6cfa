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
template <class Callback, class List>
struct events_and_order_are_declared_by_lists_so_write;
template <class Callback, class Name, class Right>
struct member_means_nothing_so_rename_it;
template <class Callback, class Name>
struct order_must_be_declared_public;
template <class Callback, class Method>
struct reads_parameters_is_never_called_so_declare_it_public_as;

}  // namespace mistake

// Names of handlers in other libraries, with the corresponding event here: all handlers of Hugging Face's
// Trainer and pytorch-accelerated, common ones in other naming styles, and handlers of Lightning and Keras.
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
struct On;
struct on;
struct handle;
struct handles;
struct run_after;
struct runs_after;
struct run_before;
struct runs_before;
struct run_last;
struct runs_last;
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
  void reads_parameters();
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

/// Works like has_name_on(): a name in `Names` that T has too is ambiguous here. In a final class, which
/// can't be a base, only public names without overloads can be detected.
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
                       mistake::events_and_order_are_declared_by_lists_so_write<Callback, callbacks<List>>>())
    return []<class... Others>(callbacks<Others...>) {
      return (
          expect<(std::is_class_v<Others> && std::same_as<Others, std::remove_cv_t<Others>>),
                 mistake::a_plain_class_is_expected_so_leave_out_const_and_reference<Callback, Others>>() &&
          ...);
    }(List{});
  return false;
}

#define ETUDE_CHECK_SPELLING(misspelt, right)          \
  expect<std::is_final_v<T> || !(ETUDE_HAS(misspelt)), \
         mistake::member_means_nothing_so_rename_it<T, method::misspelt, method::right>>()
#define ETUDE_CHECK_PUBLIC(is_public, name)                       \
  expect<std::is_final_v<T> || (is_public) || !(ETUDE_HAS(name)), \
         mistake::order_must_be_declared_public<T, method::name>>()

/// Checks that the declarations of a class are spelled correctly, public and of the right form.
template <class T>
consteval bool check_declarations() {
  using Probe = probed_for<T, misspelt_names>;
  constexpr bool has_handle = requires { requires is_list_of<typename T::handle, events>; };
  return expect<!has_handle,
                mistake::member_means_nothing_so_rename_it<T, method::handle, method::handles>>() &&
         ETUDE_CHECK_SPELLING(run_after, runs_after) && ETUDE_CHECK_SPELLING(run_before, runs_before) &&
         ETUDE_CHECK_SPELLING(run_last, runs_last) &&
         ETUDE_CHECK_PUBLIC(
             requires { static_cast<bool>(T::runs_last); }, runs_last) &&
         ETUDE_CHECK_PUBLIC(declares_runs_after<T>, runs_after) &&
         ETUDE_CHECK_PUBLIC(declares_runs_before<T>, runs_before) &&
         expect<(has_reads_parameters<T> || !ETUDE_HAS(reads_parameters)),
                mistake::reads_parameters_is_never_called_so_declare_it_public_as<T, bool() const>>() &&
         expect<(declares_events<T> || !ETUDE_HAS(On)),
                mistake::member_means_nothing_so_rename_it<T, method::On, method::on>>();
}
#undef ETUDE_CHECK_SPELLING
#undef ETUDE_CHECK_PUBLIC

/// A class that handles the event anyway, or declares its events with `handles`, may have methods of any
/// name.
#define ETUDE_CHECK_METHOD(name, Event)                                                           \
  if constexpr (ETUDE_HAS(name))                                                                  \
    if constexpr (!Handles<T, Event>)                                                             \
      expect<false, mistake::method_is_never_called_so_write_on_for_its_event_or_declare_handles< \
                        T, method::name, void(const Event&)>>();

/// Rejects methods that another library would call.
template <class T>
consteval bool has_no_other_handlers() {
  if constexpr (!declares_events<T>) {
    using Probe = probed_for<T, other_handlers>;
    ETUDE_OTHER_HANDLERS(ETUDE_CHECK_METHOD)
  }
  return true;
}

/// Rejects hooks of pytorch-accelerated's trainer.
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

/// All checks of a callback's members other than its handlers.
template <class T>
consteval bool check_names() {
  if constexpr (declares_events<T>) {
    using Handles = typename T::handles;
    if constexpr (!expect<is_list_of<Handles, events>,
                          mistake::events_and_order_are_declared_by_lists_so_write<T, events<Handles>>>())
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
