#include "etude/loop/calls.hpp"

#include <doctest/doctest.h>

#include <functional>
#include <future>
#include <string>
#include <vector>

#include "common/fault_of.hpp"
#include "common/toy.hpp"
#include "etude/base/error.hpp"

namespace loop_calls_test {

using toy::fault_of;

/// Calls a method of the trainer in every event of one type.
template <class Event>
struct CallsBack {
  std::function<void()> call = [] {};
  void on(const Event&) { call(); }
};

template <class Event>
struct Nested {
  etude::Trainer<CallsBack<Event>> trainer{toy::options(toy::arguments())};
  explicit Nested(std::function<void(decltype(trainer)&)> method) {
    trainer.template callback<CallsBack<Event>>().call = [this, method] { method(trainer); };
  }
};

/// True if a callback that calls the method whenever it receives an `Event` gets the error about recursion.
template <class Event, class Method>
bool is_refused(Method method, const std::string& name) {
  Nested<Event> nested(method);
  const auto fault = fault_of<etude::Error>([&] { method(nested.trainer); });
  CAPTURE(fault);
  return fault.starts_with(name + "() was called from inside itself 8 times: a callback calls it");
}

TEST_CASE(
    "endless recursion of a callback that evaluates at each evaluation is an error, in any of its events") {
  const auto evaluate = [](auto& trainer) { trainer.evaluate(); };
  CHECK(is_refused<etude::EvaluateBegin>(evaluate, "evaluate"));
  CHECK(is_refused<etude::PredictionStep>(evaluate, "evaluate"));
  CHECK(is_refused<etude::EvaluationRunEnd>(evaluate, "evaluate"));
}

TEST_CASE("endless recursion of logs, predictions and checkpoints is an error too") {
  const auto log = [](auto& trainer) {
    etude::Metrics logs{{"more", 1}};
    trainer.log(logs);
  };
  CHECK(is_refused<etude::Log>(log, "log"));
  CHECK(
      is_refused<etude::PredictionStep>([](auto& trainer) { trainer.predict(toy::dataset(1)); }, "predict"));
  CHECK(is_refused<etude::SaveBegin>([](auto& trainer) { trainer.save_checkpoint(); }, "save_checkpoint"));
}

struct EvaluatesOnceMore {
  bool is_asking = false;
  int heard = 0;
  void on(const etude::Evaluate& e) {
    ++heard;
    if (is_asking) return;
    is_asking = true;
    e.trainer.evaluate({.eval_dataset = toy::dataset(2), .metric_key_prefix = "more"});
    is_asking = false;
  }
};

TEST_CASE("a callback may evaluate in an evaluation if it ends the recursion itself") {
  etude::Trainer<EvaluatesOnceMore> trainer(toy::options(toy::arguments()));
  for (int i = 1; i <= 20; ++i) {
    trainer.evaluate();
    CHECK(trainer.callback<EvaluatesOnceMore>().heard == 2 * i);
  }
}

TEST_CASE("after the error the trainer works as before") {
  Nested<etude::EvaluateBegin> nested([](auto& trainer) { trainer.evaluate(); });
  CHECK_THROWS_AS(nested.trainer.evaluate(), etude::Error);
  nested.trainer.callback<CallsBack<etude::EvaluateBegin>>().call = [] {};
  CHECK(nested.trainer.evaluate().contains("eval_loss"));
  CHECK(nested.trainer.train().global_step == 2);
}

TEST_CASE("another thread is refused while a method of the trainer runs, without disturbing it") {
  const toy::Folder folder;
  auto args = toy::arguments();
  args.output_dir = folder;
  etude::Trainer<CallsBack<etude::StepEnd>> trainer(toy::options(args));
  std::vector<std::string> faults;
  const auto in_a_thread = [&](std::function<void()> method) {
    faults.push_back(std::async(std::launch::async, [&] { return fault_of<etude::Error>(method); }).get());
  };
  trainer.callback<CallsBack<etude::StepEnd>>().call = [&] {
    if (!faults.empty()) return;
    in_a_thread([&] { trainer.train(); });
    in_a_thread([&] { trainer.evaluate(); });
    in_a_thread([&] { trainer.predict(toy::dataset(1)); });
    in_a_thread([&] { trainer.save_checkpoint(); });
    in_a_thread([&] { trainer.save_state(); });
    in_a_thread([&] { trainer.save_model(folder / "model"); });
    in_a_thread([&] {
      etude::Metrics logs;
      trainer.log(logs);
    });
  };
  CHECK(trainer.train().global_step == 2);
  const std::vector<std::string> methods{"train",      "evaluate",   "predict", "save_checkpoint",
                                         "save_state", "save_model", "log"};
  REQUIRE(faults.size() == methods.size());
  for (std::size_t i = 0; i < methods.size(); ++i)
    CHECK(faults[i] == methods[i] +
                           "() was called while another thread is in a method of the same trainer: a "
                           "trainer serves one thread at a time");
  CHECK(trainer.state().log_history.size() == 1);
  CHECK(toy::names_in(folder / "").empty());
}

TEST_CASE("threads may take turns using a trainer") {
  etude::Trainer<> trainer(toy::options(toy::arguments()));
  trainer.train();
  CHECK(std::async(std::launch::async, [&] { return trainer.train().global_step; }).get() == 2);
  CHECK(trainer.train().global_step == 2);
}

}  // namespace loop_calls_test
