#include "etude/study/study.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/base/utf8.hpp"
#include "etude/io/disk_full.hpp"
#include "etude/io/file_system.hpp"
#include "etude/io/folder_lock.hpp"
#include "etude/study/journal_time.hpp"
#include "study_storage.hpp"

namespace etude::inline v0 {

Study::Study(Options options) : options_(std::move(options)) {
  if (!options_.sampler) options_.sampler = std::make_shared<TPESampler>();
  if (options_.directions.empty())
    throw ArgumentError("directions is empty: must have one for each objective");
  if (!is_utf8(options_.study_name)) throw ArgumentError("study_name isn't UTF-8");
  for (const auto each : options_.directions)
    if (each != StudyDirection::minimize && each != StudyDirection::maximize)
      throw ArgumentError(fmt::format("directions has {}: must be minimize or maximize", each));
  storage_ = std::make_unique<Storage>(options_.journal, options_.study_name);
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
    throw ArgumentError(fmt::format("{}: the study {} has different directions", options_.journal.string(),
                                    options_.study_name));
}

Study::~Study() = default;

const std::vector<FrozenTrial>& Study::known() { return storage_->studies[storage_->own].trials; }

const FrozenTrial& Study::frozen(const StudyTrial& trial) { return storage_->trial(trial.id_); }

void Study::enqueue(const std::vector<Params>& trials, bool only_first) {
  // Checked first, since the journal may be on a read-only disk.
  if (trials.empty() || (only_first && !known().empty())) return;
  storage_->write_exclusively([&] {
    std::vector<Storage::Json> records;
    if (only_first && !known().empty()) return records;
    for (const auto& params : trials) records.push_back(storage_->waiting_trial(params));
    return records;
  });
}

bool Study::take_from_queue(std::size_t id, const std::string& worker) {
  storage_->write(detail::JournalOperation::set_trial_state_values,
                  {{"trial_id", id},
                   {"worker_id", worker},
                   {"state", static_cast<int>(TrialState::running)},
                   {"values", nullptr},
                   {"datetime_start", detail::journal_time()}});
  return storage_->places[id].worker == worker;
}

StudyTrial Study::ask() {
  storage_->sync();
  for (std::size_t id = 0; id < storage_->places.size(); ++id) {
    if (storage_->places[id].study != storage_->own || storage_->trial(id).state != TrialState::waiting)
      continue;
    if (take_from_queue(id, storage_->asker)) return {*this, id, storage_->trial(id).number};
  }
  storage_->write_exclusively([&] { return std::vector{storage_->new_trial(storage_->asker)}; });
  const auto id = created();
  return {*this, id, storage_->trial(id).number};
}

std::size_t Study::created() const {
  if (!storage_->last_created)
    throw CheckpointError(
        fmt::format("{}: the study {} was deleted", options_.journal.string(), options_.study_name));
  return *storage_->last_created;
}

std::filesystem::path Study::lock_path(std::int64_t number) const {
  return fmt::format("{}.{}.{}.lock", options_.journal.string(), storage_->own, number);
}

std::shared_ptr<detail::LockFile> Study::lock_of(std::int64_t number, bool is_continued) const {
  if (!storage_->file) return {};
  auto lock = std::make_shared<detail::LockFile>(lock_path(number));
  if (lock->state() == detail::LockState::taken) return {};
  if (lock->state() == detail::LockState::unknown) {
    if (const int reason = lock->open_error(); reason != 0 && !is_continued)
      detail::throw_file_error(fmt::format("{}: can't be created: {}", lock_path(number).string(),
                                           std::generic_category().message(reason)),
                               reason);
    if (is_continued) return {};  // another process that is alive may have it
  }
  return lock;
}

std::optional<StudyTrial> Study::hold(std::size_t id, bool is_continued,
                                      std::shared_ptr<detail::LockFile> lock) {
  const auto number = storage_->trial(id).number;
  if (!storage_->file) return is_continued ? std::nullopt : std::optional(StudyTrial(*this, id, number));
  if (!lock) return {};
  storage_->sync();
  if (!storage_->is_claimed(id)) return {};  // the trial has ended meanwhile
  return StudyTrial(*this, id, number, std::move(lock), is_continued);
}

std::optional<StudyTrial> Study::claim(std::int64_t n_trials) {
  storage_->sync();
  for (std::size_t id = 0; id < storage_->places.size(); ++id)
    if (storage_->is_claimed(id))
      if (auto trial = hold(id, true, lock_of(storage_->trial(id).number, true))) return trial;
  const auto begun = [&] {
    return std::ranges::count_if(known(),
                                 [](const auto& trial) { return trial.state != TrialState::waiting; });
  };
  for (std::size_t id = 0; id < storage_->places.size() && begun() < n_trials; ++id) {
    if (storage_->places[id].study != storage_->own || storage_->trial(id).state != TrialState::waiting)
      continue;
    auto lock = lock_of(storage_->trial(id).number, false);
    if ((storage_->file && !lock) || !take_from_queue(id, storage_->worker)) continue;
    if (auto trial = hold(id, false, std::move(lock))) return trial;
  }
  const auto is_full = [&] { return static_cast<std::int64_t>(known().size()) >= n_trials; };
  // Checked first without the lock, so that a waiting process doesn't keep the journal locked.
  while (!is_full()) {
    bool is_new = false;
    std::shared_ptr<detail::LockFile> lock;
    storage_->write_exclusively([&] {
      lock.reset();  // held by an earlier attempt
      std::vector<Storage::Json> records;
      is_new = !is_full();
      if (is_new) {
        lock = lock_of(static_cast<std::int64_t>(known().size()), false);
        records.push_back(storage_->new_trial(storage_->worker));
      }
      return records;
    });
    if (is_new)
      if (auto trial = hold(created(), false, std::move(lock))) return trial;
  }
  remove_locks();
  return {};
}

/// Removes the lock files of finished trials, which a process that ends right after its result leaves behind.
void Study::remove_locks() {
  if (!storage_->file) return;
  std::error_code none;
  for (const auto& trial : known())
    if (trial.is_finished()) std::filesystem::remove(lock_path(trial.number), none);
}

void Study::set_folder(const std::filesystem::path& folder) {
  const auto mark = folder / ".etude-search";  // MLflow's callback names the search after it
  const auto read_mark = [&] {
    std::ifstream file(mark);
    std::string id;
    std::getline(file, id);
    return id;
  };
  const auto id_of_study = [&] {
    const auto& attrs = storage_->studies[storage_->own].user_attrs;
    const auto found = attrs.find("folder");
    return found != attrs.end() && found->is_string() ? found->get<std::string>() : "";
  };
  if (id_of_study().empty())
    storage_->write_exclusively([&] {
      std::vector<Storage::Json> records;
      if (!id_of_study().empty()) return records;
      auto id = read_mark();
      // If there is a mark but no trial, its process ended before it wrote the record.
      if (!id.empty() && std::ranges::any_of(std::filesystem::directory_iterator(folder),
                                             [](const auto& entry) { return entry.is_directory(); }))
        throw ArgumentError(fmt::format(
            "output_dir is {}: it has the trials of another study; choose another folder, or remove that one",
            folder.string()));
      if (id.empty()) {
        id = detail::random_name();
        // Written before the record, so that no other process sees the record without the mark.
        write_file(default_file_system(), mark, id + "\n");
      }
      records.push_back(Storage::record(detail::JournalOperation::set_study_user_attr,
                                        {{"study_id", storage_->own}, {"user_attr", {{"folder", id}}}},
                                        storage_->worker));
      return records;
    });
  if (const auto id = id_of_study(); id.empty() || read_mark() != id)
    throw ArgumentError(
        fmt::format("output_dir is {}: must be the folder in which the study {} was begun, or another study",
                    folder.string(), options_.study_name));
}

bool Study::others_run() {
  storage_->sync();
  if (!storage_->file) return false;
  for (std::size_t id = 0; id < storage_->places.size(); ++id)
    if (storage_->is_claimed(id) &&
        detail::LockFile(lock_path(storage_->trial(id).number)).state() != detail::LockState::unknown)
      return true;
  return false;
}

StudyTrial Study::running_trial(std::int64_t number, bool is_continued) {
  storage_->sync();
  for (std::size_t id = 0; id < storage_->places.size(); ++id)
    if (storage_->is_claimed(id) && storage_->trial(id).number == number)
      return {*this, id, number, nullptr, is_continued};
  throw ArgumentError(fmt::format("trial {} isn't running", number));
}

void Study::tell(const StudyTrial& trial, const std::vector<double>& values) {
  if (values.size() != options_.directions.size())
    throw ArgumentError(fmt::format("trial {} has {} values: must be {}, one for each objective",
                                    trial.number_, values.size(), options_.directions.size()));
  if (std::ranges::any_of(values, [](double value) { return std::isnan(value); }))
    return finish(trial, TrialState::fail, {});
  finish(trial, TrialState::complete, values);
}

void Study::tell(const StudyTrial& trial, TrialState state) {
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

void Study::finish(const StudyTrial& trial, TrialState state, const std::vector<double>& values) {
  storage_->sync();
  if (frozen(trial).is_finished())
    throw ArgumentError(fmt::format("trial {} is finished already", trial.number_));
  storage_->write_deferred();
  std::string text;
  for (const double value : values) text += (text.empty() ? "" : ",") + detail::journal_text(value);
  storage_->write(detail::JournalOperation::set_trial_state_values,
                  {{"trial_id", trial.id_},
                   {"state", static_cast<int>(state)},
                   {"datetime_complete", detail::journal_time()}},
                  values.empty() ? "\"values\":null" : "\"values\":[" + text + "]");
  std::error_code none;
  if (storage_->file) std::filesystem::remove(lock_path(trial.number_), none);
}

std::vector<FrozenTrial> Study::trials() {
  storage_->sync();
  return known();
}

std::optional<FrozenTrial> Study::best_trial() {
  if (options_.directions.size() != 1) return {};
  const auto best = best_trials();
  return best.empty() ? std::nullopt : std::optional(best.front());
}

}  // namespace etude::inline v0
