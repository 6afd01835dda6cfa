#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/base/linkage.hpp"
#include "etude/io/file_system.hpp"
#include "etude/io/folder_lock.hpp"
#include "etude/study/journal.hpp"
#include "etude/study/journal_time.hpp"
#include "etude/study/study.hpp"

namespace etude::inline v0 {
namespace detail {

/// The kinds of records, with Optuna's numbers.
enum class JournalOperation {
  create_study = 0,
  delete_study = 1,
  set_study_user_attr = 2,
  set_study_system_attr = 3,
  create_trial = 4,
  set_trial_param = 5,
  set_trial_state_values = 6,
  set_trial_intermediate_value = 7,
  set_trial_user_attr = 8,
  set_trial_system_attr = 9
};

inline constexpr std::string_view worker_prefix = "etude-";

/// A number, of which parse_json makes a text if it isn't finite.
inline double journal_number(const nlohmann::ordered_json& json) {
  if (!json.is_string()) return json.get<double>();
  const auto& text = json.get_ref<const std::string&>();
  if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  if (text == "Infinity") return infinity;
  if (text == "-Infinity") return -infinity;
  return json.get<double>();  // throws
}

/// What Python's json.dumps writes for a number.
inline std::string journal_text(double number) {
  if (std::isnan(number)) return "NaN";
  if (std::isinf(number)) return number > 0 ? "Infinity" : "-Infinity";
  return nlohmann::ordered_json(number).dump();
}

/// Whether trials of one study may have both for a hyperparameter.
inline bool are_compatible(const Distribution& a, const Distribution& b) {
  if (a.index() != b.index()) return false;
  if (const auto* choices = std::get_if<Choices>(&a)) return *choices == std::get<Choices>(b);
  if (const auto* range = std::get_if<FloatRange>(&a)) return range->log == std::get<FloatRange>(b).log;
  return std::get<IntRange>(a).log == std::get<IntRange>(b).log;
}

}  // namespace detail

/// The records of a journal, replayed; or of a study in memory.
struct Study::Storage {
  using Json = nlohmann::ordered_json;
  using Operation = detail::JournalOperation;

  struct OneStudy {
    std::string name;
    std::vector<StudyDirection> directions;
    bool is_deleted = false;
    std::vector<FrozenTrial> trials = {};
  };
  struct Place {
    std::size_t study, number;
    std::string worker;  ///< that runs the trial
  };

  explicit Storage(const std::filesystem::path& journal) {
    if (!journal.empty()) file.emplace(journal);
    sync();
  }

  /// Appends a record, and reads what others have appended. `more` is text behind the record's members.
  void write(Operation operation, Json members, const std::string& more = {}) {
    Json record{{"op_code", static_cast<int>(operation)}, {"worker_id", worker}};
    record.update(members);
    auto text = record.dump();
    if (!more.empty()) text.insert(text.size() - 1, "," + more);
    if (!file) return apply(parse_json(text));
    file->append({text});
    sync();
  }

  Json new_trial() const {
    return {{"op_code", static_cast<int>(Operation::create_trial)},
            {"worker_id", worker},
            {"study_id", own},
            {"datetime_start", detail::journal_time()}};
  }

  /// Appends the record that `make` returns, if any; nobody else appends from its call on.
  void write_exclusively(const std::function<std::optional<Json>()>& make) {
    if (!file) {
      if (const auto record = make()) apply(*record);
      return;
    }
    file->append_exclusively([&] {
      sync();
      const auto record = make();
      return record ? std::vector{record->dump()} : std::vector<std::string>();
    });
    sync();
  }

  void sync() {
    if (!file) return;
    for (const auto& record : file->read()) apply(record);
  }

  void apply(const Json& record) try {
    const auto operation = static_cast<Operation>(record.at("op_code").get<int>());
    const bool is_ours = record.at("worker_id") == worker;
    if (operation == Operation::create_study) return create_study(record);
    if (record.contains("study_id")) {
      const auto id = record["study_id"].get<std::size_t>();
      if (id >= studies.size() || studies[id].is_deleted) return;
      if (operation == Operation::delete_study) studies[id].is_deleted = true;
      if (operation == Operation::create_trial) create_trial(id, record, is_ours);
      return;
    }
    if (!record.contains("trial_id")) return;  // of a later Optuna
    const auto id = record["trial_id"].get<std::size_t>();
    if (id < places.size() && !trial(id).is_finished()) change_trial(id, operation, record);
  } catch (const std::exception& error) {
    throw CheckpointError(fmt::format("the journal has the record {}, which isn't one of Optuna's: {}",
                                      record.dump(), error.what()));
  }

  /// A hyperparameter's value, which is an index for choices.
  static double number_of(const Distribution& distribution, const Json& json) {
    const auto number = json.get<double>();
    bool fits = std::isfinite(number);
    if (const auto* choices = std::get_if<Choices>(&distribution))
      fits &= number >= 0 && number < static_cast<double>(choices->choices.size());
    else if (const auto* range = std::get_if<FloatRange>(&distribution))
      fits &= !range->log || number > 0;
    else
      fits &= !std::get<IntRange>(distribution).log || number > 0;
    if (!fits)
      throw ArgumentError(fmt::format("a value is {}: must be {}", number, detail::in_words(distribution)));
    return number;
  }

  TrialState state_of(const Json& json) const {
    const auto state = json.get<int>();
    if (state < 0 || state > 4)
      throw ArgumentError(fmt::format("the state is {}: must be from 0 to 4", state));
    return static_cast<TrialState>(state);
  }

  /// Throws ArgumentError for a complete trial without a value for each objective.
  void check_values(std::size_t study, const FrozenTrial& trial) const {
    if (trial.state == TrialState::complete && trial.values.size() != studies[study].directions.size())
      throw ArgumentError("a complete trial must have a value for each objective");
  }

  void create_study(const Json& record) {
    OneStudy made{.name = record.at("study_name").get<std::string>(), .directions = {}};
    for (const auto& direction : record.at("directions"))
      made.directions.push_back(static_cast<StudyDirection>(direction.get<int>()));
    if (!find(made.name)) studies.push_back(std::move(made));
  }

  void create_trial(std::size_t study, const Json& record, bool is_ours) {
    auto& trials = studies[study].trials;
    FrozenTrial made{.number = static_cast<std::int64_t>(trials.size())};
    if (record.contains("state")) made.state = state_of(record["state"]);
    if (record.contains("distributions"))
      for (const auto& [name, text] : record["distributions"].items())
        made.distributions[name] = distribution_of(parse_json(text.get_ref<const std::string&>()));
    if (record.contains("params"))
      for (const auto& [name, number] : record["params"].items())
        made.params[name] = number_of(made.distributions.at(name), number);
    if (record.contains("intermediate_values"))
      for (const auto& [step, value] : record["intermediate_values"].items())
        made.intermediate_values[std::stoll(step)] = detail::journal_number(value);
    if (record.contains("values") && record["values"].is_array())
      for (const auto& value : record["values"]) made.values.push_back(detail::journal_number(value));
    else if (record.contains("value") && !record["value"].is_null())
      made.values = {detail::journal_number(record["value"])};
    if (record.contains("user_attrs")) made.user_attrs = record["user_attrs"];
    if (record.contains("system_attrs")) made.system_attrs = record["system_attrs"];
    set_times(made, record);
    check_values(study, made);
    places.push_back({study, trials.size(), record.at("worker_id").get<std::string>()});
    trials.push_back(std::move(made));
    if (is_ours) last_created = places.size() - 1;
  }

  void change_trial(std::size_t id, Operation operation, const Json& record) {
    auto& changed = trial(id);
    if (operation == Operation::set_trial_param) {
      const auto& name = record.at("param_name").get_ref<const std::string&>();
      const auto distribution =
          distribution_of(parse_json(record.at("distribution").get_ref<const std::string&>()));
      changed.params[name] = number_of(distribution, record.at("param_value_internal"));
      changed.distributions[name] = distribution;
    } else if (operation == Operation::set_trial_state_values) {
      const auto state = state_of(record.at("state"));
      // The first of several workers that take a trial out of the queue has it.
      if (state == TrialState::running && changed.state == TrialState::running) return;
      if (state == TrialState::running) places[id].worker = record.at("worker_id").get<std::string>();
      changed.state = state;
      set_times(changed, record);
      if (!record.at("values").is_null()) {
        changed.values.clear();
        for (const auto& value : record["values"]) changed.values.push_back(detail::journal_number(value));
      }
      check_values(places[id].study, changed);
    } else if (operation == Operation::set_trial_intermediate_value) {
      changed.intermediate_values[record.at("step").get<std::int64_t>()] =
          detail::journal_number(record.at("intermediate_value"));
    } else if (operation == Operation::set_trial_user_attr) {
      changed.user_attrs.update(record.at("user_attr"));
    } else if (operation == Operation::set_trial_system_attr) {
      changed.system_attrs.update(record.at("system_attr"));
    }
  }

  /// Whether a process of ours has it; Optuna's don't lock their trials.
  bool is_run_by_us(std::size_t id) {
    return places[id].study == own && trial(id).state == TrialState::running &&
           places[id].worker.starts_with(detail::worker_prefix);
  }

  /// The times of a record; a text of another form than Optuna's says nothing.
  static void set_times(FrozenTrial& trial, const Json& record) {
    const auto set = [&](const char* name, std::optional<double>& time) {
      if (const auto text = record.find(name); text != record.end() && text->is_string())
        time = detail::seconds_of_journal_time(text->get_ref<const std::string&>());
    };
    set("datetime_start", trial.datetime_start);
    set("datetime_complete", trial.datetime_complete);
  }

  FrozenTrial& trial(std::size_t id) { return studies[places[id].study].trials[places[id].number]; }

  std::optional<std::size_t> find(const std::string& name) const {
    for (std::size_t i = 0; i < studies.size(); ++i)
      if (studies[i].name == name && !studies[i].is_deleted) return i;
    return {};
  }

  std::optional<detail::JournalFile> file;
  std::string worker = std::string(detail::worker_prefix) + detail::random_name();
  std::vector<OneStudy> studies = {};
  std::vector<Place> places = {};  // of trials, by id
  std::size_t last_created = 0;
  std::size_t own = 0;  // the study
};

ETUDE_INLINE Study::Study(Options options) : options_(std::move(options)) {
  if (!options_.sampler) options_.sampler = std::make_shared<TPESampler>();
  if (options_.directions.empty())
    throw ArgumentError("directions is empty: must have one for each objective");
  for (const auto each : options_.directions)
    if (each != StudyDirection::minimize && each != StudyDirection::maximize)
      throw ArgumentError(fmt::format("directions has {}: must be minimize or maximize", each));
  storage_ = std::make_unique<Storage>(options_.journal);
  auto found = storage_->find(options_.study_name);
  if (!found) {
    std::vector<int> directions;
    for (const auto direction : options_.directions) directions.push_back(static_cast<int>(direction));
    storage_->write(detail::JournalOperation::create_study,
                    {{"study_name", options_.study_name}, {"directions", directions}});
    found = storage_->find(options_.study_name);
  }
  storage_->own = found.value();
  if (storage_->studies[*found].directions != options_.directions)
    throw ArgumentError(
        fmt::format("{}: the study {} has other directions", options_.journal.string(), options_.study_name));
}

ETUDE_INLINE Study::~Study() = default;

ETUDE_INLINE const std::vector<FrozenTrial>& Study::known() {
  return storage_->studies[storage_->own].trials;
}

ETUDE_INLINE const FrozenTrial& Study::frozen(const StudyTrial& trial) { return storage_->trial(trial.id_); }

ETUDE_INLINE void Study::enqueue_trial(const std::map<std::string, nlohmann::ordered_json>& params) {
  using Json = nlohmann::ordered_json;
  storage_->write(detail::JournalOperation::create_trial, {{"study_id", storage_->own},
                                                           {"datetime_start", nullptr},
                                                           {"state", static_cast<int>(TrialState::waiting)},
                                                           {"value", nullptr},
                                                           {"values", nullptr},
                                                           {"distributions", Json::object()},
                                                           {"params", Json::object()},
                                                           {"user_attrs", Json::object()},
                                                           {"system_attrs", {{"fixed_params", params}}},
                                                           {"intermediate_values", Json::object()}});
}

ETUDE_INLINE bool Study::take_from_queue(std::size_t id) {
  storage_->write(detail::JournalOperation::set_trial_state_values,
                  {{"trial_id", id},
                   {"state", static_cast<int>(TrialState::running)},
                   {"values", nullptr},
                   {"datetime_start", detail::journal_time()}});
  return storage_->places[id].worker == storage_->worker;
}

ETUDE_INLINE StudyTrial Study::ask() {
  storage_->sync();
  for (std::size_t id = 0; id < storage_->places.size(); ++id) {
    if (storage_->places[id].study != storage_->own || storage_->trial(id).state != TrialState::waiting)
      continue;
    if (take_from_queue(id)) return {*this, id, storage_->trial(id).number};
  }
  storage_->write_exclusively([&] { return std::optional(storage_->new_trial()); });
  const auto id = storage_->last_created;
  return {*this, id, storage_->trial(id).number};
}

ETUDE_INLINE std::filesystem::path Study::lock_path(std::int64_t number) const {
  return fmt::format("{}.{}.{}.lock", options_.journal.string(), storage_->own, number);
}

ETUDE_INLINE std::shared_ptr<detail::LockFile> Study::lock_of(std::int64_t number) const {
  return storage_->file ? std::make_shared<detail::LockFile>(lock_path(number)) : nullptr;
}

ETUDE_INLINE std::optional<StudyTrial> Study::claim(std::int64_t n_trials) {
  storage_->sync();
  std::error_code none;
  for (std::size_t id = 0; id < storage_->places.size(); ++id) {
    if (!storage_->is_run_by_us(id)) continue;
    const auto number = storage_->trial(id).number;
    if (!storage_->file || !std::filesystem::exists(lock_path(number), none)) continue;
    auto lock = lock_of(number);
    if (lock->state() != detail::LockState::held) continue;
    storage_->sync();
    if (storage_->is_run_by_us(id)) return StudyTrial(*this, id, number, std::move(lock), true);
  }
  const auto begun = [&] {
    return std::ranges::count_if(known(),
                                 [](const auto& trial) { return trial.state != TrialState::waiting; });
  };
  for (std::size_t id = 0; id < storage_->places.size() && begun() < n_trials; ++id) {
    if (storage_->places[id].study != storage_->own || storage_->trial(id).state != TrialState::waiting)
      continue;
    const auto number = storage_->trial(id).number;
    // Before the record, so that a trial of ours always has a lock.
    auto lock = lock_of(number);
    if (lock && lock->state() == detail::LockState::taken) continue;
    if (take_from_queue(id)) return StudyTrial(*this, id, number, std::move(lock));
  }
  std::shared_ptr<detail::LockFile> lock;
  std::optional<std::int64_t> number;
  storage_->write_exclusively([&]() -> std::optional<Storage::Json> {
    const auto count = static_cast<std::int64_t>(known().size());
    if (count >= n_trials) return {};
    number = count;
    lock = lock_of(count);
    return storage_->new_trial();
  });
  if (!number) return {};
  return StudyTrial(*this, storage_->last_created, *number, std::move(lock));
}

ETUDE_INLINE bool Study::others_run() {
  storage_->sync();
  if (!storage_->file) return false;
  std::error_code none;
  for (std::size_t id = 0; id < storage_->places.size(); ++id)
    if (storage_->is_run_by_us(id) && std::filesystem::exists(lock_path(storage_->trial(id).number), none))
      return true;
  return false;
}

ETUDE_INLINE StudyTrial Study::running_trial(std::int64_t number, bool is_continued) {
  storage_->sync();
  for (std::size_t id = 0; id < storage_->places.size(); ++id)
    if (storage_->is_run_by_us(id) && storage_->trial(id).number == number)
      return {*this, id, number, nullptr, is_continued};
  throw ArgumentError(fmt::format("trial {} isn't running", number));
}

ETUDE_INLINE void Study::tell(const StudyTrial& trial, const std::vector<double>& values) {
  if (values.size() != options_.directions.size())
    throw ArgumentError(fmt::format("trial {} has {} values: must be {}, one for each objective",
                                    trial.number_, values.size(), options_.directions.size()));
  if (std::ranges::any_of(values, [](double value) { return std::isnan(value); }))
    return finish(trial, TrialState::fail, {});
  finish(trial, TrialState::complete, values);
}

ETUDE_INLINE void Study::tell(const StudyTrial& trial, TrialState state) {
  if (state != TrialState::pruned && state != TrialState::fail)
    throw ArgumentError(
        fmt::format("the state of trial {} is {}: must be pruned or fail", trial.number_, state));
  std::vector<double> values;
  const auto& reported = frozen(trial).intermediate_values;
  if (state == TrialState::pruned && options_.directions.size() == 1 && !reported.empty() &&
      !std::isnan(reported.rbegin()->second))
    values = {reported.rbegin()->second};
  finish(trial, state, values);
}

ETUDE_INLINE void Study::finish(const StudyTrial& trial, TrialState state,
                                const std::vector<double>& values) {
  storage_->sync();
  if (frozen(trial).is_finished())
    throw ArgumentError(fmt::format("trial {} is finished already", trial.number_));
  std::string text;
  for (const double value : values) text += (text.empty() ? "" : ",") + detail::journal_text(value);
  storage_->write(detail::JournalOperation::set_trial_state_values,
                  {{"trial_id", trial.id_},
                   {"state", static_cast<int>(state)},
                   {"datetime_complete", detail::journal_time()}},
                  values.empty() ? "\"values\":null" : "\"values\":[" + text + "]");
}

ETUDE_INLINE std::vector<FrozenTrial> Study::trials() {
  storage_->sync();
  return known();
}

ETUDE_INLINE std::optional<FrozenTrial> Study::best_trial() {
  if (options_.directions.size() != 1) return {};
  const auto best = best_trials();
  return best.empty() ? std::nullopt : std::optional(best.front());
}

ETUDE_INLINE nlohmann::ordered_json StudyTrial::suggest(const std::string& name,
                                                        const Distribution& distribution) {
  const auto& given = study_->frozen(*this);
  if (const auto known = given.params.find(name); known != given.params.end()) return given.param(name);
  check_distribution(name, distribution);
  const auto& options = study_->options_;
  if (!random_) {
    random_.emplace(detail::stream_seed(options.seed, number_));
    study_->storage_->sync();
    for (const auto& other : study_->known())
      if (other.number != number_) others_.push_back(other);
    relative_ = options.sampler->sample_relative({others_, study_->direction(), number_, *random_});
  }
  for (const auto& other : others_) {
    const auto found = other.distributions.find(name);
    if (found == other.distributions.end()) continue;
    if (!detail::are_compatible(found->second, distribution))
      throw ArgumentError(fmt::format("{} is {}: must be of the kind that it has in trial {}, {}", name,
                                      detail::in_words(distribution), other.number,
                                      detail::in_words(found->second)));
    break;
  }
  const auto fits = [&](double value) {
    return std::holds_alternative<Choices>(distribution) || from_number(distribution, value) == value;
  };
  double number = 0;
  const auto& attrs = study_->frozen(*this).system_attrs;
  if (attrs.contains("fixed_params") && attrs["fixed_params"].contains(name))
    number = to_number(name, distribution, attrs["fixed_params"][name]);
  else if (const auto known = relative_.find(name); known != relative_.end() && fits(known->second))
    number = known->second;
  else {
    // By its name, so that a trial that was killed between two suggestions goes on with the same values.
    RandomNumbers random(detail::stream_seed(options.seed, number_, name));
    number = options.sampler->sample_independent({others_, study_->direction(), number_, random}, name,
                                                 distribution);
  }
  study_->storage_->write(detail::JournalOperation::set_trial_param,
                          {{"trial_id", id_},
                           {"param_name", name},
                           {"param_value_internal", number},
                           {"distribution", distribution_json(distribution).dump()}});
  return from_number(distribution, number);
}

ETUDE_INLINE void StudyTrial::report(double value, std::int64_t step) {
  if (study_->frozen(*this).intermediate_values.contains(step)) return;
  study_->storage_->write(detail::JournalOperation::set_trial_intermediate_value,
                          {{"trial_id", id_}, {"step", step}},
                          "\"intermediate_value\":" + detail::journal_text(value));
}

ETUDE_INLINE bool StudyTrial::should_prune() {
  const auto& trial = study_->frozen(*this);
  if (!study_->options_.pruner || trial.intermediate_values.empty()) return false;
  study_->storage_->sync();
  const auto verdict =
      study_->options_.pruner->judge(study_->known(), study_->frozen(*this), study_->direction());
  for (const auto& [name, value] : verdict.notes) set_system_attr(name, value);
  return verdict.prune;
}

ETUDE_INLINE void StudyTrial::set_user_attr(const std::string& name, const nlohmann::ordered_json& value) {
  study_->storage_->write(detail::JournalOperation::set_trial_user_attr,
                          {{"trial_id", id_}, {"user_attr", {{name, value}}}});
}

ETUDE_INLINE void StudyTrial::set_system_attr(const std::string& name, const nlohmann::ordered_json& value) {
  study_->storage_->write(detail::JournalOperation::set_trial_system_attr,
                          {{"trial_id", id_}, {"system_attr", {{name, value}}}});
}

ETUDE_INLINE FrozenTrial StudyTrial::frozen() const { return study_->frozen(*this); }

ETUDE_INLINE void StudyTrial::leave() {
  if (lock_) lock_->keep_file();
}

ETUDE_INLINE int StudyTrial::lock_descriptor() const { return lock_ ? lock_->descriptor() : -1; }

}  // namespace etude::inline v0
