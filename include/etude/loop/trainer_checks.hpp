#pragma once

#include <concepts>
#include <filesystem>
#include <type_traits>

#include "etude/any_trainer.hpp"
#include "etude/data/data_loader.hpp"
#include "etude/dispatch/callback_checks.hpp"
#include "etude/dispatch/callback_names.hpp"
#include "etude/loop/optimizer_handle.hpp"
#include "etude/loop/run_settings.hpp"
#include "etude/loop/trainer_table.hpp"
#include "etude/optim/lr_scheduler.hpp"
#include "etude/trainer_options.hpp"

namespace etude::inline v0 {

// Methods that people override in Hugging Face's Trainer, pytorch-accelerated and Lightning, each with our
// equivalent and the method from which a trainer may call it itself.
// clang-format off
#define ETUDE_OTHER_METHODS(X) \
  X(compute_loss_func, compute_loss, training_step) X(calculate_train_batch_loss, compute_loss, training_step) \
  X(computeLoss, compute_loss, training_step) X(backward_step, training_step, training_step) \
  X(trainingStep, training_step, training_step) X(validation_step, prediction_step, evaluate) \
  X(calculate_eval_batch_loss, prediction_step, evaluate) X(evaluation_loop, evaluate, evaluate) \
  X(create_train_dataloader, get_train_dataloader, get_train_dataloader) \
  X(create_eval_dataloader, get_eval_dataloader, get_eval_dataloader) \
  X(get_test_dataloader, get_eval_dataloader, get_eval_dataloader) \
  X(_save_checkpoint, save_checkpoint, save_checkpoint) X(configure_optimizers, create_optimizer, create_scheduler) \
  X(create_optimizer_and_scheduler, create_optimizer, create_scheduler) \
  X(create_lr_scheduler, create_scheduler, create_scheduler)
// clang-format on

namespace mistake {

template <class Trainer, class Method, class Signature>
struct override_cannot_be_called_so_declare_it_public_as;
template <class Trainer, class Method>
struct override_is_never_called_by_train;
template <class Trainer, class Method, class Override>
struct method_of_another_trainer_is_never_called_so_override;
template <class Trainer, class Base>
struct trainer_derives_privately_so_write_public;
template <class First, class Trainer>
struct the_options_come_first_so_write_Trainer_options_callbacks;
struct braces_are_no_TrainerOptions_so_write_etude_TrainerOptions_before_them_to_see_why;

namespace method {
#define ETUDE_DECLARE_NAME(name, ...) struct name;
ETUDE_DETAIL_FOR_METHODS(ETUDE_DECLARE_NAME)
ETUDE_OTHER_METHODS(ETUDE_DECLARE_NAME)
#undef ETUDE_DECLARE_NAME
struct call_event;
/// A checkpoint contains the weights, so `train()` never calls `save_model`; `processing_class` may add
/// files.
struct save_model_so_override_save_checkpoint;
}  // namespace method

}  // namespace mistake

namespace detail {

template <class List, class T>
inline constexpr int times_listed = 0;
template <class... List, class T>
inline constexpr int times_listed<callbacks<List...>, T> = count_of<T, List...>;

/// Checks that every callback given to a trainer's constructor is in its list, at least as often as it is
/// given.
template <class Trainer, class List, class... Given>
consteval bool check_given() {
  return (expect<times_listed<List, Given> != 0,
                 mistake::callback_is_not_in_the_list_of_this_trainer<Given, Trainer>>() &&
          ...) &&
         (expect<count_of<Given, Given...> <= times_listed<List, Given>,
                 mistake::callback_is_given_more_often_than_it_is_listed<Given, Trainer>>() &&
          ...);
}

/// Checks that a run-time callback may follow the callbacks of the list.
template <class Callback, class... Known, class... Static>
consteval bool check_added(events<Known...>, callbacks<Static...>) {
  return (expect<(!std::same_as<Static, Callback> || allows_duplicates<Callback>),
                 mistake::callback_is_listed_twice_so_remove_one_or_set_allows_duplicates<Callback>>() &&
          ...) &&
         (expect<!must_follow<Static, Callback>(), mistake::callback_must_stand_after<Static, Callback>>() &&
          ...) &&
         (check_event<Known, Static..., Callback>() && ...);
}

/// Whether `Call(trainer, arguments...)` is a call with this signature.
template <class Signature, class Call, class Trainer>
inline constexpr bool is_call_of = false;
template <class Result, class... Args, class Call, class Trainer>
inline constexpr bool is_call_of<Result(Args...), Call, Trainer> =
    std::is_invocable_r_v<Result, Call, Trainer&, Args&...>;

/// Checks that every method that a derived trainer may override can be called as the loops call it.
template <class D>
consteval bool check_overrides() {
  using mistake::override_cannot_be_called_so_declare_it_public_as;
  namespace method = mistake::method;
#define ETUDE_CHECK_OVERRIDE(name, ...)                                                                     \
  constexpr auto call_##name = [](auto& trainer, auto&... args) -> decltype(trainer.name(args...)) {        \
    return trainer.name(args...);                                                                           \
  };                                                                                                        \
  if constexpr (!expect<is_call_of<__VA_ARGS__, decltype(call_##name), D>,                                  \
                        override_cannot_be_called_so_declare_it_public_as<D, method::name, __VA_ARGS__>>()) \
    return false;
  ETUDE_DETAIL_FOR_METHODS(ETUDE_CHECK_OVERRIDE)
#undef ETUDE_CHECK_OVERRIDE
  // A copy would lose the values that log() adds.
  return expect<!requires(D & trainer, const Metrics& logs) { trainer.log(logs); },
                override_cannot_be_called_so_declare_it_public_as<D, method::log, void(Metrics&)>>();
}

template <class Pointer>
void take(Pointer);

/// Whether `D` still has these methods of the base, which can't be overridden. It may add overloads.
template <class D, class Base>
concept keeps_save_model =
    requires { take<void (Base::*)(const std::filesystem::path&) const>(&D::save_model); };
template <class D, class Base>
concept keeps_call_event = requires { take<void (Base::*)(TrainEnd&)>(&D::template call_event<TrainEnd&>); };

#define ETUDE_DECLARE_METHOD(name, override, caller) void name();
struct other_methods {
  ETUDE_OTHER_METHODS(ETUDE_DECLARE_METHOD)
};
#undef ETUDE_DECLARE_METHOD

/// Rejects a method of `D` that has the name of another framework's method.
template <class D, class Base>
consteval bool has_no_other_methods() {
  using Probe = probed_for<D, other_methods>;
#define ETUDE_INHERITS(name) (requires { requires std::same_as<decltype(&D::name), decltype(&Base::name)>; })
#define ETUDE_CHECK_METHOD(name, ours, caller)                                                      \
  if constexpr (requires { &Probe::name; } == std::is_final_v<D>)                                   \
    expect<!(ETUDE_INHERITS(ours) && ETUDE_INHERITS(caller)),                                       \
           mistake::method_of_another_trainer_is_never_called_so_override<D, mistake::method::name, \
                                                                          mistake::method::ours>>();
  ETUDE_OTHER_METHODS(ETUDE_CHECK_METHOD)
#undef ETUDE_CHECK_METHOD
#undef ETUDE_OTHER_METHODS
  return true;
}

/// The class that declares `log(Metrics&)`, whatever other overloads there are.
template <class Owner>
std::type_identity<Owner> owner_of(void (Owner::*)(Metrics&));

template <class D, class Base>
consteval Overrides overrides_of() {
  // `&D::log` is ill-formed if `log` is overloaded or a template.
  constexpr bool inherits_log =
      requires { requires std::same_as<decltype(owner_of(&D::log)), std::type_identity<Base>>; };
  return {.compute_loss = !ETUDE_INHERITS(compute_loss),
          .training_step = !ETUDE_INHERITS(training_step),
          .get_eval_dataloader = !ETUDE_INHERITS(get_eval_dataloader),
          .log = !inherits_log,
          .create_optimizer = !ETUDE_INHERITS(create_optimizer),
          .steps_by_hand = steps_by_hand<D, Base>()};
}
#undef ETUDE_INHERITS

/// All checks of a derived trainer `D`, which inherits `Base` and raises the events `Known`.
template <class D, class Base, bool Closed, class... Known>
consteval bool check_trainer(events<Known...>) {
  if constexpr (!expect<std::is_convertible_v<D*, Base*>,
                        mistake::trainer_derives_privately_so_write_public<D, Base>>()) {
    return false;
  } else if constexpr (check_overrides<D>() && check_declarations<D>() && has_no_other_handlers<D>() &&
                       has_no_other_hooks<D>() && has_no_other_methods<D, Base>()) {
    if constexpr (expect<keeps_save_model<D, Base>,
                         mistake::override_is_never_called_by_train<
                             D, mistake::method::save_model_so_override_save_checkpoint>>() &&
                  expect<keeps_call_event<D, Base>,
                         mistake::override_is_never_called_by_train<D, mistake::method::call_event>>()) {
      // The overloads of a final class have no address.
      if constexpr (has_name_on<D>() || (std::is_final_v<D> && (Handles<D, Known> || ...)))
        return has_accessible_handlers<D>() && check_callback<Closed, D, Known...>();
      else
        return true;
    }
  }
  return false;
}

}  // namespace detail
}  // namespace etude::inline v0
