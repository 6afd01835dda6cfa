#include "etude/integrations/shared/parameters.hpp"

#include "etude/reflect/json.hpp"

namespace etude::inline v0::detail {

nlohmann::ordered_json run_parameters(const TrainingArguments& args, const nlohmann::ordered_json& config,
                                      const nlohmann::json& trial_params) {
  auto parameters = nlohmann::ordered_json::object();
  // Hyperparameters come first, so that a limit on the number of parameters doesn't drop them.
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

}  // namespace etude::inline v0::detail
