#include "etude/integrations/mlflow/sender.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <thread>
#include <utility>

#include "etude/integrations/shared/environment.hpp"
#include "etude/io/folder_lock.hpp"
#include "etude/reflect/read_text.hpp"

namespace etude::inline v0::detail {
namespace mlflow {

namespace {

/// Our tags: a run's key, the time when its latest sender began, and the key of a search's run.
constexpr const char *run_key = "etude.run", *begun = "etude.begun", *search = "etude.search";

constexpr const char* partly = "an entry counts as dropped if the server doesn't take all of it";

std::string text(const nlohmann::ordered_json& json, const char* name) {
  return json.value(name, std::string());
}

/// Whether a sender that began after the writer of `entry` uses the run.
bool is_outdated(const nlohmann::ordered_json& entry, const MLflowRunInfo& run) {
  const auto tag = run.tags.find(begun);
  const auto last = tag == run.tags.end() ? std::nullopt : read_number<std::int64_t>(tag->second);
  return last && *last > entry.at("begun").get<std::int64_t>();
}

}  // namespace

}  // namespace mlflow

void MLflowReport::note(std::string what) {
  const std::lock_guard lock(mutex_);
  constexpr std::size_t at_most = 100;
  if (notes_.size() < at_most) notes_.push_back(std::move(what));
}

std::vector<std::string> MLflowReport::take_notes() {
  const std::lock_guard lock(mutex_);
  return std::exchange(notes_, {});
}

void MLflowReport::set_run(std::string experiment_id, std::string run_id) {
  const std::lock_guard lock(mutex_);
  page_ = fmt::format("/#/experiments/{}/runs/{}", experiment_id, run_id);
}

std::string MLflowReport::page() const {
  const std::lock_guard lock(mutex_);
  return page_;
}

MLflowSender::MLflowSender(MLflowClient client, const Spool& spool, std::shared_ptr<MLflowReport> report)
    : client_(std::move(client)), spool_(spool), report_(std::move(report)) {
  const auto& memory = spool.memory();
  run_id_ = mlflow::text(memory, "run_id");
  experiment_id_ = mlflow::text(memory, "experiment_id");
}

// Leaves out the artifacts' address, which may contain credentials.
nlohmann::ordered_json MLflowSender::memory() const {
  return {{"run_id", run_id_}, {"experiment_id", experiment_id_}};
}

void MLflowSender::idle() { client_.keep_fresh(); }

std::size_t MLflowSender::send(std::span<const Json> entries) try {
  return send_next(entries);
} catch (const nlohmann::json::exception&) {
  throw Refused("invalid entry");
} catch (const ArgumentError& error) {
  throw Refused(error.what());
}

std::size_t MLflowSender::send_next(std::span<const Json> entries) {
  const auto& entry = entries.front();
  const auto what = mlflow::text(entry, "do");
  if (what == "run") {
    open(entry);
    return 1;
  }
  if (run_id_.empty()) throw Refused("their run is unknown", entries.size());
  if (what == "metrics") return log_metrics(entries);
  bool was_taken = true;
  if (what == "params")
    was_taken = log_params(entry);
  else if (what == "tags")
    was_taken = log_values("tags", entry.at("tags"));
  else if (what == "file")
    put_file(entry);
  else if (what == "end")
    end(entry);
  else
    throw Refused(fmt::format("unknown entry '{}'", what));
  if (!was_taken) throw Refused(mlflow::partly);
  return 1;
}

std::string MLflowSender::experiment_id(const Json& entry) {
  const auto id = mlflow::text(entry, "experiment_id"), name = mlflow::text(entry, "experiment_name");
  const auto experiment =
      name.empty() || !id.empty() ? client_.experiment(id) : client_.experiment_named(name);
  const auto which = id.empty() ? fmt::format("'{}'", name) : id;
  if (!experiment)
    throw Unreachable(fmt::format("experiment {} doesn't exist: everything waits until it does", which));
  if (experiment->is_deleted)
    throw Unreachable(
        fmt::format("the experiment {} was deleted: everything waits until it is restored", which));
  return experiment->id;
}

MLflowRunInfo MLflowSender::find_or_create(const Json& entry) {
  if (const auto id = mlflow::text(entry, "attach_to"); !id.empty()) {
    if (auto run = client_.run(id); run && !run->is_deleted) return *run;
    report_->note(fmt::format("run {} doesn't exist on the server: creating another", id));
  }
  const auto experiment = experiment_id(entry);
  const auto key = mlflow::text(entry, "key");
  if (auto run = client_.run_with_tag(experiment, mlflow::run_key, key)) return *run;
  auto tags = entry.at("tags");
  if (entry.contains("search"))
    tags.push_back(mlflow::tag("mlflow.parentRunId", run_of_search(experiment, entry)));
  tags.push_back(mlflow::tag(mlflow::run_key, key));
  is_new_ = true;
  return create(experiment, entry, entry.at("name"), std::move(tags));
}

MLflowRunInfo MLflowSender::create(const std::string& experiment, const Json& entry, const Json& name,
                                   Json tags) {
  return client_.create_run({{"experiment_id", experiment},
                             {"user_id", mlflow::text(entry, "user")},
                             {"run_name", name},
                             {"start_time", entry.at("begun")},
                             {"tags", std::move(tags)}});
}

std::string MLflowSender::run_of_search(const std::string& experiment, const Json& entry) {
  const auto& search = entry.at("search");
  const auto id = mlflow::text(search, "id");
  // Trials in several processes may begin at the same time, and the server would let each create a run for
  // the search.
  std::optional<LockFile> lock;
  for (int attempt = 0; attempt < 100; ++attempt) {
    lock.emplace(std::filesystem::path(mlflow::text(search, "folder")) / ".etude-search.lock");
    if (lock->state() != LockState::taken) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  if (lock->state() == LockState::taken)
    throw Unreachable("another process has been creating the search's run for 5 s");
  auto run = client_.run_with_tag(experiment, mlflow::search, id);
  if (!run) {
    auto tags = entry.at("tags");
    tags.push_back(mlflow::tag(mlflow::search, id));
    run = create(experiment, entry, search.at("name"), std::move(tags));
  }
  // Ended at once, since no process could end it if the search is killed; each trial updates the end time.
  client_.set_status(run->id, "FINISHED", unix_milliseconds());
  return run->id;
}

// Without a run everything logged to it would be lost, so nothing is given up here.
void MLflowSender::open(const Json& entry) try {
  const auto run = find_or_create(entry);
  run_id_ = run.id;
  experiment_id_ = run.experiment_id;
  artifact_uri_ = run.artifact_uri;
  report_->set_run(experiment_id_, run_id_);
  if (mlflow::is_outdated(entry, run)) return;
  const auto begun = std::to_string(entry.at("begun").get<std::int64_t>());
  log_values("tags", Json::array({mlflow::tag(mlflow::begun, begun)}));
  if (!is_new_ && entry.at("ends").get<bool>()) client_.set_status(run_id_, "RUNNING", std::nullopt);
} catch (const Refused& refused) {
  throw Unreachable(refused.what());
}

MLflowRunInfo MLflowSender::living_run() {
  auto run = client_.run(run_id_);
  if (!run || run->is_deleted)
    throw Refused(fmt::format("the run {} was deleted, and accepts nothing more", run_id_));
  return *run;
}

std::size_t MLflowSender::log_metrics(std::span<const Json> entries) {
  auto values = Json::array();
  std::size_t count = 0, bytes = 0, of_first = 0;
  for (const auto& entry : entries) {
    if (mlflow::text(entry, "do") != "metrics") break;
    const auto& metrics = entry.at("metrics");
    std::size_t size = 0;
    for (const auto& metric : metrics)
      size += metric.at(0).get_ref<const std::string&>().size() + 100;  // for the numbers and their names
    if (count > 0 &&
        (values.size() + metrics.size() > mlflow::metrics_at_once || bytes + size > mlflow::bytes_at_once))
      break;
    for (const auto& metric : metrics)
      values.push_back({{"key", metric.at(0)},
                        {"value", metric.at(1)},
                        {"timestamp", entry.at("time")},
                        {"step", entry.at("step")}});
    if (++count == 1) of_first = values.size();
    bytes += size;
  }
  try {
    client_.log_batch(run_id_, "metrics", values);
    return count;
  } catch (const Refused&) {
    living_run();
  }
  values.erase(values.begin() + static_cast<std::ptrdiff_t>(of_first), values.end());
  if (!log_one_by_one("metrics", values)) throw Refused(mlflow::partly);
  return 1;
}

bool MLflowSender::log_params(const Json& entry) {
  auto values = Json::array();
  const auto known = is_new_ ? decltype(MLflowRunInfo::params)() : living_run().params;
  std::vector<std::string> changed;
  for (const auto& param : entry.at("params")) {
    const auto there = known.find(mlflow::text(param, "key"));
    if (there == known.end())
      values.push_back(param);
    else if (there->second != mlflow::text(param, "value"))
      changed.push_back(there->first);
  }
  if (!changed.empty())
    report_->note(fmt::format("parameters of a run can't be changed, and these keep their values: {}",
                              fmt::join(changed, ", ")));
  return log_values("params", values);
}

bool MLflowSender::log_values(const std::string& kind, const Json& values) {
  if (values.empty()) return true;
  try {
    client_.log_batch(run_id_, kind, values);
    return true;
  } catch (const Refused&) {
    living_run();
  }
  return log_one_by_one(kind, values);
}

// One value that the server rejects makes it reject the whole request.
bool MLflowSender::log_one_by_one(const std::string& kind, const Json& values) {
  bool all = true;
  for (const auto& value : values) try {
      client_.log_batch(run_id_, kind, Json::array({value}));
    } catch (const Refused& refused) {
      all = false;
      const auto what = fmt::format("{} {}", kind, mlflow::text(value, "key"));
      if (left_out_.insert(what).second)
        report_->note(fmt::format("{} is left out: {}", what, refused.what()));
    }
  return all;
}

void MLflowSender::put_file(const Json& entry) {
  if (artifact_uri_.empty()) artifact_uri_ = living_run().artifact_uri;
  client_.put_artifact(artifact_uri_, mlflow::text(entry, "path"), spool_.kept(mlflow::text(entry, "kept")));
}

void MLflowSender::end(const Json& entry) {
  if (mlflow::is_outdated(entry, living_run())) return;
  client_.set_status(run_id_, mlflow::text(entry, "status"), entry.at("time").get<std::int64_t>());
}

}  // namespace etude::inline v0::detail
