#include "etude/testing/laws/moment.hpp"

#include <ATen/Context.h>
#include <fmt/format.h>
#include <torch/nn/module.h>

#include <string>
#include <string_view>

#include "etude/libtorch/generators.hpp"
#include "etude/model/model.hpp"
#include "etude/trainer_state.hpp"

namespace etude::inline v0::laws::detail {

std::string Disturbance::words() const {
  const auto place =
      event.starts_with("the model's")
          ? std::string(event)
          : fmt::format("{} in {}", before ? "an earlier callback" : "a later callback", event);
  switch (way) {
    case Way::throws:
      return fmt::format("an exception of {}", place);
    case Way::throws_stop:
      return fmt::format("StopTraining thrown by {}", place);
    case Way::asks_to_stop:
      return fmt::format("a stop requested by {}", place);
    default:
      return "a whole training";
  }
}

std::string Moment::words() const { return fmt::format("at {} of step {}", event, step); }

Moment moment_of(const Context& e, std::string_view event) {
  Moment moment{.event = event, .step = e.state.global_step};
  // With several processes, an evaluation copies the first process's buffers to the others.
  for (const auto& [name, tensor] :
       e.args.world_size() > 1 ? e.model.named_parameters() : e.model.state_dict())
    moment.weights.emplace_back(name, tensor.detach().clone());
  for (const auto& item : e.model.module()->named_modules("model"))
    moment.modes.emplace_back(item.key(), item.value()->is_training());
  moment.random = generator_state(at::globalContext().defaultGenerator(torch::kCPU));
  return moment;
}

}  // namespace etude::inline v0::laws::detail
