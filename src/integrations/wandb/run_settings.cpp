#include "etude/integrations/wandb/run_settings.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <system_error>

#include "etude/base/error.hpp"
#include "etude/base/lower_case.hpp"
#include "etude/integrations/shared/environment.hpp"
#include "etude/integrations/shared/ini.hpp"
#include "etude/integrations/shared/text.hpp"
#include "etude/integrations/shared/tracked_run.hpp"
#include "etude/integrations/wandb.hpp"

namespace etude::inline v0::detail {
namespace wandb_options {

namespace {

using Words = std::initializer_list<std::string_view>;

/// The option or variable; throws unless it is among `allowed`.
std::string word(const std::string& option, std::string_view name, const char* variable, Words allowed) {
  const auto value = lower_case(option_or_environment(option, variable));
  if (!value.empty() && std::ranges::find(allowed, value) == allowed.end())
    throw ArgumentError(fmt::format("{} is '{}': must be one of {}", option.empty() ? variable : name, value,
                                    fmt::join(allowed.begin(), allowed.end(), ", ")));
  return value;
}

/// Like `word`, but only warns about a wrong variable, as Hugging Face's callback does.
std::string word_or_false(const std::string& option, std::string_view name, const char* variable,
                          Words allowed, std::vector<std::string>& warnings) {
  const auto value = lower_case(environment(variable).value_or(""));
  if (!option.empty() || value.empty() || std::ranges::find(allowed, value) != allowed.end())
    return word(option, name, variable, allowed);
  warnings.push_back(fmt::format("{} is '{}', which is taken as false: must be one of {}", variable, value,
                                 fmt::join(allowed.begin(), allowed.end(), ", ")));
  return "false";
}

void refuse_letters(std::string_view name, const std::string& value, std::string_view letters,
                    std::size_t longest) {
  if (value.find_first_of(letters) != value.npos || value.size() > longest)
    throw ArgumentError(fmt::format("{} is '{}': must have at most {} characters, and none of {}", name,
                                    value, longest, letters));
}

/// The folder for runs and settings in `root`.
std::filesystem::path folder_in(const std::filesystem::path& root) {
  std::error_code error;
  const auto whole = std::filesystem::absolute(root, error);
  const bool is_hidden = std::filesystem::exists(whole / ".wandb", error);
  return (whole / (is_hidden ? ".wandb" : "wandb")).lexically_normal();
}

/// A setting written by `wandb init`, `wandb offline` and similar commands, for the working directory or the
/// user; empty if not set.
std::string setting(const std::string& name) {
  const auto config = environment("WANDB_CONFIG_DIR").value_or("~/.config/wandb");
  for (const auto& path : {folder_in(".") / "settings", with_home(config) / "settings"}) {
    auto sections = read_ini(path);
    if (auto& value = sections["default"][name]; !value.empty()) return value;
  }
  return "";
}

std::string mode(const WandbCallback& options) {
  const bool is_said = !options.mode.empty() || environment("WANDB_MODE");
  return word(is_said ? options.mode : setting("mode"), is_said ? "mode" : "mode of wandb's settings",
              "WANDB_MODE", {"online", "offline", "disabled", "shared", "dryrun"});
}

}  // namespace

}  // namespace wandb_options

bool wandb_is_enabled(const WandbCallback& options) {
  return wandb_options::mode(options) != "disabled" && !environment_says("WANDB_DISABLED");
}

WandbSettings wandb_settings(const WandbCallback& options, const Context& e) {
  using namespace wandb_options;
  WandbSettings settings;
  const auto chosen = mode(options);
  if (environment_says("WANDB_DISABLED"))
    settings.warnings.emplace_back(
        "WANDB_DISABLED is an old way to switch Weights & Biases off: leave wandb out of report_to, or set "
        "WANDB_MODE=disabled");
  settings.enabled = wandb_is_enabled(options);
  if (!settings.enabled) return settings;
  settings.is_online = chosen != "offline" && chosen != "dryrun";
  settings.directory = folder_in(with_home(option_or_environment(options.dir, "WANDB_DIR", ".")));

  auto& info = settings.info;
  info.sweep_id = environment("WANDB_SWEEP_ID").value_or("");
  const bool is_swept = !info.sweep_id.empty();
  if (is_swept)
    settings.warnings.push_back(
        fmt::format("WandbCallback: this run belongs to sweep {}. Pass its parameters on the command line; "
                    "the agent sees "
                    "the run only after its upload. id, project and entity are the sweep's",
                    info.sweep_id));
  // a sweep's variables win
  const auto pick = [&](const std::string& option, const char* variable) {
    return option_or_environment(is_swept ? "" : option, variable, is_swept ? option : "");
  };
  info.id = pick(options.id, "WANDB_RUN_ID");
  refuse_letters(options.id.empty() ? "WANDB_RUN_ID" : "id", info.id, ":;,#?/\\' ", 64);
  info.project = pick(options.project, "WANDB_PROJECT");
  if (info.project.empty()) info.project = setting("project");
  if (info.project.empty()) info.project = "huggingface";
  refuse_letters("project", info.project, "/\\#?%:", 128);
  info.entity = pick(options.entity, "WANDB_ENTITY");
  if (info.entity.empty()) info.entity = setting("entity");
  info.group = option_or_environment(options.group, "WANDB_RUN_GROUP");
  info.job_type = option_or_environment(options.job_type, "WANDB_JOB_TYPE");
  info.notes = option_or_environment(options.notes, "WANDB_NOTES");
  info.tags = options.tags.empty() ? comma_separated(environment("WANDB_TAGS").value_or("")) : options.tags;
  info.name = option_or_environment(e.args.run_name.value_or(""), "WANDB_NAME");
  if (const auto search = search_of(e)) {
    info.name = *e.state.trial_name;
    if (options.group.empty() && (search->name == e.args.run_name || info.group.empty()))
      info.group = search->name;
    // The variable is the same for all trials.
    if (options.id.empty() && !is_swept) info.id.clear();
  }
  if (!options.name.empty()) info.name = options.name;
  info.config = run_parameters(e, options.config);

  settings.resume =
      word(options.resume, "resume", "WANDB_RESUME", {"allow", "must", "never", "auto", "true", "false"});
  const auto log_model = word_or_false(
      options.log_model, "log_model", "WANDB_LOG_MODEL",
      {"end", "checkpoint", "false", "true", "1", "yes", "on", "no", "0", "off"}, settings.warnings);
  settings.log_checkpoints = log_model == "checkpoint";
  settings.log_end = settings.log_checkpoints || log_model == "end" || means_yes(log_model);
  const auto watch = word_or_false(options.watch, "watch", "WANDB_WATCH",
                                   {"gradients", "parameters", "all", "false"}, settings.warnings);
  settings.watch_gradients = watch == "gradients" || watch == "all";
  settings.watch_parameters = watch == "parameters" || watch == "all";
  return settings;
}

}  // namespace etude::inline v0::detail
