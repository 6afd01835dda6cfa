#include "etude/training_arguments.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/fault_of.hpp"
#include "etude/base/error.hpp"
#include "etude/reflect/command_line.hpp"
#include "etude/reflect/json.hpp"
#include "etude/reflect/struct.hpp"

namespace training_arguments_test {

using etude::parse_arguments;
using etude::TrainingArguments;
using Words = std::vector<std::string>;

TEST_CASE("the defaults are the reference's, except that signals are handled and callbacks restored") {
  const auto defaults = nlohmann::json::parse(R"({
    "output_dir": "trainer_output", "per_device_train_batch_size": 8, "per_device_eval_batch_size": 8,
    "num_train_epochs": 3.0, "max_steps": -1, "learning_rate": 5e-5, "lr_scheduler_type": "linear",
    "lr_scheduler_kwargs": {}, "warmup_steps": 0.0, "optim": "adamw_torch_fused", "optim_args": "",
    "weight_decay": 0.0, "adam_beta1": 0.9, "adam_beta2": 0.999, "adam_epsilon": 1e-8, "max_grad_norm": 1.0,
    "max_grad_value": 0.0, "gradient_accumulation_steps": 1, "eval_strategy": "no", "eval_steps": null,
    "eval_delay": 0.0, "eval_on_start": false, "prediction_loss_only": false, "eval_accumulation_steps": null,
    "eval_do_concat_batches": true, "batch_eval_metrics": false, "include_for_metrics": [],
    "save_strategy": "steps", "save_steps": 500.0, "save_only_model": false, "load_best_model_at_end": false,
    "save_total_limit": null, "save_async": false, "save_on_exception": false, "enable_jit_checkpoint": true,
    "restore_callback_states_from_checkpoint": true, "ignore_data_skip": false,
    "metric_for_best_model": null, "greater_is_better": null, "logging_strategy": "steps",
    "logging_steps": 500.0, "logging_first_step": false, "logging_nan_inf_filter": true, "log_level": "passive",
    "disable_tqdm": null, "report_to": [], "run_name": null, "seed": 42, "data_seed": null, "full_determinism": false,
    "bf16": false, "use_cpu": false, "train_sampling_strategy": "random", "dataloader_drop_last": false,
    "dataloader_num_workers": 0, "dataloader_prefetch_factor": null, "dataloader_pin_memory": true,
    "label_names": null, "label_smoothing_factor": 0.0, "include_num_input_tokens_seen": "no",
    "auto_find_batch_size": false, "auto_microbatching": false})");
  const auto ours = etude::to_json_value(TrainingArguments());
  for (auto field = defaults.begin(); field != defaults.end(); ++field) {
    CAPTURE(field.key());
    CHECK(nlohmann::json(ours.at(field.key())) == field.value());
  }
}

TEST_CASE("the enums have the reference's names") {
  CHECK(fmt::format("{}", fmt::join(etude::enum_names<etude::SaveStrategy>, " ")) == "no steps epoch best");
  CHECK(fmt::format("{}", fmt::join(etude::enum_names<etude::IntervalStrategy>, " ")) == "no steps epoch");
  CHECK(fmt::format("{}", fmt::join(etude::enum_names<etude::SchedulerType>, " ")) ==
        "linear cosine cosine_with_restarts polynomial constant constant_with_warmup inverse_sqrt "
        "reduce_lr_on_plateau cosine_with_min_lr cosine_warmup_with_min_lr warmup_stable_decay greedy "
        "step_lr multi_step_lr constant_lr linear_lr exponential_lr polynomial_lr cosine_annealing_lr "
        "cosine_annealing_warm_restarts cyclic_lr one_cycle_lr sequential_lr chained_scheduler");
  CHECK(etude::from_string<etude::OptimizerNames>("adamw_torch") == etude::OptimizerNames::adamw_torch);
}

TEST_CASE("every field is documented") {
  const TrainingArguments args;
  etude::for_each_field(args, [](std::string_view name, std::string_view doc, const auto&) {
    CAPTURE(name);
    CHECK(doc.size() > 5);
  });
}

TEST_CASE("arguments round-trip through JSON") {
  const TrainingArguments args{.output_dir = "out \"x\"",
                               .max_steps = 7,
                               .optim = etude::OptimizerNames::lion,
                               .learning_rate = 0.1,
                               .lr_scheduler_kwargs = {{"num_cycles", 2}},
                               .eval_steps = 0.25,
                               .include_for_metrics = {"inputs", "loss"},
                               .greater_is_better = false,
                               .disable_tqdm = true,
                               .data_seed = 0,
                               .label_names = std::vector<std::string>{"a", "b"}};
  CHECK(etude::from_json_text<TrainingArguments>(etude::to_json_text(args)) == args);
  CHECK(etude::from_json_text<TrainingArguments>("{}") == TrainingArguments());
}

TEST_CASE("the command line fills the arguments and validates them") {
  const auto args = parse_arguments<TrainingArguments>(
      Words{"--learning_rate", "1e-3", "--eval_strategy", "epoch", "--lr_scheduler_kwargs", "num_cycles=2",
            "--no_dataloader_pin_memory", "--warmup_steps", "0.1", "--label_names", "a", "b"});
  CHECK(args == TrainingArguments{.learning_rate = 1e-3,
                                  .lr_scheduler_kwargs = {{"num_cycles", 2}},
                                  .warmup_steps = 0.1,
                                  .eval_strategy = etude::IntervalStrategy::epoch,
                                  .dataloader_pin_memory = false,
                                  .label_names = std::vector<std::string>{"a", "b"}});
  CHECK_THROWS_WITH_AS(
      parse_arguments<TrainingArguments>(Words{"--learning_rat", "1", "--seed", "-1", "--optim", "adm"}),
      fmt::format("unknown flag --learning_rat; did you mean '--learning_rate'?\n"
                  "--optim is 'adm': must be one of {}; did you mean 'adam'?\n"
                  "seed is -1: must be at least 0",
                  fmt::join(etude::enum_names<etude::OptimizerNames>, ", "))
          .c_str(),
      etude::ArgumentError);
}

TEST_CASE("a name that is cut short or lacks a word is completed") {
  const auto fault = [](Words words) -> std::string {
    return toy::fault_of<etude::ArgumentError>([&] { (void)parse_arguments<TrainingArguments>(words); });
  };
  CHECK(fault({"--optim", "adamw"}).ends_with("; did you mean 'adamw_torch'?"));
  CHECK(fault({"--lr_scheduler_type", "cos"}).ends_with("; did you mean 'cosine'?"));
  CHECK(fault({"--eval_strategy", "epochs"}).ends_with("; did you mean 'epoch'?"));
  CHECK(fault({"--batch_size", "4"}) ==
        "unknown flag --batch_size; did you mean '--per_device_train_batch_size'?");
  CHECK(fault({"--epochs", "4"}) == "unknown flag --epochs; did you mean '--num_train_epochs'?");
}

TEST_CASE("names from other programs suggest the right argument") {
  const auto fault = [](const std::string& flag) -> std::string {
    return toy::fault_of<etude::ArgumentError>([&] {
      (void)parse_arguments<TrainingArguments>(Words{flag, "1"});
    });
  };
  CHECK(fault("--lr") == "unknown flag --lr; did you mean '--learning_rate'?");
  CHECK(fault("--num_epochs") == "unknown flag --num_epochs; did you mean '--num_train_epochs'?");
  CHECK(fault("--warmup_ratio") == "unknown flag --warmup_ratio; did you mean '--warmup_steps'?");
  CHECK(fault("--log-every") == "unknown flag --log-every; did you mean '--logging_steps'?");
  CHECK(fault("--device") == "unknown flag --device; did you mean '--use_cpu'?");
}

TEST_CASE("names from other programs aren't arguments, and suggest existing ones") {
  const auto fields = etude::field_names<TrainingArguments>();
  const auto is_field = [&](std::string_view name) {
    return std::ranges::find(fields, name) != fields.end();
  };
  const auto elsewhere = etude::names_elsewhere(TrainingArguments{});
  REQUIRE(elsewhere.size() > 4);
  for (const auto& name : elsewhere) {
    CAPTURE(name.first);
    CHECK_FALSE(is_field(name.first));
    CHECK(is_field(name.second));
  }
}

TEST_CASE("log_level counts in the first process, and log_level_replica in the others") {
  TrainingArguments args{.log_level = etude::LogLevel::info, .log_level_replica = etude::LogLevel::error};
  CHECK(args.shows(etude::LogLevel::info));
  args.launch.rank = 1;
  CHECK_FALSE(args.shows(etude::LogLevel::info));
  CHECK_FALSE(args.shows(etude::LogLevel::warning));
  CHECK(args.shows(etude::LogLevel::error));
}

}  // namespace training_arguments_test
