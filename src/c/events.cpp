#include "events.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <concepts>
#include <filesystem>
#include <type_traits>
#include <vector>

#include "etude/events.hpp"
#include "etude/reflect/nearest.hpp"
#include "etude/reflect/type_name.hpp"

namespace etude::inline v0::c {

namespace {

std::optional<double> number_in(const Metrics& metrics, std::string_view name) {
  const auto found = metrics.find(std::string(name));
  return found == metrics.end() ? std::nullopt : std::optional(found->second);
}

template <class Event>
std::optional<double> number_of(const void* raised, std::string_view name) {
  [[maybe_unused]] const auto& e = *static_cast<const Event*>(raised);
  if constexpr (requires { e.logs; }) return number_in(e.logs, name);
  if constexpr (requires { e.metrics; }) return number_in(e.metrics, name);
  const auto tensor = [](const torch::Tensor& value) {
    return value.defined() && value.numel() == 1 ? std::optional(value.item<double>()) : std::nullopt;
  };
#define ETUDE_DETAIL_NUMBER(field)                                                       \
  if constexpr (requires { e.field; })                                                   \
    if (name == #field) {                                                                \
      if constexpr (std::same_as<std::remove_cvref_t<decltype(e.field)>, torch::Tensor>) \
        return tensor(e.field);                                                          \
      else                                                                               \
        return static_cast<double>(e.field);                                             \
    }
  ETUDE_DETAIL_NUMBER(loss)
  ETUDE_DETAIL_NUMBER(grad_norm)
  ETUDE_DETAIL_NUMBER(learning_rate)
  ETUDE_DETAIL_NUMBER(gradient_accumulation_steps)
  ETUDE_DETAIL_NUMBER(index)
  ETUDE_DETAIL_NUMBER(is_resumed)
  ETUDE_DETAIL_NUMBER(is_done)
  ETUDE_DETAIL_NUMBER(is_intermediate)
#undef ETUDE_DETAIL_NUMBER
  return std::nullopt;
}

template <class Event>
std::optional<std::string> text_of(const void* raised, std::string_view name) {
  [[maybe_unused]] const auto& e = *static_cast<const Event*>(raised);
#define ETUDE_DETAIL_TEXT(field, given_name)                                                     \
  if constexpr (requires { e.field; })                                                           \
    if (name == given_name) {                                                                    \
      if constexpr (std::same_as<std::remove_cvref_t<decltype(e.field)>, std::filesystem::path>) \
        return e.field.string();                                                                 \
      else                                                                                       \
        return std::string(e.field);                                                             \
    }
  ETUDE_DETAIL_TEXT(checkpoint, "checkpoint")
  ETUDE_DETAIL_TEXT(reason, "reason")
  ETUDE_DETAIL_TEXT(what, "error")
  ETUDE_DETAIL_TEXT(callback, "callback")
  ETUDE_DETAIL_TEXT(event, "event")
  ETUDE_DETAIL_TEXT(name, "name")
  ETUDE_DETAIL_TEXT(metric_key_prefix, "metric_key_prefix")
#undef ETUDE_DETAIL_TEXT
  return std::nullopt;
}

/// A function of the program.
struct Function {
  etude_callback call;
  void* user;
};

/// A callback that calls a function of the program at one event.
template <class Event>
struct ProgramCallback {
  static constexpr bool allows_duplicates = true;
  using handles = events<Event>;
  /// The program may read the parameters at any time.
  bool reads_parameters() const { return true; }

  void on(const Event& e) {
    static const std::string name(short_type_name<Event>());
    const etude_event event{name.c_str(), trainer, &e, &number_of<Event>, &text_of<Event>};
    if (const auto result = function.call(&event, function.user))
      throw Error(fmt::format("the program's callback of {} returned {}", name, result));
  }

  etude_trainer& trainer;
  Function function;
};

struct Listener {
  std::string_view event;
  void (*add)(etude_trainer& trainer, Function function);
};

template <class Event>
void add_callback(etude_trainer& trainer, Function function) {
  trainer.trainer.add_callback(ProgramCallback<Event>{trainer, function});
}

/// All events but InitEnd, which has been raised before a trainer can be used.
template <class... Events>
constexpr auto listeners_of(events<InitEnd, Events...>) {
  return std::array{Listener{short_type_name<Events>(), &add_callback<Events>}...};
}
constexpr auto listeners = listeners_of(Vocabulary{});

/// "on_step_end" as "StepEnd"; any other name is unchanged.
std::string event_name(std::string_view name) {
  if (!name.starts_with("on_")) return std::string(name);
  std::string result;
  bool begins_word = true;
  for (const char letter : name.substr(3)) {
    if (letter != '_')
      result += begins_word ? static_cast<char>(std::toupper(static_cast<unsigned char>(letter))) : letter;
    begins_word = letter == '_';
  }
  return result;
}

void listen(etude_trainer& trainer, std::string_view given, Function function) {
  const auto name = event_name(given);
  const auto found = std::ranges::find(listeners, name, &Listener::event);
  if (found != listeners.end()) return found->add(trainer, function);
  if (name == "InitEnd")
    refuse(ETUDE_INVALID_ARGUMENT,
           "event is '{}': it has passed when a trainer exists; TrainBegin comes next", given);
  std::vector<std::string_view> names;
  for (const auto& listener : listeners) names.push_back(listener.event);
  refuse(ETUDE_INVALID_ARGUMENT, "event is '{}': must be one of docs/events.md, such as StepEnd{}", given,
         did_you_mean(name, names));
}

}  // namespace

}  // namespace etude::inline v0::c

using namespace etude::c;

extern "C" {

etude_status etude_trainer_on(etude_trainer* trainer, const char* event, etude_callback callback,
                              void* user) {
  return call(trainer, __func__, in_callbacks, [&](etude_trainer& it) {
    if (!callback) refuse(ETUDE_INVALID_ARGUMENT, "callback is null");
    listen(it, required_text(event, "event"), {callback, user});
  });
}

const char* etude_event_name(const etude_event* event) { return event ? event->name : ""; }

etude_trainer* etude_event_trainer(const etude_event* event) { return event ? &event->trainer : nullptr; }

etude_status etude_event_number(const etude_event* event, const char* name, double* value) {
  return guarded([&] {
    const auto& it = required(event, "event");
    const auto text = required_text(name, "name");
    auto& result = required(value, "value");
    const auto own = it.number(it.event, text);
    result = own ? *own : it.trainer.number(text);
  });
}

etude_status etude_event_text(const etude_event* event, const char* name, const char** text) {
  return guarded([&] {
    const auto& it = required(event, "event");
    const auto wanted = required_text(name, "name");
    auto& result = required(text, "text");
    auto found = it.text(it.event, wanted);
    if (!found) refuse(ETUDE_INVALID_ARGUMENT, "{} has no text '{}'", it.name, wanted);
    it.last_text = *std::move(found);
    result = it.last_text.c_str();
  });
}

}  // extern "C"
