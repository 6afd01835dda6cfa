#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "etude/data/batch.hpp"
#include "etude/data/batch_stream.hpp"
#include "etude/data/dataset_state.hpp"
#include "etude/loop/core.hpp"
#include "etude/loop/event_source.hpp"
#include "etude/model/loss_divisor.hpp"

namespace etude::inline v0 {

/// Where the micro-batches of an epoch come from.
class BatchSource {
 public:
  BatchSource() = default;
  BatchSource(const BatchSource&) = delete;
  BatchSource& operator=(const BatchSource&) = delete;
  virtual ~BatchSource() = default;

  /// Returns the next micro-batch; nothing at the end of the epoch.
  virtual std::optional<Batch> next() = 0;
  /// The last micro-batch's share of the examples of all processes.
  virtual double share() const = 0;
  /// The number of the epoch's examples up to the end of the last micro-batch, over all processes.
  virtual std::int64_t position() const = 0;
  /// The state of the dataset after the last micro-batch, if it has a state.
  virtual std::shared_ptr<const DatasetState> dataset_state() const = 0;
};

/// The batches of a loader.
class LoadedBatches final : public BatchSource {
 public:
  explicit LoadedBatches(BatchStream stream) : stream_(std::move(stream)) {}
  std::optional<Batch> next() override { return stream_.next(); }
  double share() const override { return stream_.share(); }
  std::int64_t position() const override { return stream_.position(); }
  std::shared_ptr<const DatasetState> dataset_state() const override { return stream_.dataset_state(); }
  const BatchStream& stream() const { return stream_; }

 private:
  BatchStream stream_;
};

/// The micro-batches of the update under way, with the changes that handlers made to them.
class MicroBatches {
 public:
  explicit MicroBatches(EventSource& events) : events_(events), core_(events.core()) {}

  std::size_t size() const { return batches_.size(); }
  bool empty() const { return batches_.empty(); }
  Batch& operator[](std::size_t i) { return batches_[i]; }
  const std::vector<Batch>& all() const { return batches_; }
  void clear() { batches_.clear(); }

  /// Makes a micro-batch the group's current one.
  void enter(std::size_t i);

  /// The number of examples in the largest micro-batch.
  std::int64_t largest() const;

  /// Fetches the micro-batches of the next update and returns their number, which may be smaller at the end
  /// of an epoch.
  std::int64_t fetch(BatchSource& source);

  /// Weights the micro-batches by their share of the examples of all processes, each of which brings
  /// different batches. A process with fewer micro-batches repeats its last one with weight 0, so that all
  /// make the same steps. Returns the number of micro-batches; all processes call it.
  std::int64_t join_others();

  /// Begins to replace the divisors of the group's losses with those of all processes.
  void share_divisors();

 private:
  void receive(Batch& batch);

  EventSource& events_;
  TrainerCore& core_;
  std::vector<Batch> batches_;
  std::vector<double> shares_;
  std::vector<std::optional<LossDivisor>> divisors_;  // of the losses; none if they aren't known or needed
  std::optional<Batch> spare_;                        // this process's last, if each brings different ones
};

}  // namespace etude::inline v0
