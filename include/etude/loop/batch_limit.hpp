#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace etude::inline v0 {

/// Returns the value of the environment variable ETUDE_LIMIT_BATCHES: the number of batches after which every
/// trainer ends its epochs and evaluations, as with `LimitBatchesCallback`. Returns nullopt if the variable
/// is unset, empty or "none". Throws ArgumentError for anything else.
std::optional<std::int64_t> batch_limit_of_environment();

/// Sets ETUDE_LIMIT_BATCHES for as long as it lives, then restores it. No other thread may use the
/// environment when one is constructed or destroyed.
class LimitBatches {
 public:
  /// Throws ArgumentError for a number below 1.
  explicit LimitBatches(std::int64_t num_batches);
  LimitBatches(const LimitBatches&) = delete;
  LimitBatches& operator=(const LimitBatches&) = delete;
  ~LimitBatches();

 private:
  std::optional<std::string> before_;
};

}  // namespace etude::inline v0
