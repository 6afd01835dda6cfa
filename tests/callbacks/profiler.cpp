#include "etude/callbacks/profiler.hpp"

#include <ATen/record_function.h>
#include <doctest/doctest.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/toy.hpp"
#include "etude/base/error.hpp"

namespace callbacks_profiler_test {

etude::TrainingArguments arguments(const toy::Folder& folder) {
  auto args = toy::arguments();
  args.output_dir = folder;
  return args;
}

/// The events of a trace that either of LibTorch's profilers wrote.
nlohmann::json events_in(const std::filesystem::path& path) {
  const auto trace = nlohmann::json::parse(toy::read_text(path));
  return trace.is_array() ? trace : trace.at("traceEvents");
}

/// Counts how often each name occurs.
std::map<std::string, int> names_in(const std::filesystem::path& path) {
  std::map<std::string, int> counts;
  for (const auto& event : events_in(path))
    if (event.is_object() && event.contains("name") && event.value("ph", "") == "X")
      ++counts[event.at("name").get<std::string>()];
  return counts;
}

std::set<std::string> steps_in(const std::filesystem::path& path) {
  std::set<std::string> steps;
  for (const auto& [name, count] : names_in(path))
    if (name.starts_with("ProfilerStep#")) steps.insert(name);
  return steps;
}

bool is_profiling() { return at::hasCallbacks() || torch::autograd::profiler::profilerEnabled(); }

using Steps = std::set<std::string>;

TEST_CASE("a trace has the configured steps, with their operators, and no others") {
  const toy::Folder folder;
  etude::Trainer<etude::ProfilerCallback> trainer(
      toy::options(arguments(folder), 8),
      etude::ProfilerCallback{.path = "deep/trace.json", .first_step = 3, .num_steps = 2});
  trainer.train();
  const auto path = folder / "deep/trace.json";
  CHECK(steps_in(path) == Steps{"ProfilerStep#3", "ProfilerStep#4"});
  // The line's product and the loss are computed once per step, in the forward pass.
  const auto names = names_in(path);
  CHECK(names.at("aten::mse_loss") == 2);
  CHECK(names.at("aten::mse_loss_backward") >= 2);
  CHECK(names.contains("aten::mul"));
  CHECK_FALSE(is_profiling());

  // The operators of each step are within its range.
  double begin = 0, end = 0;
  for (const auto& event : events_in(path))
    if (event.is_object() && event.value("name", "") == "ProfilerStep#3") {
      begin = event.at("ts").get<double>();
      end = begin + event.at("dur").get<double>();
    }
  int inside = 0;
  for (const auto& event : events_in(path))
    if (event.is_object() && event.value("name", "") == "aten::mse_loss")
      inside += event.at("ts").get<double>() >= begin && event.at("ts").get<double>() <= end;
  CHECK(inside == 1);
}

TEST_CASE("a trace is written, and the profiler ends, if training stops or throws early") {
  struct Ends {
    bool by_throwing = false;
    void on(const etude::BackwardBegin& e) {
      if (e.state.global_step < 3) return;
      if (by_throwing) throw std::runtime_error("no");
      throw etude::StopTraining("enough");
    }
  };
  for (const bool by_throwing : {true, false}) {
    const toy::Folder folder;
    etude::Trainer<Ends, etude::ProfilerCallback> trainer(
        toy::options(arguments(folder), 8), Ends{by_throwing}, etude::ProfilerCallback{.num_steps = 100});
    if (by_throwing)
      CHECK_THROWS_AS(trainer.train(), std::runtime_error);
    else
      CHECK(trainer.train().global_step == 3);
    CHECK(steps_in(folder / "trace.json") == Steps{"ProfilerStep#2", "ProfilerStep#3", "ProfilerStep#4"});
    CHECK_FALSE(is_profiling());
  }
}

TEST_CASE("a trace may span the end of an epoch, and is repeated in a second training") {
  const toy::Folder folder;
  auto args = arguments(folder);
  args.num_train_epochs = 2;
  etude::Trainer<etude::ProfilerCallback> trainer(toy::options(args, 2));
  trainer.train();
  const Steps expected{"ProfilerStep#2", "ProfilerStep#3", "ProfilerStep#4"};
  CHECK(steps_in(folder / "trace.json") == expected);
  std::filesystem::remove(folder / "trace.json");
  trainer.train();
  CHECK(steps_in(folder / "trace.json") == expected);
}

TEST_CASE("the trace has the shapes of inputs, if configured") {
  for (const bool asked : {false, true}) {
    const toy::Folder folder;
    auto args = arguments(folder);
    args.per_device_train_batch_size = 3;
    etude::Trainer<etude::ProfilerCallback> trainer(
        toy::options(args, 6),
        etude::ProfilerCallback{.first_step = 1, .num_steps = 1, .record_shapes = asked});
    trainer.train();
    CHECK((toy::read_text(folder / "trace.json").find("Input Dims") != std::string::npos) == asked);
    std::vector<nlohmann::json> shapes;
    for (const auto& event : events_in(folder / "trace.json"))
      if (event.value("name", "") == "aten::mse_loss")
        shapes.push_back(asked ? event.at("args").at("Input Dims").at(0) : nullptr);
    CHECK(shapes == std::vector<nlohmann::json>{asked ? nlohmann::json{3, 1} : nlohmann::json()});
  }
}

TEST_CASE("a span that training doesn't reach leaves no file") {
  const toy::Folder folder;
  etude::Trainer<etude::ProfilerCallback> trainer(toy::options(arguments(folder)),
                                                  etude::ProfilerCallback{.first_step = 50});
  trainer.train();
  CHECK_FALSE(std::filesystem::exists(folder / "trace.json"));
}

TEST_CASE("unsupported options and inputs are refused by name") {
  const toy::Folder folder;
  const auto refused = [&](etude::ProfilerCallback callback, const char* words) {
    etude::Trainer<etude::ProfilerCallback> trainer(toy::options(arguments(folder)), std::move(callback));
    CHECK_THROWS_WITH_AS(trainer.train(), words, etude::ArgumentError);
  };
  refused({.first_step = 0}, "first_step is 0: must be at least 1");
  refused({.num_steps = 0}, "num_steps is 0: must be at least 1");
  refused({.path = ""}, "path is '': must be the name of a file");
}

}  // namespace callbacks_profiler_test
