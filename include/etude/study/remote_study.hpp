#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "etude/study/trial.hpp"

namespace etude::inline v0 {

/// A study in another program, such as Optuna's in Python, which chooses the values and decides which trials
/// are pruned. Each request and each answer is a JSON object:
///
///     {"ask": {"directions": ["minimize"]}}                                {"number": 0}, or null: none left
///     {"suggest": {"number": 0, "name": "lr", "distribution": {...}}}      {"value": 0.01}
///     {"report": {"number": 0, "step": 100, "value": 0.9}}                 {"prune": false}
///     {"set_user_attr": {"number": 0, "name": "note", "value": "text"}}    {}
///     {"tell": {"number": 0, "state": "complete", "values": [0.95]}}       {}
///
/// Distributions are written as Optuna's `distribution_to_json` writes them; numbers that aren't finite are
/// "NaN", "Infinity" and "-Infinity". An answer {"error": "text"} throws Error with the text, and a malformed
/// answer throws CommunicationError.
class RemoteStudy {
 public:
  using Json = nlohmann::ordered_json;
  /// Sends a request and returns its answer.
  using Exchange = std::function<Json(const Json& request)>;

  explicit RemoteStudy(Exchange exchange) : exchange_(std::make_shared<Exchange>(std::move(exchange))) {}

  /// Returns a trial to run; null if there are no more. The other program refuses directions that differ from
  /// its study's.
  std::unique_ptr<Trial> ask(const std::vector<StudyDirection>& directions);
  void tell(const Trial& trial, const std::vector<double>& values);
  /// Ends the trial as pruned or failed.
  void tell(const Trial& trial, TrialState state);

 private:
  std::shared_ptr<Exchange> exchange_;
};

/// Exchanges requests and answers as lines of JSON on two file descriptors, for example of pipes. Throws
/// CommunicationError once the other end is closed.
RemoteStudy::Exchange exchange_lines(int in, int out);

}  // namespace etude::inline v0
