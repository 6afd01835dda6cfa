#pragma once

#include <concepts>
#include <string_view>
#include <type_traits>
#include <utility>

#include "etude/callback.hpp"
#include "etude/reflect/type_name.hpp"

/// Detects handlers that can never be called because of their form, even if the same callback has others that
/// can. Checks each parameter of every `on` separately, independent of the trainer's events.
namespace etude::inline v0 {

struct Context;

namespace mistake {

template <class Callback, class Form>
struct handler_cannot_take_its_event_so_declare_it_as;
template <class Callback, class Event>
struct two_handlers_for_one_event_so_keep_only_one;
template <class... CallbackAndParameter>
struct handler_takes_one_event_so_declare_it_as_void_on_const_Event;
template <class... CallbackAndHandler>
struct handler_is_private_or_protected_so_make_it_public;
template <class Callback, class Handler>
struct handler_of_an_rvalue_is_never_called_so_declare_it_as;
template <class Callback, class Reader, class Writer>
struct handler_changes_only_a_copy_of_its_event_so_declare_it_as_one_of;
template <class Callback>
struct generic_handler_takes_copies_so_declare_it_as_on_const_auto;
template <class Callback, class Handler>
struct event_has_nothing_to_write_so_declare_the_handler_as;
template <class Callback, class Writer>
struct writer_is_hidden_by_a_reader_of_its_event_so_move_it_to_another_callback;
template <class Callback, class Event>
struct handler_is_for_an_event_that_handles_does_not_name;
template <class Callback, class Handler>
struct handler_takes_another_type_of_this_name_so_declare_it_as;
template <class Callback, class Event>
struct event_is_only_declared_here_so_include_its_definition;
template <class Callback, class Parameter>
struct handler_parameter_is_not_an_event;
template <class Callback, class... Event>
struct callback_has_an_on_that_takes_no_event_of_this_trainer_so_name_your_events_in_using_handles;

}  // namespace mistake

namespace detail {

consteval bool is_of_a_library(std::string_view name) {
  for (const std::string_view place : {"std::", "torch::", "at::", "c10::", "etude::"})
    if (name.starts_with(place)) return true;
  return false;
}

/// Whether a class with this name and these bases may be an event of Etude or of the program.
template <class Event>
consteval bool may_be_an_event() {
  return std::is_base_of_v<Context, Event> || !is_of_a_library(type_name<Event>());
}

/// True if handlers can't change anything in `Event`; events.hpp specializes this for Etude's events.
template <class Event>
inline constexpr bool has_constant_payload = false;

template <class T>
concept complete = requires { sizeof(T); };

template <class Event>
concept nothing_to_write = complete<Event> && has_constant_payload<Event>;

/// True if changes to a copy of `Event` are lost. A user's event that isn't assignable holds references, so
/// changes to a copy reach the original.
template <class Event>
concept loses_changes_as_a_copy = complete<Event> &&
                                  (!std::is_empty_v<Event> && !has_constant_payload<Event> &&
                                   may_be_an_event<Event>() &&
                                   (std::is_base_of_v<Context, Event> || std::is_copy_assignable_v<Event> ||
                                    std::is_move_assignable_v<Event>));

template <class Callback, class Parameter>
concept has_mutable_form = requires { static_cast<void (Callback::*)(Parameter)>(&Callback::on); } ||
                           requires { static_cast<void (*)(Parameter)>(&Callback::on); };
template <class Callback, class Parameter>
concept has_const_form = requires { static_cast<void (Callback::*)(Parameter) const>(&Callback::on); };
template <class Callback, class Parameter>
concept has_rvalue_form = requires { static_cast<void (Callback::*)(Parameter) &&>(&Callback::on); } ||
                          requires { static_cast<void (Callback::*)(Parameter) const&&>(&Callback::on); };

/// The number of handlers that take exactly `Parameter`; `Unrelated`, of the same form, matches only generic
/// ones.
template <class Callback, class Parameter, class Unrelated>
consteval int count_form() {
  int count = 0;
  if constexpr (has_on_as_object<Callback>)
    return requires { requires std::same_as<only_parameter_t<Callback>, Parameter>; };
  if constexpr (has_mutable_form<Callback, Parameter>) count += !has_mutable_form<Callback, Unrelated>;
  if constexpr (has_const_form<Callback, Parameter>) count += !has_const_form<Callback, Unrelated>;
  return count;
}

/// All handlers of a class that isn't final, including protected ones.
template <class Callback>
using all_handlers = typename std::conditional_t<std::is_final_v<Callback> || has_on_as_object<Callback>,
                                                 std::type_identity<Callback>,
                                                 std::type_identity<with_fallback<Callback>>>::type;

/// Whether a handler can be called with `Event` by code with access to protected members.
template <class Callback, class Event>
concept handles_inside = requires(all_handlers<Callback>& c, Event& event) { c.on(event); } &&
                         !requires(all_handlers<Callback> & c, Event& event) {
                            { c.on(event) } -> std::same_as<no_handler>;
                          };

template <class Callback, class Event>
consteval bool is_declared() {
  return []<class... Declared>(events<Declared...>) {
    return ((std::same_as<Event, Declared> || std::is_base_of_v<Event, Declared>) || ...);
  }(typename Callback::handles{});
}

/// All checks of the handlers of `Callback` that take `Event` in some form.
template <class Callback, class Event>
consteval bool check_handlers_of() {
  using All = all_handlers<Callback>;
  using Reader = void(const Event&);
  using Writer = void(Event&);
  constexpr int copying = count_form<All, Event, unrelated>();
  constexpr int writing = count_form<All, Event&, unrelated&>();
  constexpr int taking_rvalues = count_form<All, Event&&, unrelated&&>();
  constexpr int all = copying + writing + taking_rvalues + count_form<All, const Event&, const unrelated&>();
  if constexpr (all > 1) {
    return expect<false, mistake::two_handlers_for_one_event_so_keep_only_one<Callback, Event>>();
  } else if constexpr (has_rvalue_form<All, const Event&> || has_rvalue_form<All, Event&> ||
                       has_rvalue_form<All, Event>) {
    return expect<false, mistake::handler_of_an_rvalue_is_never_called_so_declare_it_as<Callback, Reader>>();
  } else if constexpr (!Handles<Callback, Event>) {
    // Deleted overloads aren't meant to be called.
    return expect<!handles_inside<Callback, Event>,
                  mistake::handler_is_private_or_protected_so_make_it_public<Callback, Reader>>() &&
           expect<(taking_rvalues > 0 || !std::is_final_v<Callback>),
                  mistake::handler_is_private_or_protected_so_make_it_public<Callback, Reader>>() &&
           expect<taking_rvalues == 0,
                  mistake::handler_cannot_take_its_event_so_declare_it_as<Callback, Reader>>();
  } else {
    if constexpr (declares_events<Callback>)
      expect<is_declared<Callback, Event>(),
             mistake::handler_is_for_an_event_that_handles_does_not_name<Callback, Event>>();
    if constexpr (copying > 0)
      return expect<!loses_changes_as_a_copy<Event>,
                    mistake::handler_changes_only_a_copy_of_its_event_so_declare_it_as_one_of<
                        Callback, Reader, Writer>>();
    else if constexpr (writing > 0)
      return expect<!reads<Callback, Event>,
                    mistake::writer_is_hidden_by_a_reader_of_its_event_so_move_it_to_another_callback<
                        Callback, Writer>>() &&
             expect<!nothing_to_write<Event>,
                    mistake::event_has_nothing_to_write_so_declare_the_handler_as<Callback, Reader>>();
    return true;
  }
}

/// Offers a conversion to the parameter of each handler in turn, passes its type to `Visitor`, and in the end
/// matches no handler.
template <class Visitor>
struct parameter_probe {
  template <class T>
    requires(Visitor::template visit<std::remove_cv_t<T>>())
  operator T&() const;
  template <class T>
    requires(Visitor::template visit<std::remove_cv_t<T>>())
  operator T&&() const;
};

/// True if the name `on` is visible, or if the class is final, where overloads can't be detected by name.
template <class Callback>
concept has_visible_overloads = std::is_final_v<Callback> || has_name_on<Callback>();

/// Passes the parameter of each non-generic handler to `Visitor`; if a handler has several parameters, the
/// first one.
template <class Callback, class Visitor, class... More>
consteval bool visit_parameters() {
  if constexpr (has_on_as_object<Callback>) {
    if constexpr (sizeof...(More) == 0 && requires { typename only_parameter_t<Callback>; })
      Visitor::template visit<std::remove_cvref_t<only_parameter_t<Callback>>>();
  } else if constexpr (has_visible_overloads<Callback>) {
    static_cast<void>(requires(all_handlers<Callback> & c, parameter_probe<Visitor> probe, More... more) {
                        std::move(c).on(probe, more...);
                      });
    // Handlers with an & qualifier, which can't be called on an rvalue.
    static_cast<void>(requires(all_handlers<Callback> & c, parameter_probe<Visitor> probe, More... more) {
                        c.on(probe, more...);
                      });
  }
  return true;
}

template <class Callback>
struct forms_visitor {
  template <class T>
  static consteval bool visit() {
    if constexpr (std::is_class_v<T>) check_handlers_of<Callback, T>();
    return false;
  }
};

/// Detects parameters with a default.
template <class Callback>
struct more_parameters_visitor {
  template <class T>
  static consteval bool visit() {
    if constexpr (std::is_class_v<T>)
      expect<Handles<Callback, T>,
             mistake::handler_takes_one_event_so_declare_it_as_void_on_const_Event<Callback, T>>();
    return false;
  }
};

/// Whether every `on` can be called with exactly one event.
template <class Callback>
consteval bool check_arity() {
  if constexpr (has_visible_overloads<Callback> && !Handles<Callback, unrelated>) {
    expect<!requires(Callback & c) { c.on(); },
           mistake::handler_takes_one_event_so_declare_it_as_void_on_const_Event<Callback>>();
    if constexpr (may_take_several<Callback>) {
      using Visitor = more_parameters_visitor<Callback>;
      visit_parameters<Callback, Visitor, anything>();
      visit_parameters<Callback, Visitor, anything, anything>();
      visit_parameters<Callback, Visitor, anything, anything, anything>();
      visit_parameters<Callback, Visitor, anything, anything, anything, anything>();
      visit_parameters<Callback, Visitor, anything, anything, anything, anything, anything>();
    }
  }
  return true;
}

/// Whether `on` is an object that only derived classes can access.
template <class Callback>
consteval bool has_protected_object() {
  if constexpr (!std::is_final_v<Callback> && has_name_on<Callback>() && !has_on_as_object<Callback>)
    return has_on_as_object<with_on_of<Callback>>;
  else
    return false;
}

/// Whether every `on` has a callable form.
template <class Callback>
consteval bool check_forms() {
  if constexpr (!expect<!has_protected_object<Callback>(),
                        mistake::handler_is_private_or_protected_so_make_it_public<Callback>>())
    return false;
  else if constexpr (!expect<
                         !(has_mutable_form<Callback, unrelated> || has_const_form<Callback, unrelated>),
                         mistake::generic_handler_takes_copies_so_declare_it_as_on_const_auto<Callback>>())
    return false;
  else if constexpr (has_visible_overloads<Callback>)
    return expect<(Handles<Callback, unrelated> || !handles_inside<Callback, unrelated>),
                  mistake::handler_is_private_or_protected_so_make_it_public<Callback>>() &&
           visit_parameters<Callback, forms_visitor<Callback>>();
  else
    return true;
}

/// Whether `Event` may be one of the program's own events, not among `Known`.
template <class Callback, class Event, class... Known>
consteval bool check_is_event() {
  if constexpr (!expect<
                    std::same_as<Event, std::remove_cvref_t<Event>>,
                    mistake::a_plain_class_is_expected_so_leave_out_const_and_reference<Callback, Event>>()) {
    return false;
  } else if constexpr (((std::same_as<Event, Known> || std::is_base_of_v<Event, Known>) || ...)) {
    return true;
  } else if constexpr (!std::is_class_v<Event>) {
    return expect<false, mistake::handler_parameter_is_not_an_event<Callback, Event>>();
  } else {
    constexpr auto name = short_type_name<Event>();
    return (expect<short_type_name<Known>() != name,
                   mistake::handler_takes_another_type_of_this_name_so_declare_it_as<Callback,
                                                                                     void(const Known&)>>() &&
            ...) &&
           expect<complete<Event>,
                  mistake::event_is_only_declared_here_so_include_its_definition<Callback, Event>>() &&
           expect<may_be_an_event<Event>(), mistake::handler_parameter_is_not_an_event<Callback, Event>>();
  }
}

template <class Parameter, class R, class C>
void take_only(R (C::*)(Parameter));
template <class Parameter, class R, class C>
void take_only(R (C::*)(Parameter) const);
template <class Parameter, class R>
void take_only(R (*)(Parameter));

/// True if a template is among the overloads of `on`. The compiler can't deduce anything from such a set,
/// even if only one function in it fits.
template <class Callback, class Parameter>
concept stands_beside_a_template = (has_mutable_form<Callback, Parameter> ||
                                    has_const_form<Callback, Parameter>) &&
                                   !requires { take_only<Parameter>(&Callback::on); };

/// True if a template `on` takes `Event`, even if other handlers take it too.
template <class Callback, class Event>
concept handles_in_a_template =
    requires(Callback& c, const Event& event) { c.template on<Event>(event); } ||
    requires(Callback& c, const Event& event) { c.template on<const Event>(event); } ||
    requires(Callback& c, Event& event) { c.template on<Event>(event); };

template <class Callback, class... Known>
struct template_visitor {
  template <class T>
  static consteval bool visit() {
    if constexpr (stands_beside_a_template<Callback, const T&> || stands_beside_a_template<Callback, T&> ||
                  stands_beside_a_template<Callback, T>)
      expect<(handles_in_a_template<Callback, Known> || ...),
             mistake::
                 callback_has_an_on_that_takes_no_event_of_this_trainer_so_name_your_events_in_using_handles<
                     Callback>>();
    return false;
  }
};

/// Reports a handler whose parameter is neither a known event nor a base of one.
template <template <class...> class Mistake, class Callback, class... Known>
struct unknown_visitor {
  template <class T>
  static consteval bool visit() {
    expect<((std::same_as<T, Known> || std::is_base_of_v<T, Known>) || ...), Mistake<Callback, T>>();
    return false;
  }
};

template <class Callback, class... Known>
struct events_visitor {
  template <class T>
  static consteval bool visit() {
    check_is_event<Callback, T, Known...>();
    return false;
  }
};

}  // namespace detail
}  // namespace etude::inline v0
