#pragma once

#include <memory>
#include <utility>

#include "etude/linkage.hpp"
#include "etude/optim/lr_scheduler.hpp"
#include "etude/trainer_options.hpp"

namespace etude {

ETUDE_INLINE LRSchedulerOption::LRSchedulerOption(Schedule factor,
                                                  std::shared_ptr<torch::optim::LRScheduler> scheduler)
    : needs_torch_optimizer_(scheduler != nullptr) {
  if (factor)
    make_ = [factor = std::move(factor)](Optimizer& optimizer) -> std::unique_ptr<LRScheduler> {
      return std::make_unique<LambdaLR>(optimizer, factor);
    };
  else
    make_ = [scheduler = std::move(scheduler)](Optimizer& optimizer) -> std::unique_ptr<LRScheduler> {
      return std::make_unique<TorchLRScheduler>(optimizer, scheduler);
    };
}

ETUDE_INLINE std::unique_ptr<LRScheduler> LRSchedulerOption::operator()(Optimizer& optimizer) const {
  return make_(optimizer);
}

}  // namespace etude
