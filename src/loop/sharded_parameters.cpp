#include "etude/loop/sharded_parameters.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <unordered_map>

#include "etude/any_trainer.hpp"
#include "etude/base/error.hpp"
#include "etude/base/message.hpp"
#include "etude/parallel/sharded_units.hpp"
#include "etude/parallel/shards.hpp"

namespace etude::inline v0::detail {

namespace {

/// The unit of each parameter that ShardedDataParallel<3> divides; empty for the other stages.
std::unordered_map<std::string, std::size_t> unit_of_shards(const RunSettings& run, const Trained& trained) {
  if (run.shard_stage != ShardStage::parameters) return {};
  auto result = unit_of_parameters(trained.model);
  if (run.ranks.world_size() > 1)
    message(
        run.args, LogLevel::warning,
        "ShardedDataParallel<3> is an experiment: the parameters of the model's units are divided among {} "
        "processes, and read as NaN between uses",
        run.ranks.world_size());
  return result;
}

}  // namespace

void refuse_reader(std::string_view callback) {
  throw ArgumentError(
      fmt::format("{} reads the parameters between steps: can't be used with ShardedDataParallel<3>, "
                  "which keeps them divided among the processes",
                  callback));
}

void shard_optimizers(const RunSettings& run, Trained& trained) {
  const auto unit_of = unit_of_shards(run, trained);
  for (const auto& each : trained.optimizers)
    if (!each.optimizer->flat_parameters().layout()->is_sharded())
      shard(*each.optimizer, run.ranks.communicator(), *run.shard_stage, run.args.ddp_bucket_cap_mb << 20,
            unit_of);
}

namespace {

/// The feature that requires all processes to do the same, for messages.
std::string_view one_path_of(const Trained& trained) {
  return trained.sharded_units ? "ShardedDataParallel<3>" : "a training_step that makes its own steps";
}

}  // namespace

void leave_path(const Trained& trained, const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const StopTraining& stop) {
    throw Error(fmt::format("{} (with {}, only a callback can stop one process of several by StopTraining)",
                            stop.what(), one_path_of(trained)));
  }
}

void check_same_path(const Ranks& ranks, const Trained& trained, GradientsResult fetched,
                     const std::exception_ptr& error) {
  if (error) leave_path(trained, error);
  const double without = ranks.sum(fetched == GradientsResult::complete ? 0 : 1);
  if (without > 0 && without < static_cast<double>(ranks.world_size()))
    throw DataError(
        fmt::format("train_dataset has no more batches in {} of {} processes: with {}, all must have as many",
                    without, ranks.world_size(), one_path_of(trained)));
}

EndOfUnits::~EndOfUnits() {
  trained_.sharded_units.reset();
  trained_.recomputed_units.reset();
}

}  // namespace etude::inline v0::detail
