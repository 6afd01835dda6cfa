#include "program_optimizer.hpp"

#include <nlohmann/json.hpp>
#include <utility>

namespace etude::inline v0::c {

ProgramOptimizer::ProgramOptimizer(const NamedTensors& parameters, double learning_rate,
                                   std::function<void(double)> step)
    : Optimizer({{parameters, learning_rate, 0.0}}, learning_rate, 0), step_(std::move(step)) {}

void ProgramOptimizer::update() {
  begin_step();
  step_(groups_.front().lr);
}

nlohmann::ordered_json ProgramOptimizer::group_options(std::size_t group) {
  return with_numbers_of(group, nlohmann::ordered_json::object());
}

}  // namespace etude::inline v0::c
