#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

/// The recorded values of each metric of a run, in order. The methods match pytorch-accelerated's class of
/// the same name. Derive from it to store a history elsewhere.
class RunHistory {
 public:
  virtual ~RunHistory() = default;

  /// The names, in the order of first use.
  virtual std::vector<std::string> get_metric_names() const = 0;

  /// All values of a metric, or the last one. Throws MetricError that lists the known names.
  virtual std::vector<double> get_metric_values(std::string_view name) const = 0;
  virtual double get_latest_metric(std::string_view name) const = 0;

  /// Adds a value to the metric named `metric_name_prefix()` + `name`.
  virtual void update_metric(std::string_view name, double value) = 0;

  /// Deletes a metric. Throws MetricError that lists the known names.
  virtual void delete_metric(std::string_view name) = 0;

  virtual void set_metric_name_prefix(std::string_view prefix) = 0;
  virtual std::string metric_name_prefix() const = 0;

  /// The number of the current or next epoch, from 1.
  virtual std::int64_t current_epoch() const = 0;
  virtual void set_epoch(std::int64_t epoch) = 0;

  /// Deletes all metrics and returns to epoch 1; keeps the prefix.
  virtual void reset() = 0;

  /// The complete history, for checkpoints.
  virtual nlohmann::ordered_json state() const = 0;
  virtual void load_state(const nlohmann::ordered_json& saved) = 0;
};

/// One metric of a history.
struct RecordedMetric {
  ETUDE_STRUCT(RecordedMetric, (std::string, name, "its name"),
               (std::vector<double>, values, "its values, oldest first"));
};

/// A RunHistory in memory.
class InMemoryRunHistory final : public RunHistory {
 public:
  std::vector<std::string> get_metric_names() const override;
  std::vector<double> get_metric_values(std::string_view name) const override;
  double get_latest_metric(std::string_view name) const override;
  void update_metric(std::string_view name, double value) override;
  void delete_metric(std::string_view name) override;
  void set_metric_name_prefix(std::string_view prefix) override { kept_.prefix = prefix; }
  std::string metric_name_prefix() const override { return kept_.prefix; }
  std::int64_t current_epoch() const override { return kept_.current_epoch; }
  void set_epoch(std::int64_t epoch) override { kept_.current_epoch = epoch; }
  void reset() override;
  nlohmann::ordered_json state() const override;
  void load_state(const nlohmann::ordered_json& saved) override;

 private:
  struct Kept {
    ETUDE_STRUCT(Kept, (std::int64_t, current_epoch, "from 1", 1),
                 (std::string, prefix, "prefix of new metrics' names"),
                 (std::vector<RecordedMetric>, metrics, "the metrics, in order of first use"));
  };

  std::size_t index_of(std::string_view name) const;
  std::size_t known_index_of(std::string_view name) const;

  Kept kept_;
};

}  // namespace etude::inline v0
