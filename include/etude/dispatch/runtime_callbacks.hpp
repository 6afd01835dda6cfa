#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <typeindex>
#include <typeinfo>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/callback.hpp"
#include "etude/dispatch/callback_checks.hpp"
#include "etude/dispatch/callback_handler.hpp"
#include "etude/dispatch/callback_state.hpp"
#include "etude/reflect/type_name.hpp"

namespace etude::inline v0 {

namespace mistake {
template <class Callback, class... Event>
struct handlers_for_events_of_your_own_so_declare_using_handles_etude_events;
template <class Callback>
struct InitEnd_has_gone_by_at_run_time_so_list_the_callback_in_the_type_of_the_trainer;
}  // namespace mistake

namespace detail {

inline std::size_t next_event_index() {
  static std::atomic<std::size_t> next = 0;
  return next++;
}

template <class Event>
std::size_t event_index() {
  static const std::size_t index = next_event_index();
  return index;
}

template <class... Types>
std::vector<std::type_index> type_indices(callbacks<Types...>) {
  return {std::type_index(typeid(Types))...};
}

/// A callback added at run time, with its type-erased operations.
struct RuntimeEntry {
  RuntimeEntry(std::uint64_t id_, std::type_index type_, std::string_view name_)
      : id(id_), type(type_), name(name_) {}
  virtual ~RuntimeEntry() = default;
  RuntimeEntry(const RuntimeEntry&) = delete;
  RuntimeEntry& operator=(const RuntimeEntry&) = delete;
  virtual bool reads_parameters() const = 0;

  std::uint64_t id;
  std::type_index type;
  std::string_view name;
  std::vector<std::type_index> runs_after, runs_before;
  std::optional<CallbackState> state = {};  // if it has one
  bool runs_last = false;
  bool removed = false;
};

template <class Callback>
struct RuntimeHolder : RuntimeEntry {
  RuntimeHolder(std::uint64_t id_, Callback callback_)
      : RuntimeEntry(id_, typeid(Callback), short_type_name<Callback>()), callback(std::move(callback_)) {
    if constexpr (requires { typename Callback::runs_after; })
      runs_after = type_indices(typename Callback::runs_after{});
    if constexpr (requires { typename Callback::runs_before; })
      runs_before = type_indices(typename Callback::runs_before{});
    if constexpr (is_stateful<Callback>()) state.emplace(callback);
    runs_last = detail::runs_last<Callback>;
  }
  bool reads_parameters() const override { return detail::reads_parameters(callback); }
  Callback callback;
};

/// Whether `Callback` handles `Event` and nothing else.
template <class Callback, class Event, class... Known>
consteval bool handles_only(events<Known...>) {
  return Handles<Callback, Event> && (0 + ... + int{Handles<Callback, Known>}) == 1 &&
         !has_foreign_handler<Callback, Known...>();
}

struct RuntimeSlot {
  std::shared_ptr<RuntimeEntry> entry;
  bool writes;
  void (*call)(RuntimeEntry&, const void* event);
};

struct RuntimeState {
  std::vector<std::shared_ptr<RuntimeEntry>> entries;
  std::vector<std::vector<RuntimeSlot>> slots;  // by event_index
  std::uint64_t next_id = 1;
  int dispatching = 0;
  bool has_removed = false;
  bool some_run_last = false;

  void mark_removed(RuntimeEntry& entry) { entry.removed = has_removed = true; }

  /// Entries removed while events are being delivered are destroyed only after the outermost event.
  void sweep() {
    if (has_removed && dispatching == 0) let_go();
  }
  void let_go();

  /// Throws ArgumentError if another callback of its type exists and duplicates aren't allowed, or if it must
  /// run before a callback that was added earlier.
  void check_place(bool may_be_twice, const RuntimeEntry& added) const;

  template <class Match>
  std::shared_ptr<RuntimeEntry> find(Match matches, std::string_view what) const {
    for (const auto& entry : entries)
      if (!entry->removed && matches(*entry)) return entry;
    throw_not_there(what);
  }

  [[noreturn]] void throw_not_there(std::string_view what) const;
};

[[noreturn]] void throw_sliced(std::string_view base);
/// Throws ArgumentError if the object's class derives from `Callback`, since only a part of it would be
/// copied.
template <class Callback>
void check_not_sliced(const Callback& callback) {
  if constexpr (std::is_polymorphic_v<Callback>)
    if (typeid(callback) != typeid(Callback)) throw_sliced(short_type_name<Callback>());
}
[[noreturn]] void throw_written_as_const(std::string_view callback, std::string_view event);
[[noreturn]] void throw_written_too_late(std::string_view callback, std::string_view event,
                                         std::string_view reader);

}  // namespace detail

/// Identifies a callback added at run time; returned by `add_callback`.
class CallbackHandle {
 public:
  CallbackHandle() = default;
  CallbackHandle(std::weak_ptr<detail::RuntimeState> state, std::uint64_t id)
      : state_(std::move(state)), id_(id) {}

  /// Whether the callback still receives events.
  bool attached() const {
    const auto state = state_.lock();
    return state && std::any_of(state->entries.begin(), state->entries.end(),
                                [&](const auto& entry) { return entry->id == id_ && !entry->removed; });
  }

  /// Removes the callback. Throws `ArgumentError` if it was already removed.
  void remove() {
    const auto state = state_.lock();
    if (!state) throw ArgumentError("the trainer that this callback was added to no longer exists");
    state->mark_removed(
        *state->find([&](const auto& entry) { return entry.id == id_; }, "the callback of this handle"));
    state->sweep();
  }

 private:
  friend class RuntimeCallbacks;
  std::weak_ptr<detail::RuntimeState> state_;
  std::uint64_t id_ = 0;
};

/// A handle that removes its callback on destruction, if it still exists.
class ScopedCallback {
 public:
  [[nodiscard]] explicit ScopedCallback(CallbackHandle handle) : handle_(std::move(handle)) {}
  ScopedCallback(ScopedCallback&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
  ScopedCallback& operator=(ScopedCallback&&) = delete;
  ~ScopedCallback() {
    if (handle_.attached()) handle_.remove();
  }

 private:
  CallbackHandle handle_;
};

/// Holds callbacks chosen at run time. It is itself a callback, and forwards each event to the added
/// callbacks that handle it, in the order in which they were added; callbacks with `runs_last` come at the
/// end. An event without subscribers costs one check of an empty list; otherwise one indirect call per
/// subscriber. Callbacks, including the running one, may be added and removed while an event is delivered: an
/// added callback receives the next event, and a removed one receives nothing more. Not thread-safe.
class RuntimeCallbacks {
 public:
  template <class Event>
  void on(Event& event) {
    for_each_subscribed<Event>([&](const detail::RuntimeSlot& slot) { slot.call(*slot.entry, &event); });
  }

  /// Like `CallbackHandler::call_event_to_all`.
  template <class Event, class OnError>
  void on_all(Event& event, OnError& on_error) {
    for_each_subscribed<Event>([&](const detail::RuntimeSlot& slot) {
      try {
        slot.call(*slot.entry, &event);
      } catch (...) {
        on_error();
      }
    });
  }

  /// Adds `callback`, subscribed to the trainer's events that it handles, and to your events that it lists in
  /// `using handles = events<...>` or handles with its only `on`; with `Closed` there are no other events.
  /// Throws `ArgumentError` if a callback of its type exists (unless the type declares `allows_duplicates`),
  /// if it is the base part of a derived object, or if it would write an event after a reader or violate a
  /// declared order.
  template <bool Closed = false, class... Known, class Given>
  CallbackHandle add(events<Known...>, Given&& callback) {
    using Callback = std::remove_cvref_t<Given>;
    static_assert(CallbackChecks<events<Known...>, false, Callback>::passed());
    using Declared = detail::declared_events_t<Callback>;
    if constexpr (!detail::declares_events<Callback>) {
      if constexpr (Handles<Callback, detail::unrelated>)
        static_assert(
            detail::expect<
                Closed,
                mistake::handlers_for_events_of_your_own_so_declare_using_handles_etude_events<Callback>>());
      else
        static_assert(accounts_for_all<Callback, Known...>(Declared{}));
    }
    detail::check_not_sliced(std::as_const(callback));
    auto entry =
        std::make_shared<detail::RuntimeHolder<Callback>>(state_->next_id++, std::forward<Given>(callback));
    state_->check_place(detail::allows_duplicates<Callback>, *entry);
    (check_write<Callback, Known>(*entry), ...);
    (subscribe<Callback, Known>(entry), ...);
    [&]<class... Own>(events<Own...>) {
      ((detail::count_of<Own, Known...> == 0 ? subscribe<Callback, Own>(entry) : void()), ...);
    }(Declared{});
    state_->entries.push_back(entry);
    state_->some_run_last = state_->some_run_last || entry->runs_last;
    return {state_, entry->id};
  }

  /// The first callback of this type. Throws `ArgumentError` if there is none.
  template <class Callback>
  Callback& get() {
    return holder<Callback>().callback;
  }

  /// Removes the first callback of this type and returns it. The callback is moved, so a running callback
  /// must not pop itself. Throws `ArgumentError` if there is none.
  template <class Callback>
  Callback pop() {
    return take(holder<Callback>());
  }
  /// The same for the callback of a handle, which must have this type.
  template <class Callback>
  Callback pop(const CallbackHandle& handle) {
    const auto matches = [&](const auto& entry) {
      return entry.id == handle.id_ && entry.type == typeid(Callback);
    };
    return take(
        static_cast<detail::RuntimeHolder<Callback>&>(*state_->find(matches, short_type_name<Callback>())));
  }

  /// Removes the first callback of this type. Throws `ArgumentError` if there is none.
  template <class Callback>
  void remove() {
    state_->mark_removed(holder<Callback>());
    state_->sweep();
  }

  /// The states of callbacks that have one, in the order in which they were added.
  std::vector<CallbackState> states() const {
    std::vector<CallbackState> result;
    for (const auto& entry : state_->entries)
      if (!entry->removed && entry->state) result.push_back(*entry->state);
    return result;
  }

  /// The types of the callbacks, in the order in which they run.
  std::vector<std::string_view> names() const {
    std::vector<std::string_view> result;
    for (const bool run_last : {false, true})
      for (const auto& entry : state_->entries)
        if (!entry->removed && entry->runs_last == run_last) result.push_back(entry->name);
    return result;
  }

  /// The first callback that reads the model's parameters between steps; empty if none does.
  std::string_view reader_of_parameters() const {
    for (const auto& entry : state_->entries)
      if (!entry->removed && entry->reads_parameters()) return entry->name;
    return {};
  }

  /// The names of callbacks that handle `Event`, in order; `writes` is set for callbacks that may change it.
  template <class Event>
  std::vector<std::pair<std::string, bool>> handlers() const {
    return handlers(detail::event_index<Event>());
  }
  /// Whether a callback may change the event of that index.
  bool writes(std::size_t event_index) const {
    return event_index < state_->slots.size() &&
           std::any_of(state_->slots[event_index].begin(), state_->slots[event_index].end(),
                       [](const auto& slot) { return slot.writes && !slot.entry->removed; });
  }
  std::vector<std::pair<std::string, bool>> handlers(std::size_t event_index) const {
    std::vector<std::pair<std::string, bool>> names;
    if (event_index < state_->slots.size())
      for (const bool run_last : {false, true})
        for (const auto& slot : state_->slots[event_index])
          if (!slot.entry->removed && slot.entry->runs_last == run_last)
            names.emplace_back(slot.entry->name, slot.writes);
    return names;
  }

 private:
  template <class Event, class Visit>
  void for_each_subscribed(Visit visit) {
    const auto index = detail::event_index<std::remove_const_t<Event>>();
    if (index >= state_->slots.size() || state_->slots[index].empty()) return;
    const struct Dispatch {
      detail::RuntimeState& state;
      explicit Dispatch(detail::RuntimeState& s) : state(s) { ++state.dispatching; }
      ~Dispatch() {
        --state.dispatching;
        state.sweep();
      }
    } dispatch(*state_);
    // By index: a callback may add others, which reallocates the lists. Entries stay until the sweep.
    const auto visit_those = [&, end = state_->slots[index].size()](bool run_last) {
      for (std::size_t i = 0; i < end; ++i) {
        const auto& slot = state_->slots[index][i];
        if (slot.entry->removed || slot.entry->runs_last != run_last) continue;
        if (std::is_const_v<Event> && slot.writes)
          detail::throw_written_as_const(slot.entry->name, short_type_name<std::remove_const_t<Event>>());
        visit(slot);
      }
    };
    visit_those(false);
    if (state_->some_run_last) visit_those(true);
  }

  template <class Callback, class... Known, class... Own>
  static consteval bool accounts_for_all(events<Own...>) {
    return detail::visit_parameters<
        Callback, detail::unknown_visitor<
                      mistake::handlers_for_events_of_your_own_so_declare_using_handles_etude_events,
                      Callback, Known..., Own...>>();
  }

  template <class Callback>
  Callback take(detail::RuntimeHolder<Callback>& found) {
    state_->mark_removed(found);
    Callback taken = std::move(found.callback);
    state_->sweep();
    return taken;
  }

  template <class Callback>
  detail::RuntimeHolder<Callback>& holder() const {
    return static_cast<detail::RuntimeHolder<Callback>&>(*state_->find(
        [](const auto& entry) { return entry.type == typeid(Callback); }, short_type_name<Callback>()));
  }

  template <class Callback, class Event>
  void check_write(const detail::RuntimeEntry& added) const {
    if constexpr (Writes<Callback, Event>)
      if (const auto index = detail::event_index<Event>(); index < state_->slots.size())
        for (const auto& slot : state_->slots[index])
          if (!slot.entry->removed && !slot.writes && (added.runs_last || !slot.entry->runs_last))
            detail::throw_written_too_late(added.name, short_type_name<Event>(), slot.entry->name);
  }

  template <class Callback, class Event>
  void subscribe(const std::shared_ptr<detail::RuntimeHolder<Callback>>& entry) {
    if constexpr (Handles<Callback, Event>) {
      const auto index = detail::event_index<Event>();
      if (index >= state_->slots.size()) state_->slots.resize(index + 1);
      state_->slots[index].push_back(
          {entry, Writes<Callback, Event>, [](detail::RuntimeEntry& base, const void* event) {
             auto& callback = static_cast<detail::RuntimeHolder<Callback>&>(base).callback;
             if constexpr (Writes<Callback, Event>)
               detail::deliver(callback, *static_cast<Event*>(const_cast<void*>(event)));
             else
               detail::deliver(callback, *static_cast<const Event*>(event));
           }});
    }
  }

  std::shared_ptr<detail::RuntimeState> state_ = std::make_shared<detail::RuntimeState>();
};

}  // namespace etude::inline v0
