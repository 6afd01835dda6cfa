#include "etude/trainer_state.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/reflect/json.hpp"

namespace trainer_state_test {

using etude::TrainerState;

// The Python trainer's format, with a key that a later version may add.
constexpr auto written_elsewhere = R"({
  "best_global_step": 10,
  "best_metric": 0.0123,
  "best_model_checkpoint": "out/checkpoint-10",
  "epoch": 1.25,
  "eval_steps": 5,
  "from_the_future": [1, 2],
  "global_step": 10,
  "is_hyper_param_search": false,
  "is_local_process_zero": true,
  "is_world_process_zero": true,
  "log_history": [
    {"epoch": 0.625, "grad_norm": 4.1, "learning_rate": 0.083, "loss": 3.2, "step": 5},
    {"epoch": 0.625, "eval_loss": 1.9, "step": 5}
  ],
  "logging_steps": 5,
  "max_steps": 24,
  "num_input_tokens_seen": 0,
  "num_train_epochs": 3,
  "save_steps": 5,
  "stateful_callbacks": {
    "EarlyStoppingCallback": {"args": {"early_stopping_patience": 3}, "attributes": {}}
  },
  "total_flos": 0.0,
  "train_batch_size": 8,
  "trial_name": null,
  "trial_params": null
})";

TEST_CASE("a new state has the reference's defaults under its keys, sorted") {
  CHECK(etude::to_json_text(TrainerState(), etude::KeyOrder::sorted) == R"({
  "best_global_step": null,
  "best_metric": null,
  "best_model_checkpoint": null,
  "epoch": 0.0,
  "eval_steps": 500,
  "global_step": 0,
  "is_hyper_param_search": false,
  "is_local_process_zero": true,
  "is_world_process_zero": true,
  "log_history": [],
  "logging_steps": 500,
  "max_steps": 0,
  "num_input_tokens_seen": 0,
  "num_train_epochs": 0,
  "save_steps": 500,
  "stateful_callbacks": {},
  "total_flos": 0.0,
  "train_batch_size": null,
  "trial_name": null,
  "trial_params": null
}
)");
}

TEST_CASE("a state written by the Python trainer is read, unknown keys reported") {
  std::vector<std::string> unknown;
  const auto state = etude::from_json_text<TrainerState>(written_elsewhere, &unknown);
  CHECK(unknown == std::vector<std::string>{"from_the_future"});
  CHECK(state.best_metric == 0.0123);
  CHECK(state.best_model_checkpoint == "out/checkpoint-10");
  CHECK(state.train_batch_size == 8);
  CHECK(state.trial_name == std::nullopt);
  REQUIRE(state.log_history.size() == 2);
  CHECK(state.log_history[0].at("loss") == 3.2);
  CHECK(state.log_history[1].at("step") == 5);
  CHECK(state.stateful_callbacks["EarlyStoppingCallback"]["args"]["early_stopping_patience"] == 3);
}

TEST_CASE("a state round-trips through JSON, non-finite numbers too") {
  TrainerState state{.epoch = 0.1, .global_step = 1, .best_metric = -std::numeric_limits<double>::infinity()};
  state.log_history.push_back(
      {{"loss", std::numeric_limits<double>::quiet_NaN()}, {"step", 1}, {"note", "hot"}});
  const auto text = etude::to_json_text(state, etude::KeyOrder::sorted);
  CHECK(nlohmann::json::accept(text));
  CHECK(text.find("\"best_metric\": \"-Infinity\"") != text.npos);
  CHECK(text.find("\"loss\": \"NaN\"") != text.npos);

  const auto read = etude::from_json_text<TrainerState>(text);
  CHECK(read.best_metric == state.best_metric);
  CHECK(std::isnan(read.log_history[0].at("loss").get<double>()));
  CHECK(read.log_history[0].at("note") == "hot");
  CHECK(etude::to_json_text(read, etude::KeyOrder::sorted) == text);
}

TEST_CASE("a state of wrong types names each of them") {
  CHECK_THROWS_WITH_AS(
      etude::from_json_text<TrainerState>(R"({"global_step": "ten", "log_history": [{}, 3], "epoch": null})"),
      "epoch is null: must be a number\n"
      "global_step is \"ten\": must be a whole number\n"
      "log_history[1] is 3: must be an object",
      etude::ArgumentError);
}

}  // namespace trainer_state_test
