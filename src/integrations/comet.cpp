#include "etude/integrations/comet.hpp"

#include <fmt/format.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <span>
#include <sstream>
#include <system_error>
#include <utility>

#include "etude/base/error.hpp"
#include "etude/base/interrupt.hpp"
#include "etude/base/message.hpp"
#include "etude/callbacks/log_file.hpp"
#include "etude/integrations/comet/archive.hpp"
#include "etude/integrations/comet/experiment_settings.hpp"
#include "etude/integrations/comet/messages.hpp"
#include "etude/integrations/comet/online.hpp"
#include "etude/integrations/shared/environment.hpp"
#include "etude/integrations/shared/temporary_file.hpp"
#include "etude/integrations/shared/tracked_run.hpp"
#include "etude/metrics/sample_file.hpp"
#include "etude/model/model.hpp"
#include "etude/reflect/json.hpp"

namespace etude::inline v0 {
namespace detail::comet {

/// An open experiment.
struct Run {
  explicit Run(const TrainingArguments& args_) : args(args_) {}
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  ~Run() {
    if (!journal) return;
    try {
      journal->finish();
      report();
    } catch (const std::exception&) {
      // out of memory
    }
  }

  void report(const std::vector<Notice>& notices) const {
    for (const auto& notice : notices) message(args, notice.level, "{}", notice.text);
  }
  void report() const { report(journal->take_notices()); }

  /// Calls `action` with the journal. An error is a warning, since it must not stop the training.
  template <class Action>
  void use(const Action& action) const {
    try {
      action(*journal);
    } catch (const std::exception& error) {
      report({{LogLevel::warning, fmt::format("Comet: {}", error.what())}});
    }
  }

  TrainingArguments args;
  std::unique_ptr<Journal> journal;  ///< Null if Comet is switched off.
  std::string key;                   ///< The experiment's; empty if Comet is switched off.
  std::filesystem::path own_files[2];
  bool is_online = false, log_assets = false, is_training = false, has_trained = false, has_failed = false;
  std::optional<std::int64_t> step;
  std::optional<double> epoch;
};

namespace {

std::string text_of(const Model& model) {
  if (const auto module = model.module()) {
    std::ostringstream text;
    text << *module;
    return text.str();
  }
  return model.as<torch::jit::Module>().dump_to_str(true, false, false);
}

/// All files below `folder`, except those below `without` and hidden ones, which are locks and unfinished
/// files.
std::vector<std::filesystem::path> files_in(const std::filesystem::path& folder,
                                            std::span<const std::filesystem::path> without) {
  namespace fs = std::filesystem;
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, fs::directory_options::skip_permission_denied, error), end;
       !error && at != end; at.increment(error)) {
    std::error_code unreadable;
    const bool is_left_out = at->path().filename().string().starts_with('.') ||
                             std::find(without.begin(), without.end(), at->path()) != without.end();
    if (at->is_directory(unreadable)) {
      if (is_left_out) at.disable_recursion_pending();
    } else if (!is_left_out && at->is_regular_file(unreadable)) {
      files.push_back(at->path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::filesystem::path whole(const std::filesystem::path& path) {
  auto result = std::filesystem::absolute(path).lexically_normal();
  return result.has_filename() ? result : result.parent_path();
}

void log_files(Run& run, const std::filesystem::path& output_dir, std::int64_t step) {
  const auto folder = whole(output_dir);
  for (const auto& file : files_in(folder, run.own_files)) {
    const auto name = folder.filename() / file.lexically_relative(folder);
    std::error_code error;
    const auto real = std::filesystem::canonical(file, error);  // links don't work elsewhere
    run.use([&](Journal& journal) {
      journal.put_file(asset(name.string(), "", step, unix_milliseconds()), error ? file : real);
    });
  }
}

}  // namespace

}  // namespace detail::comet

bool CometCallback::is_available() { return detail::comet::is_configured(); }

void CometCallback::open(const Context& e) {
  namespace comet = detail::comet;
  const auto settings = comet::settings_of(*this, detail::tracked_arguments(e), e.state);
  const auto opened = std::make_shared<comet::Run>(e.args);
  opened->report(settings.notices);
  if (settings.disabled) {
    open_run = opened;
    return;
  }
  const auto time = detail::unix_milliseconds();
  const auto begun = settings.key_is_new || state.start_time == 0 ? time : state.start_time;
  if (settings.online) {
    opened->journal = std::make_unique<comet::Online>(settings, begun);
  } else {
    opened->report(comet::Archive::rescue(settings.offline_directory));
    opened->journal = std::make_unique<comet::Archive>(settings, begun);
  }
  opened->is_online = settings.online;
  opened->log_assets = settings.log_assets;
  opened->own_files[0] = comet::whole(settings.offline_directory);
  opened->own_files[1] = comet::whole(settings.spool_directory);
  open_run = opened;
  open_run->key = state.run_key = settings.key;
  state.start_time = begun;

  std::vector<comet::Message> messages{comet::other("Created from", "etude")};
  if (settings.log_program) messages.push_back(comet::file_name());
  if (settings.log_host) messages.push_back(comet::system_details());
  if (!settings.name.empty()) messages.push_back(comet::other("Name", settings.name));
  if (!settings.online) messages.push_back(comet::other("offline_experiment", true));
  messages.push_back(comet::graph(comet::text_of(e.model)));
  nlohmann::ordered_json values{{"args", to_json_value(detail::tracked_arguments(e))}};
  if (!config.is_null()) values["config"] = config;
  if (!e.state.trial_params.is_null()) values["trial"] = e.state.trial_params;
  if (const auto search = detail::search_of(e)) messages.push_back(comet::other("Search", search->name));
  for (auto& message : comet::parameters(values, time)) messages.push_back(std::move(message));
  open_run->use([&](auto& journal) { journal.put(std::move(messages)); });
}

void CometCallback::on(const TrainBegin& e) {
  if (!e.state.is_world_process_zero) return;
  const bool starts_from_scratch = detail::starts_from_scratch(e.state);
  // A resumed training continues its own experiment, not one opened by an earlier evaluation.
  const bool is_another = !starts_from_scratch && open_run && open_run->key != state.run_key;
  if (open_run && (open_run->has_trained || open_run->is_training || is_another)) open_run.reset();
  if (!open_run) {
    if (starts_from_scratch) {
      state.run_key.clear();
      state.start_time = 0;
    }
    open(e);
  }
  open_run->is_training = true;
}

void CometCallback::log(const Context& e, const Metrics& metrics) {
  namespace comet = detail::comet;
  if (!e.state.is_world_process_zero) return;
  if (!open_run) open(e);
  if (!open_run->journal) return;
  const auto time = detail::unix_milliseconds();
  const auto step = e.state.global_step;
  std::vector<comet::Message> messages;
  if (std::exchange(open_run->step, step) != step)
    messages.push_back(comet::parameter("curr_step", step, step, "auto-logged", time));
  if (std::exchange(open_run->epoch, e.state.epoch) != e.state.epoch)
    messages.push_back(comet::parameter("curr_epoch", e.state.epoch, step, "auto-logged", time));
  for (const auto& [name, value] : metrics)
    messages.push_back(comet::metric(detail::tracked_name(name), value, step, e.state.epoch, time));
  open_run->use([&](auto& journal) { journal.put(std::move(messages)); });
  open_run->report();
}

void CometCallback::on(const LogSamples& e) {
  namespace comet = detail::comet;
  if (!e.state.is_world_process_zero) return;
  if (!open_run) open(e);
  if (!open_run->journal) return;
  for (const auto& sample : e.samples) try {
      const detail::TemporaryFile file(open_run->own_files[open_run->is_online ? 1 : 0],
                                       detail::sample_file(sample));
      open_run->use([&](comet::Journal& journal) {
        journal.put_file(comet::asset(sample, e.state.global_step, detail::unix_milliseconds()), file.path());
      });
    } catch (const Error& error) {
      open_run->report({{LogLevel::warning,
                         fmt::format("Comet: the sample {} is left out: {}", sample.name, error.what())}});
    }
  open_run->report();
}

void CometCallback::on(const Log& e) { log(e, e.logs); }
void CometCallback::on(const Predict& e) { log(e, e.metrics); }

void CometCallback::on(const TrainError& e) {
  if (!open_run || !open_run->is_training) return;
  open_run->has_failed = true;
  if (open_run->journal) open_run->use([&](auto& journal) { journal.fail(std::string(e.what)); });
}

void CometCallback::on(const TrainEnd& e) {
  if (!open_run || !std::exchange(open_run->is_training, false)) return;
  open_run->has_trained = true;
  if (open_run->journal && open_run->log_assets && !open_run->has_failed)
    detail::comet::log_files(*open_run, e.args.output_dir, e.state.global_step);
  // After a signal the process ends right after this event, without destructors.
  if (open_run->has_failed || e.state.is_hyper_param_search || SignalGuard::came() != 0) {
    open_run.reset();
  } else if (open_run->journal) {
    open_run->use([](auto& journal) { journal.settle(); });
    open_run->report();
  }
}

}  // namespace etude::inline v0
