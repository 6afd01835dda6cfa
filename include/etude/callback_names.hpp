#pragma once

#include <type_traits>

#include "etude/callback.hpp"

/// Members of a callback that Etude never looks at, but whose names say that they were meant for it: the
/// handlers of other trainers, and misspelt declarations.
namespace etude {

struct Context;

namespace mistake {

template <class Callback, class Method, class Handler>
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
template <class Callback, class List>
struct handles_is_a_list_so_write;

}  // namespace mistake

// The handlers of Hugging Face's Trainer and of pytorch-accelerated, with the event that each hears here.
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
  X(on_train_end, TrainEnd) X(on_training_run_end, TrainEnd)
// clang-format on

#define ETUDE_DECLARE_EVENT(method, Event) struct Event;
ETUDE_OTHER_HANDLERS(ETUDE_DECLARE_EVENT)
#undef ETUDE_DECLARE_EVENT

namespace detail {

/// What a mistake prints for a method.
namespace method {
#define ETUDE_DECLARE_NAME(method, Event) struct method;
ETUDE_OTHER_HANDLERS(ETUDE_DECLARE_NAME)
#undef ETUDE_DECLARE_NAME
}  // namespace method

struct other_names {
  void On();
  void run_after();
  void run_before();
  void runs_after();
  void runs_before();
#define ETUDE_DECLARE_METHOD(method, Event) void method();
  ETUDE_OTHER_HANDLERS(ETUDE_DECLARE_METHOD)
#undef ETUDE_DECLARE_METHOD
};
template <class T>
struct with_other_names : T, other_names {};

/// As has_name_on(): where T has one of these names, it is ambiguous here. Of a final class, which can't be a
/// base, only what is public and not overloaded can be seen.
template <class T>
using probed_names = typename std::conditional_t<std::is_final_v<T>, std::type_identity<T>,
                                                 std::type_identity<with_other_names<T>>>::type;

#define ETUDE_ASK(method, Event) &probed_names<T>::method;
template <class T>
concept has_no_other_name = (!std::is_final_v<T>) && requires {
                                                       &probed_names<T>::On;
                                                       &probed_names<T>::run_after;
                                                       &probed_names<T>::run_before;
                                                       &probed_names<T>::runs_after;
                                                       &probed_names<T>::runs_before;
                                                       ETUDE_OTHER_HANDLERS(ETUDE_ASK)
                                                     };
#undef ETUDE_ASK

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
  return expect<is_list_of<List, callbacks>,
                mistake::order_is_declared_by_a_list_so_write<Callback, callbacks<List>>>();
}

/// Every check of what stands beside the handlers of a callback. One that says by `handles` exactly which
/// events it is for may have methods of any name.
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
  if constexpr (!has_no_other_name<T>) {
    using Names = probed_names<T>;
    constexpr bool final = std::is_final_v<T>;
    return expect < final || requires { &Names::run_after; },
           mistake::run_after_means_nothing_so_write_using_runs_after < T >> () && expect < final ||
               requires { &Names::run_before; },
           mistake::run_before_means_nothing_so_write_using_runs_before < T >> () && expect < final ||
               declares_runs_after<T> || requires { &Names::runs_after; },
           mistake::runs_after_must_be_a_public_type_so_write_using_runs_after < T >> () && expect < final ||
               declares_runs_before<T> || requires { &Names::runs_before; },
           mistake::runs_before_must_be_a_public_type_so_write_using_runs_before < T >> () &&
                   expect < declares_events<T> ||
               requires { &Names::On; } != final,
           mistake::method_On_is_never_called_so_write_on < T >> ()
#define ETUDE_EXPECT(name, Event)                                                        \
  &&expect<declares_events<T> || requires { &Names::name; } != final,                    \
           mistake::method_is_never_called_so_write_on_for_its_event_or_declare_handles< \
               T, method::name, void(const Event&)>>()
                                                                     ETUDE_OTHER_HANDLERS(ETUDE_EXPECT)
#undef ETUDE_EXPECT
        ;
  }
  return true;
}
#undef ETUDE_OTHER_HANDLERS

}  // namespace detail
}  // namespace etude
