#pragma once

#include <exception>
#include <string_view>

#include "etude/loop/run_settings.hpp"
#include "etude/loop/trained.hpp"
#include "etude/parallel/gradient_reducer.hpp"

namespace etude::inline v0::detail {

/// Throws ArgumentError for a callback of this name that reads the parameters between steps.
[[noreturn]] void refuse_reader(std::string_view callback);

/// Divides the state of the optimizers, unless it is divided already, and the rest of the stage among the
/// processes. Throws ArgumentError for a model that doesn't work with the stage.
void shard_optimizers(const RunSettings& run, Trained& trained);

/// Throws `error`, which ends the training in all processes: they exchange the parameters of units, so they
/// must all run the same ones.
[[noreturn]] void leave_path(const Trained& trained, const std::exception_ptr& error);

/// Does the same unless `error` is null. Throws DataError in all processes if only some have batches.
void check_same_path(const Ranks& ranks, const Trained& trained, GradientsResult fetched,
                     const std::exception_ptr& error);

/// Resets the units when a training ends: modules then run without them again.
class EndOfUnits {
 public:
  explicit EndOfUnits(Trained& trained) : trained_(trained) {}
  EndOfUnits(const EndOfUnits&) = delete;
  EndOfUnits& operator=(const EndOfUnits&) = delete;
  ~EndOfUnits();

 private:
  Trained& trained_;
};

}  // namespace etude::inline v0::detail
