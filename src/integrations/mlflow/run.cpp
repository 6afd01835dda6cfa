#include "etude/integrations/mlflow/run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <future>
#include <system_error>
#include <thread>
#include <variant>

#include "etude/base/error.hpp"
#include "etude/base/message.hpp"
#include "etude/integrations/mlflow/source.hpp"
#include "etude/integrations/shared/environment.hpp"
#include "etude/integrations/shared/temporary_file.hpp"
#include "etude/integrations/shared/text.hpp"
#include "etude/integrations/shared/tracked_run.hpp"
#include "etude/io/file_system.hpp"
#include "etude/io/own_threads.hpp"
#include "etude/metrics/sample_file.hpp"
#include "etude/reflect/json.hpp"

namespace etude::inline v0::detail {
MLflowRun::MLflowRun(MLflowRunOptions options, const TrainingArguments& args)
    : options_(std::move(options)),
      args_(args),
      begun_(unix_milliseconds()),
      outbox_(
          {.directory = options_.spool_directory, .tracker = options_.tracker, .target = options_.address},
          [options = options_, report = report_](const Spool& spool, const std::atomic<bool>& cancelled) {
            return std::make_unique<MLflowSender>(
                MLflowClient(options.address, options.http, options.renew_token, &cancelled), spool, report);
          }) {
  if (environment_says("MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING"))
    message(args_, LogLevel::warning,
            "{}: MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING is set, and the machine's load isn't measured or sent",
            options_.callback);
  auto tags = nlohmann::ordered_json::array();
  for (const auto& [key, value] : source_tags()) tags.push_back(mlflow::tag(key, value));
  if (!options_.parent_run_id.empty())
    tags.push_back(mlflow::tag("mlflow.parentRunId", options_.parent_run_id));
  nlohmann::ordered_json run{{"do", "run"},
                             {"key", options_.key},
                             {"attach_to", options_.attach_to},
                             {"experiment_id", options_.experiment_id},
                             {"experiment_name", options_.experiment_name},
                             {"name", beginning(options_.name, longest_mlflow_name)},
                             {"user", user_name()},
                             {"begun", begun_},
                             {"ends", options_.ends},
                             {"tags", tags}};
  if (!options_.search.is_null()) run["search"] = options_.search;
  put(run);
  auto given = nlohmann::ordered_json::array();
  for (const auto& [key, value] : options_.tags) given.push_back(mlflow::tag(mlflow_name(key), value));
  put_chunks("tags", given);
}

MLflowRun::~MLflowRun() {
  try {
    if (!has_ended_)
      end("FINISHED");
    else if (has_news_)
      send_rest();
    if (outbox_.counts() != reported_) report_counts();
  } catch (const std::exception&) {
    // out of memory
  }
}

void MLflowRun::put(const nlohmann::ordered_json& entry) {
  has_news_ = true;
  outbox_.put(entry);
}

void MLflowRun::log_metrics(const Metrics& metrics, std::int64_t step) {
  // The server merges equal values that have the same step and time.
  const auto time = last_time_ = std::max(unix_milliseconds(), last_time_ + 1);
  auto values = nlohmann::ordered_json::array();
  const auto put_values = [&] {
    put({{"do", "metrics"}, {"time", time}, {"step", step}, {"metrics", std::move(values)}});
    values = nlohmann::ordered_json::array();
  };
  for (const auto& [name, value] : metrics) {
    values.push_back({metric_names_[name], to_json_value(value)});
    if (values.size() == mlflow::metrics_at_once) put_values();
  }
  if (!values.empty()) put_values();
}

void MLflowRun::put_chunks(const char* what, const nlohmann::ordered_json& values) {
  constexpr std::size_t at_once = 100;
  auto chunk = nlohmann::ordered_json::array();
  std::size_t bytes = 0;
  const auto put_chunk = [&] {
    if (!chunk.empty()) put({{"do", what}, {what, std::move(chunk)}});
    chunk = nlohmann::ordered_json::array();
    bytes = 0;
  };
  for (const auto& value : values) {
    const auto size = json_line(value).size();
    if (chunk.size() == at_once || bytes + size > mlflow::bytes_at_once) put_chunk();
    chunk.push_back(value);
    bytes += size;
  }
  put_chunk();
}

void MLflowRun::log_params(const std::vector<std::pair<std::string, nlohmann::ordered_json>>& params,
                           std::int64_t at_most) {
  constexpr std::size_t longest_value = 6000;
  auto values = nlohmann::ordered_json::array();
  std::int64_t left = at_most;
  for (const auto& [name, value] : params) {
    if (at_most >= 0 && left-- == 0) {
      message(args_, LogLevel::info, "{}: {} of {} parameters are logged, because of max_log_params",
              options_.callback, at_most, params.size());
      break;
    }
    auto text = parameter_text(value);
    if (const auto length = characters(text); length > longest_value)
      message(args_, LogLevel::warning,
              "{}: the parameter {} is left out: it has {} characters, and {} are allowed", options_.callback,
              name, length, longest_value);
    else
      values.push_back(mlflow::tag(param_names_[name], text));
  }
  put_chunks("params", values);
}

void MLflowRun::log_checkpoint(const std::filesystem::path& checkpoint) {
  const auto whole = std::filesystem::path(checkpoint / "").lexically_normal().parent_path();
  std::error_code error;
  std::filesystem::recursive_directory_iterator file(whole, error), end;
  for (; !error && file != end; file.increment(error)) {
    if (!file->is_regular_file()) continue;
    const auto path = whole.filename() / file->path().lexically_relative(whole);
    has_news_ = true;
    outbox_.put_file({{"do", "file"}, {"path", path.generic_string()}}, file->path());
  }
  if (error)
    message(args_, LogLevel::warning, "{}: {} can't be read: {}", options_.callback, whole.string(),
            error.message());
}

void MLflowRun::log_samples(const std::vector<Sample>& samples, std::int64_t step) {
  for (const auto& sample : samples) try {
      put_sample(sample, step);
    } catch (const Error& error) {
      report_->note(fmt::format("the sample {} is left out: {}", sample.name, error.what()));
    }
}

void MLflowRun::put_sample(const Sample& sample, std::int64_t step) {
  const auto& name = sample_names_[sample.name];
  const auto put_file = [&](const std::string& path, std::string_view bytes) {
    const TemporaryFile file(outbox_.spool().folder(), bytes);
    has_news_ = true;
    outbox_.put_file({{"do", "file"}, {"path", path}}, file.path());
  };
  const auto file = sample_file(sample);
  std::string stem = fmt::format("texts/{}/step-{}", name, step);
  if (std::holds_alternative<ImageSample>(sample.content)) {
    auto key = name;
    std::ranges::replace(key, '/', '~');
    std::ranges::replace(key, ':', '_');
    const auto path =
        fmt::format("images/{}+step+{}+timestamp+{}+{}", key, step, unix_milliseconds(), random_name());
    put_file(path + ".png", file);
    put_file(path + "+compressed.png", file);  // the thumbnail of the run's page
    if (!std::exchange(has_images_, true))
      put_chunks("tags", nlohmann::ordered_json::array({mlflow::tag("mlflow.loggedImages", "True")}));
  } else {
    if (std::holds_alternative<AudioSample>(sample.content))
      stem = fmt::format("audio/{}/step-{}", name, step);
    put_file(fmt::format("{}{}", stem, sample_extension(sample)), file);
  }
  if (!sample.caption.empty()) put_file(stem + ".caption.txt", sample.caption);
}

void MLflowRun::end(std::string_view status) {
  if (options_.ends)
    put({{"do", "end"}, {"status", status}, {"time", unix_milliseconds()}, {"begun", begun_}});
  has_ended_ = true;
  send_rest();
  report_counts();
}

void MLflowRun::send_rest() {
  has_news_ = false;
  outbox_.send_rest(
      std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(options_.drain_seconds)));
  report_faults();
}

void MLflowRun::report_faults() {
  auto faults = outbox_.take_faults();
  std::ranges::move(report_->take_notes(), std::back_inserter(faults));
  for (const auto& fault : faults) message(args_, LogLevel::warning, "{}: {}", options_.callback, fault);
}

void MLflowRun::report_counts() {
  const auto counts = reported_ = outbox_.counts();
  const auto page = report_->page();
  const auto where = page.empty() ? options_.address : options_.address + page;
  if (counts.waiting == 0 && counts.dropped == 0)
    message(args_, LogLevel::info, "{}: {} entries are at {}", options_.callback, counts.sent, where);
  else
    message(
        args_, LogLevel::warning,
        "{}: {} entries are at {}, {} were dropped, and {} wait in {} for the next run that finds the server",
        options_.callback, counts.sent, where, counts.dropped, counts.waiting,
        outbox_.spool().folder().string());
}

std::vector<std::pair<std::string, nlohmann::ordered_json>> members(const nlohmann::ordered_json& values) {
  std::vector<std::pair<std::string, nlohmann::ordered_json>> list;
  for (const auto& [name, value] : values.items()) list.emplace_back(name, value);
  return list;
}

namespace mlflow {

namespace {

/// The search's id, stored in its folder: a folder of the same name, created later or on another machine, is
/// a different search.
std::string search_id(const std::filesystem::path& folder) {
  const auto file = folder / ".etude-search",
             partial = folder / fmt::format(".etude-search.{}", random_name());
  const auto read = [&] {
    std::string id;
    std::ifstream(file) >> id;
    return id;
  };
  if (auto id = read(); !id.empty()) return id;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  std::ofstream(partial) << random_name();
  std::filesystem::create_hard_link(partial, file, error);  // fails if another process was faster
  std::filesystem::remove(partial, error);
  auto id = read();
  return id.empty() ? url_escaped(folder.string()) : id;
}

void check_ids(const MLflowRunOptions& options) {
  auto http = options.http;
  http.timeout = std::chrono::seconds(1);
  try {
    MLflowClient client(options.address, std::move(http), options.renew_token);
    if (options.attach_to.empty()) {
      const auto experiment = client.experiment(options.experiment_id);
      if (!experiment || experiment->is_deleted)
        throw ArgumentError(fmt::format("experiment_id (MLFLOW_EXPERIMENT_ID) is '{}': {}",
                                        options.experiment_id,
                                        experiment ? "it was deleted" : "it doesn't exist"));
      return;
    }
    const auto run = client.run(options.attach_to);
    if (!run || run->is_deleted)
      throw ArgumentError(fmt::format("run_id (MLFLOW_RUN_ID) is '{}': must be a run of {}, where {}",
                                      options.attach_to, options.address,
                                      run ? "it was deleted" : "it doesn't exist"));
    if (!options.experiment_id.empty() && options.experiment_id != run->experiment_id)
      throw ArgumentError(fmt::format(
          "experiment_id (MLFLOW_EXPERIMENT_ID) is '{}': must be {}, which the run '{}' belongs to, or unset",
          options.experiment_id, run->experiment_id, options.attach_to));
    if (options.experiment_id.empty() && !options.experiment_name.empty()) {
      const auto experiment = client.experiment(run->experiment_id);
      if (experiment && experiment->name != options.experiment_name)
        throw ArgumentError(
            fmt::format("experiment_name (MLFLOW_EXPERIMENT_NAME) is '{}': must be '{}', which the run '{}' "
                        "belongs to, or unset",
                        options.experiment_name, experiment->name, options.attach_to));
    }
  } catch (const Unreachable&) {
    // the sender will report it
  } catch (const Refused&) {
  }
}

}  // namespace

}  // namespace mlflow

void nest_trial(MLflowRunOptions& options, const Context& e, const std::string& run_id) {
  const auto search = search_of(e);
  if (!search) return;
  options.name = *e.state.trial_name;
  if (run_id.empty()) {
    // The variable is the same for all trials.
    const auto outer = std::exchange(options.attach_to, "");
    if (options.parent_run_id.empty()) options.parent_run_id = outer;
  }
  if (options.attach_to.empty() && options.parent_run_id.empty())
    options.search = {{"id", mlflow::search_id(search->folder)},
                      {"name", beginning(search->name, longest_mlflow_name)},
                      {"folder", search->folder.string()}};
}

void identify_mlflow_run(MLflowRunOptions& options, const std::string& run_key,
                         const std::string& attached_to, bool resumes) {
  if (!options.attach_to.empty() || !options.experiment_id.empty()) {
    // Runs in a detached thread, since libcurl can't be interrupted while it waits for a name server.
    std::packaged_task<void()> check([options] {
      const OwnWork asking(OwnWork::load);
      mlflow::check_ids(options);
    });
    auto checked = check.get_future();
    std::thread(std::move(check)).detach();
    if (checked.wait_for(std::chrono::seconds(2)) == std::future_status::ready) checked.get();
  }
  options.key = resumes && !run_key.empty() ? run_key : random_name();
  if (resumes && options.attach_to.empty()) options.attach_to = attached_to;
}

}  // namespace etude::inline v0::detail
