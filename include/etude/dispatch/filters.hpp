#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "etude/base/error.hpp"
#include "etude/callback.hpp"
#include "etude/dispatch/callback_forms.hpp"

namespace etude::inline v0 {

namespace mistake {

template <class Function, class Reader, class Writer>
struct function_of_call_cannot_take_the_event_so_declare_it_as_one_of;
template <class Function, class Reader, class Writer>
struct function_of_call_changes_only_a_copy_of_the_event_so_declare_it_as_one_of;
template <class Function, class Result>
struct function_of_call_must_return_void;
template <class Predicate, class Form>
struct predicate_of_when_cannot_take_the_event_so_declare_it_as;

}  // namespace mistake

/// Selects occurrences of an event, counted from 1 by the callback itself, so that no occurrence fires twice.
/// `every(k)` alone means k, 2k, 3k, ...; after `after(a)` it means a+1, a+1+k, ... (as in PyTorch-Ignite).
struct OccurrenceFilter {
  std::int64_t every = 1;
  std::optional<std::int64_t> once;
  std::optional<std::int64_t> after;
  std::int64_t before = std::numeric_limits<std::int64_t>::max();

  constexpr bool admits(std::int64_t n) const {
    if (once && n != *once) return false;
    if (n >= before) return false;
    if (!after) return n % every == 0;
    return n > *after && (n - *after - 1) % every == 0;
  }

  /// Whether the filter admits any occurrence.
  constexpr bool admits_any() const {
    if (once) return admits(*once);
    if (!after) return every < before;
    return before > 0 && *after < before - 1;
  }
};

namespace detail {

[[noreturn]] inline void throw_below(std::int64_t least, std::string_view name, std::int64_t value) {
  throw ArgumentError(std::string(name) + "(" + std::to_string(value) + "): must be at least " +
                      std::to_string(least));
}

[[noreturn]] inline void throw_never_fires(const OccurrenceFilter& filter) {
  std::string text;
  const auto add = [&](std::string_view name, std::int64_t value) {
    text += (text.empty() ? "" : ".") + std::string(name) + "(" + std::to_string(value) + ")";
  };
  if (filter.every != 1) add("every", filter.every);
  if (filter.once) add("once", *filter.once);
  if (filter.after) add("after", *filter.after);
  if (filter.before != std::numeric_limits<std::int64_t>::max()) add("before", filter.before);
  throw ArgumentError(text + ": no occurrence meets all of these conditions, so it would never be called");
}

struct always {
  template <class Event>
  constexpr bool operator()(const Event&) const {
    return true;
  }
};

template <class First, class Second>
struct both {
  First first;
  Second second;
  template <class Event>
  constexpr bool operator()(const Event& event) {
    return first(event) && second(event);
  }
};

/// True if `Function` takes `Event` by value, so that its changes are lost.
template <class Function, class Event>
concept takes_a_copy =
    requires {
      requires std::is_class_v<Function>;
      requires requires {
                 static_cast<std::invoke_result_t<Function&, Event&> (Function::*)(Event)>(
                     &Function::operator());
               } || requires {
                      static_cast<std::invoke_result_t<Function&, Event&> (Function::*)(Event) const>(
                          &Function::operator());
                    };
    } || std::same_as<Function, void (*)(Event)>;

}  // namespace detail

/// A callback made from a function and a filter: the result of `etude::on<Event>()...call(function)`. It is a
/// writer if the function takes `Event&` and a reader if it takes `const Event&`.
template <class Event, class Predicate, class Function>
class InlineCallback {
 public:
  static constexpr bool allows_duplicates = true;
  using handles = events<Event>;

  constexpr InlineCallback(OccurrenceFilter filter, Predicate predicate, Function function)
      : filter_(filter), predicate_(std::move(predicate)), function_(std::move(function)) {}

  constexpr void on(const Event& event)
    requires std::invocable<Function&, const Event&>
  {
    if (due(event)) function_(event);
  }
  constexpr void on(Event& event)
    requires(!std::invocable<Function&, const Event&>)
  {
    if (due(event)) function_(event);
  }

  /// The number of occurrences so far, so that a resumed training continues counting.
  nlohmann::ordered_json state() const { return {{"seen", seen_}}; }
  void load_state(const nlohmann::ordered_json& state) {
    constexpr std::int64_t most = std::int64_t{1} << 53;
    const auto& seen = state.at("seen");
    const auto count = seen.is_number_integer() ? seen.get<std::int64_t>() : -1;
    if (count < 0 || count > most) throw CheckpointError("seen must be a whole number from 0 to 2^53");
    seen_ = count;
  }

 private:
  constexpr bool due(const Event& event) { return filter_.admits(++seen_) && predicate_(event); }

  OccurrenceFilter filter_;
  Predicate predicate_;
  Function function_;
  std::int64_t seen_ = 0;
};

/// Builds `etude::on<StepEnd>().every(100).after(500).when(is_late).call(function)`; all conditions must
/// hold.
template <class Event, class Predicate = detail::always>
class [[nodiscard]] EventFilter {
 public:
  constexpr explicit EventFilter(OccurrenceFilter filter = {}, Predicate predicate = {})
      : filter_(filter), predicate_(std::move(predicate)) {}

  /// Every k-th occurrence. Throws `ArgumentError` unless k >= 1.
  constexpr EventFilter every(std::int64_t k) const {
    if (k < 1) detail::throw_below(1, "every", k);
    auto filter = filter_;
    filter.every = k;
    return EventFilter(filter, predicate_);
  }
  /// Only the n-th occurrence. Throws `ArgumentError` unless n >= 1.
  constexpr EventFilter once(std::int64_t n = 1) const {
    if (n < 1) detail::throw_below(1, "once", n);
    auto filter = filter_;
    filter.once = n;
    return EventFilter(filter, predicate_);
  }
  /// Occurrences n+1 and later. Throws `ArgumentError` unless n >= 0.
  constexpr EventFilter after(std::int64_t n) const {
    if (n < 0) detail::throw_below(0, "after", n);
    auto filter = filter_;
    filter.after = n;
    return EventFilter(filter, predicate_);
  }
  /// Occurrences up to n-1.
  constexpr EventFilter before(std::int64_t n) const {
    auto filter = filter_;
    filter.before = n;
    return EventFilter(filter, predicate_);
  }
  /// Occurrences for which `predicate(const Event&)` holds; called only if the counts admit the occurrence.
  template <class More>
  constexpr auto when(More more) const {
    static_assert(
        detail::expect<
            std::predicate<More, const Event&>,
            mistake::predicate_of_when_cannot_take_the_event_so_declare_it_as<More, bool(const Event&)>>());
    using Joined = detail::both<Predicate, More>;
    return EventFilter<Event, Joined>(filter_, Joined{predicate_, std::move(more)});
  }

  /// The callback that calls `function` with the event. Throws `ArgumentError` if the combined counts admit
  /// no occurrence.
  template <class Function>
  [[nodiscard]] constexpr auto call(Function function) const {
    if constexpr (detail::expect<std::invocable<Function&, Event&>,
                                 mistake::function_of_call_cannot_take_the_event_so_declare_it_as_one_of<
                                     Function, void(const Event&), void(Event&)>>()) {
      using Result = std::invoke_result_t<Function&, Event&>;
      static_assert(detail::expect<std::is_void_v<Result>,
                                   mistake::function_of_call_must_return_void<Function, Result>>());
      static_assert(
          detail::expect<!(detail::loses_changes_as_a_copy<Event> && detail::takes_a_copy<Function, Event>),
                         mistake::function_of_call_changes_only_a_copy_of_the_event_so_declare_it_as_one_of<
                             Function, void(const Event&), void(Event&)>>());
    }
    if (!filter_.admits_any()) detail::throw_never_fires(filter_);
    return InlineCallback<Event, Predicate, Function>(filter_, predicate_, std::move(function));
  }

 private:
  OccurrenceFilter filter_;
  Predicate predicate_;
};

/// Starts an inline callback: `etude::on<StepEnd>().every(100).call([](const StepEnd& e) { ... })`.
template <class Event>
constexpr EventFilter<Event> on() {
  static_assert(detail::expect<std::same_as<Event, std::remove_cvref_t<Event>>,
                               mistake::a_plain_class_is_expected_so_leave_out_const_and_reference<Event>>());
  return EventFilter<Event>();
}

}  // namespace etude::inline v0
