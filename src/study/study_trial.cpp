#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <variant>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/io/folder_lock.hpp"
#include "etude/study/study.hpp"
#include "study_storage.hpp"

namespace etude::inline v0 {

nlohmann::ordered_json StudyTrial::suggest(const std::string& name, const Distribution& distribution) {
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
  auto& storage = *study_->storage_;
  const auto check_kind = [&] {
    const auto& study = storage.studies[storage.own];
    if (const auto found = study.unusable.find(name); found != study.unusable.end())
      throw ArgumentError(
          fmt::format("{} can't be suggested in the study {}: {}", name, options.study_name, found->second));
    const auto found = study.kinds.find(name);
    if (found == study.kinds.end()) return;
    const auto& [number, kind] = found->second;
    if (!detail::are_compatible(kind, distribution))
      throw ArgumentError(fmt::format("{} is {}: must be {}, as in trial {}", name,
                                      detail::kind_in_words(distribution), detail::kind_in_words(kind),
                                      number));
  };
  check_kind();
  const auto fits = [&](double value) {
    return std::holds_alternative<Choices>(distribution) || from_number(distribution, value) == value;
  };
  double number = 0;
  const auto& attrs = study_->frozen(*this).system_attrs;
  if (attrs.contains("fixed_params") && attrs["fixed_params"].contains(name)) try {
      number = to_number(name, distribution, attrs["fixed_params"][name]);
    } catch (const ArgumentError& error) {
      throw DataError(fmt::format("trial {} was enqueued with other values: {}", number_, error.what()));
    }
  else if (const auto known = relative_.find(name); known != relative_.end() && fits(known->second))
    number = known->second;
  else {
    // Seeded by name, so that a trial killed between two suggestions continues with the same values.
    RandomNumbers random(detail::stream_seed(options.seed, number_, name));
    number = options.sampler->sample_independent({others_, study_->direction(), number_, random}, name,
                                                 distribution);
  }
  storage.write(detail::JournalOperation::set_trial_param,
                {{"trial_id", id_},
                 {"param_name", name},
                 {"param_value_internal", number},
                 {"distribution", distribution_json(distribution).dump()}});
  // Another process may have used a different kind meanwhile, and then this record has no effect.
  check_kind();
  return from_number(distribution, number);
}

void StudyTrial::report(double value, std::int64_t step) {
  if (study_->frozen(*this).intermediate_values.contains(step)) return;
  study_->storage_->write(detail::JournalOperation::set_trial_intermediate_value,
                          {{"trial_id", id_}, {"step", step}},
                          "\"intermediate_value\":" + detail::journal_text(value));
}

bool StudyTrial::should_prune() {
  const auto& trial = study_->frozen(*this);
  if (trial.system_attrs.contains(detail::pruned_attr)) return true;
  if (!study_->options_.pruner || trial.intermediate_values.empty()) return false;
  study_->storage_->sync();
  const auto verdict =
      study_->options_.pruner->judge(study_->known(), study_->frozen(*this), study_->direction());
  std::vector<Study::Storage::Json> records;
  const auto add = [&](const std::string& name, const nlohmann::ordered_json& value) {
    records.push_back(Study::Storage::record(detail::JournalOperation::set_trial_system_attr,
                                             {{"trial_id", id_}, {"system_attr", {{name, value}}}},
                                             study_->storage_->worker));
  };
  // Written together, with the verdict first, so that a process that ends here leaves either all or nothing.
  if (verdict.prune) add(detail::pruned_attr, true);
  for (const auto& [name, value] : verdict.notes) add(name, value);
  if (!records.empty()) study_->storage_->write_exclusively([&] { return records; });
  return verdict.prune;
}

void StudyTrial::set_user_attr(const std::string& name, const nlohmann::ordered_json& value) {
  study_->storage_->write(detail::JournalOperation::set_trial_user_attr,
                          {{"trial_id", id_}, {"user_attr", {{name, value}}}});
}

void StudyTrial::set_system_attr(const std::string& name, const nlohmann::ordered_json& value) {
  study_->storage_->write(detail::JournalOperation::set_trial_system_attr,
                          {{"trial_id", id_}, {"system_attr", {{name, value}}}});
}

void StudyTrial::defer() { study_->storage_->defers = study_->storage_->file.has_value(); }

void StudyTrial::record() { study_->storage_->write_deferred(); }

void StudyTrial::discard() {
  study_->storage_->defers = false;
  study_->storage_->deferred.clear();
}

FrozenTrial StudyTrial::frozen() const { return study_->frozen(*this); }

int StudyTrial::lock_descriptor() const { return lock_ ? lock_->descriptor() : -1; }

}  // namespace etude::inline v0
