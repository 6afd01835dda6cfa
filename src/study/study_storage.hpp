#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/io/file_system.hpp"
#include "etude/reflect/json.hpp"
#include "etude/reflect/json_parser.hpp"
#include "etude/study/journal.hpp"
#include "etude/study/journal_time.hpp"
#include "etude/study/study.hpp"

namespace etude::inline v0 {
namespace detail {

/// The kinds of records, numbered as in Optuna.
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
/// The suffix of a worker's name if its trial was asked for, not claimed, so no process holds a lock on it.
inline constexpr std::string_view asker_suffix = "-ask";

/// Reads a number; parse_json returns non-finite ones as text.
inline double journal_number(const nlohmann::ordered_json& json) {
  const auto* text = json.get_ptr<const std::string*>();
  const auto number = text ? non_finite(*text) : std::nullopt;
  return number ? *number : json.get<double>();  // throws for any other text
}

/// A number as Python's json.dumps writes it.
inline std::string journal_text(double number) {
  return std::isfinite(number) ? nlohmann::ordered_json(number).dump() : std::string(non_finite_name(number));
}

/// The kind of a distribution, which is the same in all trials of a study.
inline std::string kind_in_words(const Distribution& distribution) {
  if (std::holds_alternative<Choices>(distribution)) return in_words(distribution);
  return fmt::format("a {}range of {}numbers", numbers_of(distribution).is_log ? "logarithmic " : "",
                     std::holds_alternative<IntRange>(distribution) ? "whole " : "");
}

/// True if trials of one study may have both distributions for the same hyperparameter.
inline bool are_compatible(const Distribution& a, const Distribution& b) {
  if (a.index() != b.index()) return false;
  if (const auto* choices = std::get_if<Choices>(&a)) return *choices == std::get<Choices>(b);
  return numbers_of(a).is_log == numbers_of(b).is_log;
}

}  // namespace detail

/// The state of a study: a journal's records replayed, or kept in memory only.
struct Study::Storage {
  using Json = nlohmann::ordered_json;
  using Operation = detail::JournalOperation;

  struct OneStudy {
    std::string name;
    std::vector<StudyDirection> directions;
    bool is_deleted = false;
    std::vector<FrozenTrial> trials = {};
    Json user_attrs = Json::object();
    /// The first trial with each hyperparameter, and its distribution there.
    std::map<std::string, std::pair<std::int64_t, Distribution>> kinds = {};
    /// By hyperparameter: why its distribution can't be used.
    std::map<std::string, std::string> unusable = {};
  };
  struct Place {
    std::size_t study, number;
    std::string worker = {};  ///< the worker that runs the trial
  };

  /// Trials of other studies in the journal are only counted.
  Storage(const std::filesystem::path& journal, std::string its_name) : study_name(std::move(its_name)) {
    if (!journal.empty()) file.emplace(journal);
    sync();
  }

  /// Appends a record, and reads records that other processes have appended. `more` is text that follows the
  /// record's members.
  void write(Operation operation, const Json& members, const std::string& more = {}) {
    auto text = text_of(record(operation, members, worker));
    if (!more.empty()) text.insert(text.size() - 1, "," + more);
    if (!file) return apply(parse_json(text));
    if (defers) {
      apply(parse_json(text));
      deferred.push_back(std::move(text));
      return;
    }
    file->append({text});
    sync();
  }

  static Json record(Operation operation, const Json& members, const std::string& by) {
    Json json{{"op_code", static_cast<int>(operation)}, {"worker_id", by}};
    json.update(members);
    return json;
  }

  /// Ends the deferral, and appends all records that were deferred.
  void write_deferred() {
    defers = false;
    if (deferred.empty()) return;
    file->append(deferred);
    deferred.clear();
    sync();
  }

  Json new_trial(const std::string& of_worker) {
    last_created.reset();
    return record(Operation::create_trial, {{"study_id", own}, {"datetime_start", detail::journal_time()}},
                  of_worker);
  }

  Json waiting_trial(const Study::Params& params) const {
    return record(Operation::create_trial,
                  {{"study_id", own},
                   {"datetime_start", nullptr},
                   {"state", static_cast<int>(TrialState::waiting)},
                   {"value", nullptr},
                   {"values", nullptr},
                   {"distributions", Json::object()},
                   {"params", Json::object()},
                   {"user_attrs", Json::object()},
                   {"system_attrs", {{"fixed_params", params}}},
                   {"intermediate_values", Json::object()}},
                  worker);
  }

  /// Replaces invalid UTF-8, for example in an exception's message.
  static std::string text_of(const Json& record) {
    return record.dump(-1, ' ', false, Json::error_handler_t::replace);
  }

  /// Appends the records that `make` returns; no other process appends between its call and the write.
  void write_exclusively(const std::function<std::vector<Json>()>& make) {
    if (!file) {
      for (const auto& record : make()) apply(record);
      return;
    }
    write_deferred();
    file->append_exclusively([&] {
      sync();
      std::vector<std::string> lines;
      for (const auto& record : make()) lines.push_back(text_of(record));
      return lines;
    });
    sync();
  }

  void sync() {
    if (!file) return;
    for (const auto& record : file->read()) apply(record);
  }

  void apply(const Json& record) try {
    const auto operation = static_cast<Operation>(from_json_value<int>(record.at("op_code")));
    if (operation > Operation::set_trial_system_attr) return;  // from another program; Optuna ignores it too
    const bool is_ours = record.at("worker_id").get_ref<const std::string&>().starts_with(worker);
    if (operation == Operation::create_study) return create_study(record);
    if (record.contains("study_id")) {
      const auto id = index_of(record["study_id"]);
      if (id >= studies.size() || studies[id].is_deleted) return;
      if (operation == Operation::delete_study) studies[id].is_deleted = true;
      if (operation == Operation::set_study_user_attr && is_needed(id))
        studies[id].user_attrs.update(record.at("user_attr"));
      if (operation == Operation::create_trial) create_trial(id, record, is_ours);
      return;
    }
    if (!record.contains("trial_id")) return;
    const auto id = index_of(record["trial_id"]);
    if (id < places.size() && is_needed(places[id].study) && !trial(id).is_finished())
      change_trial(id, operation, record);
  } catch (const std::exception& error) {
    throw CheckpointError(fmt::format("the journal has the record {}, which isn't one of Optuna's: {}",
                                      record.dump(), error.what()));
  }

  bool is_needed(std::size_t study) const { return studies[study].name == study_name; }

  /// A hyperparameter's value; for choices, an index. Unset for a value that the range can't represent, such
  /// as 0 in a logarithmic one, which Optuna allows in enqueued trials.
  static std::optional<double> number_of(const Distribution& distribution, const Json& json) {
    const auto number = detail::journal_number(json);
    if (const auto* choices = std::get_if<Choices>(&distribution)) {
      if (number >= 0 && number < static_cast<double>(choices->choices.size())) return number;
      throw ArgumentError(fmt::format("a value is {}: must be {}", number, detail::in_words(distribution)));
    }
    if (!std::isfinite(number) || (detail::numbers_of(distribution).is_log && number <= 0)) return {};
    return number;
  }

  /// Sets a hyperparameter of a trial. Ignores one whose distribution can't be used, or whose kind differs
  /// from earlier trials, as Optuna does.
  static void set_param(OneStudy& study, FrozenTrial& trial, const std::string& name, const Json& text,
                        const Json& number) {
    std::optional<Distribution> distribution;
    try {
      distribution = distribution_of(parse_json(text.get_ref<const std::string&>()));
    } catch (const ArgumentError& error) {
      study.unusable.try_emplace(name, fmt::format("in trial {}, {}", trial.number, error.what()));
      return;
    }
    const auto value = number_of(*distribution, number);
    if (!value) return;
    const auto& kind = study.kinds.try_emplace(name, trial.number, *distribution).first->second.second;
    if (!detail::are_compatible(kind, *distribution)) return;
    trial.params[name] = *value;
    trial.distributions[name] = *std::move(distribution);
  }

  /// The step of a report; unset if it doesn't fit in 64 bits.
  static std::optional<std::int64_t> step_of(const Json& json) {
    if (!json.is_number()) throw ArgumentError(fmt::format("a step is {}: must be a number", json.dump()));
    const auto number = json.get<double>();
    constexpr double beyond = 0x1p63;
    if (!(number >= -beyond && number < beyond) || number != std::floor(number)) return {};
    return json.is_number_float() ? static_cast<std::int64_t>(number) : json.get<std::int64_t>();
  }

  static std::size_t index_of(const Json& json) {
    if (!json.is_number_unsigned())
      throw ArgumentError(fmt::format("an id is {}: must be a whole number", json.dump()));
    return json.get<std::size_t>();
  }

  /// Converts a number to an enumerator; Optuna uses the same numbers.
  template <ReflectedEnum E>
  static E enumerator_of(std::string_view name, const Json& json) {
    const auto number = from_json_value<int>(json);
    const auto last = static_cast<int>(enum_names<E>.size()) - 1;
    if (number < 0 || number > last)
      throw ArgumentError(fmt::format("the {} is {}: must be from 0 to {}", name, number, last));
    return static_cast<E>(number);
  }

  /// Optuna's storage accepts complete trials that lack a number for some objective; these count as failed.
  static void check(const OneStudy& study, FrozenTrial& trial) {
    if (!trial.user_attrs.is_object() || !trial.system_attrs.is_object())
      throw ArgumentError("attributes must be objects");
    if (trial.state == TrialState::complete &&
        (trial.values.size() != study.directions.size() ||
         std::ranges::any_of(trial.values, [](double value) { return std::isnan(value); }))) {
      trial.state = TrialState::fail;
      trial.values.clear();
    }
  }

  void create_study(const Json& record) {
    OneStudy made{.name = record.at("study_name").get<std::string>(), .directions = {}};
    for (const auto& direction : record.at("directions"))
      made.directions.push_back(enumerator_of<StudyDirection>("direction", direction));
    if (!find(made.name)) studies.push_back(std::move(made));
  }

  void create_trial(std::size_t study, const Json& record, bool is_ours) {
    if (!is_needed(study)) return places.push_back({study, 0});
    auto& trials = studies[study].trials;
    FrozenTrial made{.number = static_cast<std::int64_t>(trials.size())};
    if (record.contains("state")) made.state = enumerator_of<TrialState>("state", record["state"]);
    if (record.contains("params"))
      for (const auto& [param, number] : record["params"].items())
        set_param(studies[study], made, param, record.at("distributions").at(param), number);
    if (record.contains("intermediate_values"))
      for (const auto& [text, value] : record["intermediate_values"].items())
        if (const auto step = step_of(parse_json(text)))
          made.intermediate_values[*step] = detail::journal_number(value);
    if (record.contains("values") && record["values"].is_array())
      for (const auto& value : record["values"]) made.values.push_back(detail::journal_number(value));
    else if (record.contains("value") && !record["value"].is_null())
      made.values = {detail::journal_number(record["value"])};
    if (record.contains("user_attrs")) made.user_attrs = record["user_attrs"];
    if (record.contains("system_attrs")) made.system_attrs = record["system_attrs"];
    set_times(made, record);
    check(studies[study], made);
    places.push_back({study, trials.size(), record.at("worker_id").get<std::string>()});
    trials.push_back(std::move(made));
    if (is_ours) last_created = places.size() - 1;
  }

  void change_trial(std::size_t id, Operation operation, const Json& record) {
    auto& changed = trial(id);
    if (operation == Operation::set_trial_param) {
      set_param(studies[places[id].study], changed, record.at("param_name").get<std::string>(),
                record.at("distribution"), record.at("param_value_internal"));
    } else if (operation == Operation::set_trial_state_values) {
      const auto state = enumerator_of<TrialState>("state", record.at("state"));
      // If several workers take a trial out of the queue, the first one gets it.
      if (state == TrialState::running && changed.state == TrialState::running) return;
      if (state == TrialState::running) places[id].worker = record.at("worker_id").get<std::string>();
      changed.state = state;
      set_times(changed, record);
      if (!record.at("values").is_null()) {
        changed.values.clear();
        for (const auto& value : record["values"]) changed.values.push_back(detail::journal_number(value));
      }
      check(studies[places[id].study], changed);
    } else if (operation == Operation::set_trial_intermediate_value) {
      if (const auto step = step_of(record.at("step")))
        changed.intermediate_values[*step] = detail::journal_number(record.at("intermediate_value"));
    } else if (operation == Operation::set_trial_user_attr) {
      changed.user_attrs.update(record.at("user_attr"));
    } else if (operation == Operation::set_trial_system_attr) {
      changed.system_attrs.update(record.at("system_attr"));
    }
  }

  /// True if a process has claimed the trial. Trials from ask(), here or in Optuna, have no lock.
  bool is_claimed(std::size_t id) {
    const auto& by = places[id].worker;
    return places[id].study == own && trial(id).state == TrialState::running &&
           by.starts_with(detail::worker_prefix) && !by.ends_with(detail::asker_suffix);
  }

  /// Copies a record's times; ignores text that isn't in Optuna's format.
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

  std::string study_name;
  std::optional<detail::JournalFile> file;
  std::string worker = std::string(detail::worker_prefix) + detail::random_name();
  std::string asker = worker + std::string(detail::asker_suffix);
  bool defers = false;  // records wait in memory
  std::vector<std::string> deferred = {};
  std::vector<OneStudy> studies = {};
  std::vector<Place> places = {};  // trials, by id
  std::optional<std::size_t> last_created;
  std::size_t own = 0;  // the index of this study
};

}  // namespace etude::inline v0
