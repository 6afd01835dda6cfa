#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "etude/base/interrupt.hpp"
#include "etude/metrics/metrics.hpp"
#include "etude/metrics/pending_logs.hpp"
#include "etude/parallel/communicator.hpp"
#include "etude/trainer_control.hpp"

namespace etude::inline v0 {

/// Keeps the processes of a training on one path: they all call the same functions in the same order. With
/// one process, the functions do nothing. After `leave`, they send nothing, since the other processes may be
/// elsewhere.
class Ranks {
 public:
  Ranks() : communicator_(std::make_shared<Communicator>()) {}

  void join(std::shared_ptr<Communicator> communicator) { communicator_ = std::move(communicator); }
  Communicator& communicator() const { return *communicator_; }
  /// The communicator or, once this process has left the others, one that sends nothing.
  Communicator& reachable() { return left_ ? alone_ : *communicator_; }

  /// Whether there are other processes, and this one still works with them.
  bool several() const { return communicator_->world_size() > 1 && !left_; }
  std::int64_t rank() const { return communicator_->rank(); }
  std::int64_t world_size() const { return communicator_->world_size(); }
  bool is_first() const { return rank() == 0; }

  bool has_left() const { return left_; }

  /// Gives every process the requests of all, and a signal that any of them has received.
  void agree(TrainerControl& control);

  /// Throws `Interrupted` after a signal; with several processes, once they have agreed on it.
  void throw_if_interrupted() const;

  /// Called in long operations after the same number of batches in all processes: if any of them has received
  /// a signal, throws `Interrupted` in all.
  void interruption_point();

  /// Returns the sum over all processes. After `leave`, returns this process's value times the number of
  /// processes.
  std::vector<double> sum(std::vector<double> values) const;
  double sum(double value) const { return several() || left_ ? sum(std::vector{value}).front() : value; }

  /// The largest number of all processes; unset if it is unset in any process.
  std::optional<std::int64_t> most(std::optional<std::int64_t> number) const;

  /// The texts of all processes, by rank; after `leave`, only this process's.
  std::vector<std::string> gather(const std::string& text) const;
  /// The same for JSON values. Their strings needn't be UTF-8, and their numbers may be infinite or NaN.
  std::vector<nlohmann::json> gather_values(const nlohmann::json& value) const;
  /// The text of the first process. A broadcast would need two messages too: the size and then the text.
  std::string first(const std::string& text) const { return gather(text).front(); }
  Metrics first(const Metrics& metrics) const;

  /// Replaces each mean by the mean of the values logged in all processes. With `by_rank`, also adds the mean
  /// of each process.
  void average(PendingLogs& logs, bool by_rank = false) const;

  /// Returns once all processes have called it.
  void barrier() const {
    if (several()) communicator_->barrier();
  }

  /// Tells the others that this process ends the training because of `error`, unless `error` reports that
  /// another process left; torchrun shows it as the cause.
  void leave(const std::exception_ptr& error);

  /// Throws CommunicationError if this process has left the others.
  void check() const;

  /// Forgets what the processes agreed on in an earlier training.
  void begin_training();

  /// While it lives, the other processes wait to learn how this process's part of the step ended, whether it
  /// threw StopTraining or ran out of memory.
  class Telling {
   public:
    explicit Telling(Ranks& ranks) : ranks_(ranks) { ranks_.tells_ = true; }
    Telling(const Telling&) = delete;
    Telling& operator=(const Telling&) = delete;
    ~Telling() { ranks_.tells_ = false; }

   private:
    Ranks& ranks_;
  };
  bool tells_of_stop() const { return tells_; }

  bool stop_is_agreed = false;    ///< All processes throw StopTraining.
  bool memory_is_agreed = false;  ///< All processes start again, because memory ran out in one.

 private:
  std::shared_ptr<Communicator> communicator_;
  Communicator alone_;
  int signal_ = 0;
  bool left_ = false;
  bool tells_ = false;
  std::int64_t calls_ = 0;
};

}  // namespace etude::inline v0
