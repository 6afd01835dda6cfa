#pragma once

#include <array>
#include <cstddef>
#include <tuple>
#include <utility>

#include "etude/callback.hpp"
#include "etude/dispatch/callback_bases.hpp"
#include "etude/dispatch/callback_forms.hpp"
#include "etude/dispatch/callback_names.hpp"

namespace etude::inline v0 {

/// Each name is the first line of a compiler error about an invalid combination of callbacks. These types are
/// never defined, so requiring one is the error; its name and arguments are the only text that every compiler
/// prints there.
namespace mistake {

template <class Callback, class Event>
struct handler_must_return_void;
template <class Callback>
struct callback_is_const_so_leave_out_the_const;
template <class Callback>
struct callback_is_abstract_so_list_a_class_that_overrides_its_pure_virtual_functions;
template <class Callback>
struct callback_cannot_be_moved_into_the_trainer_so_give_it_a_move_constructor;
template <class Callback>
struct callback_handles_no_event_of_this_trainer_so_write_void_on_const_Event;
template <class Callback, class... Event>
struct callback_handles_an_event_that_this_trainer_never_raises;
template <class Callback, class Events>
struct declared_event_is_not_among_those_that_this_trainer_raises;
template <class Lambda>
struct a_lambda_is_not_a_callback_so_write_etude_on_Event_call;
template <class T>
struct not_a_callback_so_pass_the_callback_itself_by_value;
template <class Callback>
struct callback_is_listed_twice_so_remove_one_or_set_allows_duplicates;
template <class Writer, class Reader, class Event>
struct writer_stands_after_a_reader_of_the_event_so_move_it_before;
template <class Callback, class Writer, class Event>
struct event_is_raised_as_const_but_a_callback_writes_it;
template <class Callback, class Other>
struct callback_must_stand_after;
template <class Callback, class Other>
struct runs_after_cycle;
template <class Callback, class Trainer>
struct callback_is_not_in_the_list_of_this_trainer;
template <class Callback, class Trainer>
struct callback_is_given_more_often_than_it_is_listed;
template <class Trainer>
struct add_callback_needs_RuntimeCallbacks_in_the_list_of_this_trainer;
template <class Event, class Trainer>
struct event_is_not_named_in_the_Raises_of_this_trainer;
template <class T>
struct call_event_takes_the_event_itself_so_pass_a_struct;

}  // namespace mistake

namespace detail {

template <class T>
concept points_to_another = requires(T& pointer) {
                              *pointer;
                              pointer.operator->();
                            };

template <class Callback, class Event>
consteval bool check_handler() {
  if constexpr (!Handles<Callback, Event>) {
    return expect<!meant_for<Callback, Event>,
                  mistake::handler_cannot_take_its_event_so_declare_it_as<Callback, void(const Event&)>>();
  } else if constexpr (reads<Callback, Event>) {
    return expect<requires(Callback & c, const Event& e) {
                    { c.on(e) } -> std::same_as<void>;
                  }, mistake::handler_must_return_void<Callback, Event>>() &&
           expect<!reads_and_writes<Callback, Event>,
                  mistake::two_handlers_for_one_event_so_keep_only_one<Callback, Event>>();
  } else {
    return expect<requires(Callback & c, Event & e) {
                    { c.on(e) } -> std::same_as<void>;
                  }, mistake::handler_must_return_void<Callback, Event>>();
  }
}

/// Whether `T` may be raised. A raw or smart pointer to an event is rejected, because no handler would
/// receive it.
template <class T>
consteval bool check_raised() {
  if constexpr (expect<std::is_class_v<T>, mistake::call_event_takes_the_event_itself_so_pass_a_struct<T>>())
    return expect<!points_to_another<T>, mistake::call_event_takes_the_event_itself_so_pass_a_struct<T>>();
  return false;
}

/// The type at index `I`; only used to name a mistake.
template <std::size_t I, class... Types>
using type_at = std::tuple_element_t<I, std::tuple<Types...>>;

/// The index of a misplaced callback and of the one it conflicts with; `first` is the list's length if there
/// is none.
struct misplaced {
  std::size_t first, second = 0;
};

/// The first reader of an event, and the first writer after it.
template <class Event, class... Callbacks>
consteval misplaced writer_after_reader() {
  constexpr std::size_t n = sizeof...(Callbacks);
  const std::array<bool, n> is_reader{reads<Callbacks, Event>...};
  const std::array<bool, n> is_writer{(Writes<Callbacks, Event> && !forwards_events<Callbacks>)...};
  std::size_t reader = 0;
  while (reader < n && !is_reader[reader]) ++reader;
  for (std::size_t i = reader; i < n; ++i)
    if (is_writer[i]) return {reader, i};
  return {n};
}

/// All checks of one event: its handlers are callable, and none that changes it runs after one that reads it.
template <class Event, class... Callbacks>
consteval bool check_event() {
  if constexpr ((check_handler<Callbacks, Event>() && ...)) {
    constexpr auto found = writer_after_reader<Event, Callbacks...>();
    if constexpr (found.first == sizeof...(Callbacks)) {
      return true;
    } else {
      using Reader = type_at<found.first, Callbacks...>;
      using Writer = type_at<found.second, Callbacks...>;
      return expect<false, mistake::writer_stands_after_a_reader_of_the_event_so_move_it_before<
                               Writer, Reader, Event>>();
    }
  }
  return false;
}

template <class T, class... List>
consteval bool lists(callbacks<List...>) {
  return (std::same_as<T, List> || ...);
}

/// True if `A` declares that it runs after `B`, or `B` declares that it runs before `A`.
template <class A, class B>
consteval bool must_follow() {
  bool follows = false;
  if constexpr (requires { typename A::runs_after; }) follows = lists<B>(typename A::runs_after{});
  if constexpr (requires { typename B::runs_before; })
    follows = follows || lists<A>(typename B::runs_before{});
  return follows;
}

template <class Callback>
concept declares_order =
    requires { typename Callback::runs_after; } || requires { typename Callback::runs_before; };

template <class... Callbacks>
consteval auto order_closure() {
  constexpr std::size_t n = sizeof...(Callbacks);
  std::array<bool, n * n> follows{};
  std::size_t row = 0;
  [[maybe_unused]] const auto fill_row = [&]<class A>() {
    std::size_t column = 0;
    ((follows[row * n + column++] = must_follow<A, Callbacks>()), ...);
    ++row;
  };
  (fill_row.template operator()<Callbacks>(), ...);
  for (std::size_t k = 0; k < n; ++k)
    for (std::size_t i = 0; i < n; ++i)
      if (follows[i * n + k])
        for (std::size_t j = 0; j < n; ++j) follows[i * n + j] = follows[i * n + j] || follows[k * n + j];
  return follows;
}

/// All checks of the declared order.
template <class... Callbacks>
consteval bool check_order() {
  constexpr auto follows = order_closure<Callbacks...>();
  constexpr std::size_t n = sizeof...(Callbacks);
  [[maybe_unused]] const auto check_row = [&]<std::size_t I, class A, std::size_t... J>(
      std::index_sequence<J...>) {
    return (expect<(I == J || !(follows[I * n + J] && follows[J * n + I])),
                   mistake::runs_after_cycle<A, Callbacks>>() &&
            ...) &&
           (expect<!(follows[I * n + J] && I < J), mistake::callback_must_stand_after<A, Callbacks>>() &&
            ...);
  };
  return [&]<std::size_t... I>([[maybe_unused]] std::index_sequence<I...> all) {
    return (check_row.template operator()<I, Callbacks>(all) && ...);
  }
  (std::index_sequence_for<Callbacks...>{});
}

/// The number of `T`s among the first `end` of `Types`. The builtin compares without instantiating a template
/// per pair.
template <class T, class... Types>
consteval std::size_t count_before(std::size_t end) {
  const std::array<bool, sizeof...(Types)> same{__is_same(T, Types)...};
  std::size_t count = 0;
  for (std::size_t i = 0; i < end; ++i) count += same[i];
  return count;
}

/// For each type, the number of equal types before it.
template <class... Types>
consteval auto ranks_of() {
  std::array<std::size_t, sizeof...(Types)> ranks{};
  [[maybe_unused]] std::size_t i = 0;
  ((ranks[i] = count_before<Types, Types...>(i), ++i), ...);
  return ranks;
}

/// The index of the first duplicate of a callback that must be unique.
template <class... Callbacks>
consteval std::size_t duplicate() {
  constexpr auto ranks = ranks_of<Callbacks...>();
  const std::array<bool, sizeof...(Callbacks)> allowed{allows_duplicates<Callbacks>...};
  std::size_t i = 0;
  while (i < ranks.size() && (ranks[i] == 0 || allowed[i])) ++i;
  return i;
}

struct call_probe {
  void operator()();
};
template <class T>
struct with_call_probe : T, call_probe {};

/// Whether T has a call operator, including a template, as in a generic lambda.
template <class T>
consteval bool is_called_like_a_function() {
  if constexpr (std::is_final_v<T>)
    return requires { &T::operator(); };
  else
    return !requires { &with_call_probe<T>::operator(); };
}

/// Whether a trainer can hold `T` by value.
template <class T>
consteval bool check_can_be_held() {
  return expect<
             !std::is_abstract_v<T>,
             mistake::callback_is_abstract_so_list_a_class_that_overrides_its_pure_virtual_functions<T>>() &&
         expect<(std::is_abstract_v<T> || std::is_move_constructible_v<T>),
                mistake::callback_cannot_be_moved_into_the_trainer_so_give_it_a_move_constructor<T>>();
}

/// The checks run one after another, so that a wrong type is reported before the members that it lacks.
template <class T>
consteval bool check_is_callback() {
  if constexpr (!expect<(!is_reference_wrapper<T>::value && std::is_class_v<T>),
                        mistake::not_a_callback_so_pass_the_callback_itself_by_value<T>>())
    return false;
  else if constexpr (!expect<!std::is_const_v<T>, mistake::callback_is_const_so_leave_out_the_const<T>>())
    return false;
  else if constexpr (!expect<(has_name_on<T>() || !points_to_another<T>),
                             mistake::not_a_callback_so_pass_the_callback_itself_by_value<T>>())
    return false;
  else if constexpr (!expect<(has_name_on<T>() || !is_called_like_a_function<T>()),
                             mistake::a_lambda_is_not_a_callback_so_write_etude_on_Event_call<T>>())
    return false;
  else
    return has_accessible_handlers<T>() && check_can_be_held<T>() && check_names<T>() && check_forms<T>();
}

/// All checks of the list itself: every element is a callback, none is a duplicate, and the declared order
/// holds.
template <class... Callbacks>
consteval bool check_list() {
  if constexpr ((check_is_callback<Callbacks>() && ...)) {
    constexpr auto twice = duplicate<Callbacks...>();
    if constexpr (twice < sizeof...(Callbacks)) {
      using Twice = type_at<twice, Callbacks...>;
      return expect<false, mistake::callback_is_listed_twice_so_remove_one_or_set_allows_duplicates<Twice>>();
    } else if constexpr ((declares_order<Callbacks> || ...)) {
      return check_order<Callbacks...>();
    } else {
      return true;
    }
  }
  return false;
}

template <class Callback, class... Known, class... Declared>
consteval bool check_declared(events<Declared...>) {
  return (check_is_event<Callback, Declared, Known...>() && ...) &&
         (check_handler<Callback, Declared>() && ...) &&
         (expect<Handles<Callback, Declared>, mistake::handler_cannot_take_its_event_so_declare_it_as<
                                                  Callback, void(const Declared&)>>() &&
          ...);
}

/// All checks of one callback against the events that its trainer raises. With `Closed` it raises no other
/// events, so a handler for anything else could never be called.
template <bool Closed, class Callback, class... Known>
consteval bool check_callback() {
  constexpr bool handles_known = (Handles<Callback, Known> || ...);
  if constexpr (!(check_handler<Callback, Known>() && ...) || !check_arity<Callback>()) {
    return false;
  } else if constexpr (declares_events<Callback>) {
    constexpr auto are_raised = []<class... Declared>(events<Declared...>) {
      return (
          expect<(!Closed || count_of<Declared, Known...> != 0),
                 mistake::declared_event_is_not_among_those_that_this_trainer_raises<Callback, Declared>>() &&
          ...);
    };
    return check_declared<Callback, Known...>(typename Callback::handles{}) &&
           are_raised(typename Callback::handles{});
  } else {
    constexpr bool handles_foreign = has_foreign_handler<Callback, Known...>();
    // In a final class, several foreign handlers are found only one by one.
    if constexpr ((handles_foreign || std::is_final_v<Callback>)&&!Handles<Callback, unrelated>) {
      if constexpr (Closed)
        visit_parameters<Callback,
                         unknown_visitor<mistake::callback_handles_an_event_that_this_trainer_never_raises,
                                         Callback, Known...>>();
      else
        visit_parameters<Callback, events_visitor<Callback, Known...>>();
    }
    if constexpr (!Handles<Callback, unrelated>)
      visit_parameters<Callback, template_visitor<Callback, Known...>>();
    if constexpr (handles_foreign || handles_known) {
      return true;
    } else if constexpr (has_name_on<Callback>() && !has_on_as_object<Callback>) {
      // For example a template for a family of events, whose parameter can't be deduced.
      return expect<
          false,
          mistake::
              callback_has_an_on_that_takes_no_event_of_this_trainer_so_name_your_events_in_using_handles<
                  Callback>>();
    } else {
      visit_parameters<
          Callback,
          unknown_visitor<
              mistake::
                  callback_has_an_on_that_takes_no_event_of_this_trainer_so_name_your_events_in_using_handles,
              Callback>>();
      return expect<
          false, mistake::callback_handles_no_event_of_this_trainer_so_write_void_on_const_Event<Callback>>();
    }
  }
}

}  // namespace detail

/// Checks a list of callbacks against the events raised to it, once, before instantiating anything else. With
/// `Closed` there are no other events.
template <class Events, bool Closed, class... Callbacks>
struct CallbackChecks;

template <class... Known, bool Closed, class... Callbacks>
struct CallbackChecks<events<Known...>, Closed, Callbacks...> {
  static consteval bool passed() {
    if constexpr (detail::check_list<Callbacks...>())
      if constexpr ((detail::check_callback<Closed, Callbacks, Known...>() && ...) &&
                    (detail::keeps_handlers_of_bases<Callbacks, Known...>() && ...))
        return (detail::check_event<Known, Callbacks...>() && ...);
    return false;
  }
};

}  // namespace etude::inline v0
