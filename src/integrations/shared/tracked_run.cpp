#include "etude/integrations/shared/tracked_run.hpp"

#include <fmt/format.h>

#include "etude/any_trainer.hpp"
#include "etude/reflect/json.hpp"

namespace etude::inline v0::detail {

nlohmann::ordered_json run_parameters(const TrainingArguments& args, const nlohmann::ordered_json& config,
                                      const nlohmann::json& trial_params) {
  auto parameters = nlohmann::ordered_json::object();
  // Hyperparameters come first, so a limit on the number of parameters doesn't drop them.
  if (trial_params.is_object()) parameters = trial_params;
  if (config.is_object()) {
    for (const auto& [name, value] : config.items())
      if (!parameters.contains(name)) parameters[name] = value;
  } else if (!config.is_null()) {
    parameters["config"] = config;
  }
  const auto arguments = to_json_value(args);
  for (const auto& [name, value] : arguments.items()) parameters[name] = value;
  return parameters;
}

TrainingArguments tracked_arguments(const Context& e) {
  auto args = e.args;
  args.output_dir = normalized(e.trainer.options().args).output_dir;
  return args;
}

nlohmann::ordered_json run_parameters(const Context& e, const nlohmann::ordered_json& config) {
  return run_parameters(tracked_arguments(e), config, e.state.trial_params);
}

std::vector<std::pair<std::string, nlohmann::ordered_json>> flattened(const nlohmann::ordered_json& values,
                                                                      std::string_view separator) {
  std::vector<std::pair<std::string, nlohmann::ordered_json>> flat;
  for (const auto& [name, value] : values.items()) {
    if (value.is_object() && !value.empty()) {
      for (auto& [rest, inner] : flattened(value, separator))
        flat.emplace_back(name + std::string(separator) + rest, std::move(inner));
    } else {
      flat.emplace_back(name, value);
    }
  }
  return flat;
}

std::string parameter_text(const nlohmann::ordered_json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_null()) return "None";
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  return value.dump();
}

std::string run_name_of(const TrainingArguments& args) { return args.run_name.value_or(args.output_dir); }

std::string tracked_name(std::string_view name) {
  for (const std::string_view use : {"eval_", "test_"})
    if (name.starts_with(use)) return fmt::format("{}/{}", use.substr(0, 4), name.substr(use.size()));
  return fmt::format("train/{}", name);
}

std::optional<TrackedSearch> search_of(const Context& e) {
  if (!e.state.is_hyper_param_search || !e.state.trial_name) return std::nullopt;
  TrackedSearch search{std::filesystem::path(e.args.output_dir) / "", "", false};
  search.folder = search.folder.lexically_normal().parent_path();
  search.has_folders = search.folder.filename() == *e.state.trial_name;
  if (search.has_folders) search.folder = search.folder.parent_path();
  const auto& run_name = e.args.run_name;
  const bool is_named =
      run_name && *run_name != e.args.output_dir && *run_name != tracked_arguments(e).output_dir;
  search.name = is_named ? *run_name : search.folder.filename().string();
  return search;
}

}  // namespace etude::inline v0::detail
