#include <fmt/format.h>
#include <torch/types.h>

#include <cstdint>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "etude/optim/create.hpp"
#include "etude/optim/lr_scheduler.hpp"
#include "etude/reflect/enum.hpp"
#include "etude/training_arguments.hpp"

// The C++ half of schedules.py: for each schedule that a line of JSON describes, prints a line with the
// learning rates of all groups, and the momentum if the schedule changes it, for each step.
int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const auto run = nlohmann::json::parse(line);
    etude::TrainingArguments args;
    args.optim = etude::OptimizerNames::sgd;
    args.optim_args = "momentum=0.9";
    args.learning_rate = run.at("lrs").at(0);
    args.lr_scheduler_type = etude::from_string<etude::SchedulerType>(run.at("type").get<std::string>());
    args.lr_scheduler_kwargs = run.at("kwargs");
    args.warmup_steps = run.at("warmup");
    std::vector<etude::ParameterGroup> groups;
    for (const double lr : run.at("lrs")) {
      const auto parameter = torch::zeros({1}).set_requires_grad(true);
      groups.push_back({{{fmt::format("p{}", groups.size()), parameter}}, lr, {}});
    }
    const auto optimizer = etude::make_optimizer(args, groups);
    const auto scheduler = etude::make_scheduler(args, *optimizer, run.at("total"));
    const auto print = [&] {
      for (const auto& group : optimizer->param_groups()) fmt::print("{:.17g} ", group.lr);
      if (const auto momentum = optimizer->param_groups().back().momentum) fmt::print("{:.17g} ", *momentum);
    };
    const std::vector<double> metrics = run.at("metrics");
    for (std::int64_t step = 0; step < run.at("steps").get<std::int64_t>(); ++step) {
      print();
      scheduler->step();
      if (!metrics.empty()) scheduler->step(metrics[static_cast<std::size_t>(step)]);
    }
    fmt::print("\n");
  }
}
