#include "etude/trainer_options.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/formats/safetensors.hpp"
#include "etude/io/file_system.hpp"
#include "etude/model/model.hpp"
#include "etude/optim/lr_scheduler.hpp"

namespace etude::inline v0 {

LRSchedulerOption::LRSchedulerOption(Schedule factor, std::shared_ptr<torch::optim::LRScheduler> scheduler)
    : needs_torch_optimizer_(scheduler != nullptr) {
  if (factor)
    make_ = [factor = std::move(factor)](Optimizer& optimizer,
                                         const TrainerRunConfig&) -> std::unique_ptr<LRScheduler> {
      return std::make_unique<LambdaLR>(optimizer, factor);
    };
  else
    make_ = [scheduler = std::move(scheduler)](Optimizer& optimizer,
                                               const TrainerRunConfig&) -> std::unique_ptr<LRScheduler> {
      return std::make_unique<TorchLRScheduler>(optimizer, scheduler);
    };
}

LRSchedulerOption::LRSchedulerOption(std::function<Schedule(const TrainerRunConfig&)> schedule_of)
    : make_([schedule_of = std::move(schedule_of)](
                Optimizer& optimizer, const TrainerRunConfig& run) -> std::unique_ptr<LRScheduler> {
        auto factor = schedule_of(run);
        if (!factor) throw ArgumentError("lr_scheduler returned an empty function");
        return std::make_unique<LambdaLR>(optimizer, std::move(factor));
      }) {}

const char* TrainOptions::Resume::throw_null() {
  throw ArgumentError("resume_from_checkpoint is a null pointer: must be a path, true, false or if_any");
}

void TrainerOptions::save_companions(const Model& of_model, const std::vector<NamedTensor>& state,
                                     const std::filesystem::path& folder) const {
  for (const auto& [name, text] : of_model.files()) write_file(files(), folder / name, text);
  for (const auto& [file, names] : of_model.tensor_files()) {
    const std::map<std::string, torch::Tensor> by_name(state.begin(), state.end());
    std::vector<NamedTensor> tensors;
    for (const auto& [name, own] : names) {
      const auto found = by_name.find(own);
      if (found == by_name.end())
        throw CheckpointError(fmt::format("{}: the model has no tensor '{}'", file, own));
      tensors.emplace_back(name, found->second);
    }
    save_safetensors(folder / file, tensors, {{"format", "pt"}}, files());
  }
  if (processing_class) processing_class.save(folder);
}

std::unique_ptr<LRScheduler> LRSchedulerOption::operator()(Optimizer& optimizer,
                                                           const TrainerRunConfig& run) const {
  return make_(optimizer, run);
}

}  // namespace etude::inline v0
