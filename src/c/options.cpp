#include "options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "etude/reflect/command_line.hpp"
#include "etude/reflect/json.hpp"
#include "etude/reflect/nearest.hpp"
#include "guard.hpp"
#include "tensors.hpp"

namespace etude::inline v0::c {

namespace {

std::vector<std::string_view> option_names() {
  std::vector<std::string_view> names;
  for (const auto name : field_names<TrainingArguments>()) names.push_back(name);
  for (const auto name : field_names<ModelOptions>()) names.push_back(name);
  return names;
}

std::string no_option(std::string_view name) {
  for (const auto& [there, here] : names_elsewhere(TrainingArguments()))
    if (name == there)
      return fmt::format("there is no option '{}'{}", name, did_you_mean(here, std::vector{here}));
  return fmt::format("there is no option '{}'{}", name, did_you_mean(name, option_names()));
}

}  // namespace

void Options::set(const std::string& name, const std::string& text) {
  auto flags = etude::detail::flag_struct(args).flags;
  auto of_model = etude::detail::flag_struct(model).flags;
  flags.insert(flags.end(), std::make_move_iterator(of_model.begin()),
               std::make_move_iterator(of_model.end()));
  const auto flag = std::ranges::find(flags, name, &etude::detail::Flag::name);
  if (flag == flags.end()) throw ArgumentError(no_option(name));
  std::string more;
  try {
    if (flag->read({text})) return;
    more = did_you_mean(text, flag->choices);
  } catch (const ArgumentError& error) {
    more = fmt::format(" ({})", error.what());
  }
  throw ArgumentError(fmt::format("{} is '{}': must be {}{}", name, text, flag->allowed, more));
}

void Options::set_json(const std::string& text) {
  const auto json = parse_json(text);
  if (!json.is_object())
    throw ArgumentError("the options aren't a JSON object: must be like {\"learning_rate\": 1e-3}");
  auto args_then = args;
  auto model_then = model;
  etude::detail::JsonReader reader;
  reader.read(json, args_then, "");
  reader.read(json, model_then, "");
  const auto names = option_names();
  for (const auto& [name, value] : json.items())
    if (std::ranges::find(names, name) == names.end()) reader.faults.push_back(no_option(name));
  // Each struct's options are unknown to the other, so only keys inside an option are faults.
  for (const auto& key : reader.unknown_keys)
    if (!json.contains(key)) reader.faults.push_back(fmt::format("there is no option '{}'", key));
  reader.throw_faults();
  args = std::move(args_then);
  model = std::move(model_then);
}

}  // namespace etude::inline v0::c

using etude::c::guarded;
using etude::c::required;
using etude::c::required_text;

extern "C" {

etude_status etude_options_create(etude_options** options) {
  return guarded([&] {
    auto& result = required(options, "options");
    result = nullptr;
    result = new etude_options;
  });
}

void etude_options_destroy(etude_options* options) { delete options; }

etude_status etude_options_set(etude_options* options, const char* name, const char* value) {
  return guarded([&] {
    auto& content = required(options, "options").content;
    content.set(required_text(name, "name"), required_text(value, "value"));
  });
}

etude_status etude_options_set_json(etude_options* options, const char* json) {
  return guarded([&] { required(options, "options").content.set_json(required_text(json, "json")); });
}

etude_status etude_options_set_train_dataset(etude_options* options, const etude_dataset* dataset) {
  return guarded([&] {
    auto& content = required(options, "options").content;
    content.train_dataset = required(dataset, "dataset").tensors;
  });
}

etude_status etude_options_add_eval_dataset(etude_options* options, const char* name,
                                            const etude_dataset* dataset) {
  return guarded([&] {
    auto& all = required(options, "options").content.eval_datasets;
    const auto given = name ? required_text(name, "name") : std::string();
    const auto& tensors = required(dataset, "dataset").tensors;
    for (const auto& [other, there] : all)
      if (other == given || other.empty() || given.empty())
        etude::c::refuse(ETUDE_INVALID_ARGUMENT,
                         "an eval dataset {} was added after {}: with several, each must have its own name",
                         given.empty() ? "without a name" : "'" + given + "'",
                         other.empty() ? "one without a name" : "'" + other + "'");
    all.emplace_back(given, tensors);
  });
}

etude_status etude_options_add_state(etude_options* options, const etude_tensor* state) {
  return guarded([&] {
    auto& all = required(options, "options").content.states;
    const auto name = required_text(required(state, "state").name, "state's name");
    for (const auto& [other, there] : all)
      if (other == name)
        etude::c::refuse(ETUDE_INVALID_ARGUMENT,
                         "a state '{}' was already added: each must have its own name", name);
    etude::c::writable_view_of(*state, "the state '" + name + "'");
    all.emplace_back(name, std::make_shared<const etude::c::ProgramTensors>(state, 1));
  });
}

etude_status etude_options_set_optimizer(etude_options* options, etude_optimizer step, void* user) {
  return guarded([&] { required(options, "options").content.optimizer = {step, user}; });
}

}  // extern "C"
