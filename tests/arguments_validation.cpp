#include "etude/base/error.hpp"
#include "etude/training_arguments.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

namespace arguments_validation_test {

using etude::IntervalStrategy;
using etude::SaveStrategy;
using etude::SchedulerType;
using etude::TrainingArguments;
using Lines = std::vector<std::string>;

constexpr auto nan_value = std::numeric_limits<double>::quiet_NaN();
constexpr auto infinity = std::numeric_limits<double>::infinity();

void check_fault(const TrainingArguments& args, const std::string& line) {
  CHECK(faults(args) == Lines{line});
}
void check_good(const TrainingArguments& args) { CHECK(faults(args) == Lines{}); }

constexpr auto interval = "a whole number of steps >= 1, or a fraction of all steps between 0 and 1";

TEST_CASE("the defaults are valid") { check_good({}); }

TEST_CASE("cuda_graph excludes what can't be captured") {
  const auto check = [](TrainingArguments args, const std::string& what) {
    args.cuda_graph = true;
    check_fault(args, "cuda_graph is true: must be false with " + what);
    args.cuda_graph = false;
    check_good(args);
  };
  check({.fp16 = true}, "fp16, which looks for overflows on the host in each step");
  check({.pure_bf16 = true}, "pure_bf16, whose updates are rounded by numbers from the host");
  check({.gradient_accumulation_steps = 2}, "gradient_accumulation_steps above 1");
  check({.auto_microbatching = true}, "auto_microbatching, which changes the size of batches");
  check({.gradient_checkpointing = true},
        "gradient_checkpointing, which restores the states of the generators");
  check({.offload_optimizer = true}, "offload_optimizer, whose updates are computed by the CPU");
  check_good({.bf16 = true, .cuda_graph = true});
}

TEST_CASE("sizes and lengths are positive") {
  check_fault({.output_dir = ""}, "output_dir is empty: must not be empty");
  check_fault({.per_device_train_batch_size = 0},
              "per_device_train_batch_size is 0: must be from 1 to 1000000000");
  check_fault({.per_device_eval_batch_size = -4},
              "per_device_eval_batch_size is -4: must be from 1 to 1000000000");
  check_fault({.gradient_accumulation_steps = 10'000'000},
              "gradient_accumulation_steps is 10000000: must be from 1 to 1000000");
  check_fault({.max_steps = 9'000'000'000'000'000'000},
              "max_steps is 9000000000000000000: must be from 1 to 1000000000000, or -1");
  check_fault({.gradient_accumulation_steps = 0},
              "gradient_accumulation_steps is 0: must be from 1 to 1000000");
  check_fault({.num_train_epochs = 0}, "num_train_epochs is 0: must be above 0, unless max_steps is given");
  check_fault({.num_train_epochs = infinity}, "num_train_epochs is inf: must be finite");
  check_fault({.num_train_epochs = nan_value}, "num_train_epochs is nan: must be finite");
  check_fault({.max_steps = 0}, "max_steps is 0: must be from 1 to 1000000000000, or -1");
  check_fault({.max_steps = -2}, "max_steps is -2: must be from 1 to 1000000000000, or -1");
  check_good({.num_train_epochs = 0.5});
  check_good({.num_train_epochs = 0, .max_steps = 10});
}

TEST_CASE("options of the optimizer are finite and in range") {
  check_fault({.learning_rate = -1}, "learning_rate is -1: must be at least 0 and finite");
  check_fault({.learning_rate = nan_value}, "learning_rate is nan: must be at least 0 and finite");
  check_fault({.learning_rate = infinity}, "learning_rate is inf: must be at least 0 and finite");
  check_fault({.weight_decay = -0.1}, "weight_decay is -0.1: must be at least 0 and finite");
  check_fault({.adam_beta1 = 1}, "adam_beta1 is 1: must be at least 0 and below 1");
  check_fault({.adam_beta1 = nan_value}, "adam_beta1 is nan: must be at least 0 and below 1");
  check_fault({.adam_beta2 = -0.5}, "adam_beta2 is -0.5: must be at least 0 and below 1");
  check_fault({.adam_epsilon = 0}, "adam_epsilon is 0: must be above 0 and finite");
  check_fault({.adam_epsilon = infinity}, "adam_epsilon is inf: must be above 0 and finite");
  check_fault({.max_grad_norm = -1}, "max_grad_norm is -1: must be at least 0 and finite");
  check_fault({.max_grad_value = -1}, "max_grad_value is -1: must be at least 0 and finite");
  check_fault({.max_grad_value = nan_value}, "max_grad_value is nan: must be at least 0 and finite");
  check_good({.learning_rate = 0, .adam_beta1 = 0, .max_grad_norm = 0});
}

TEST_CASE("warmup is a whole number of steps or a share") {
  const auto allowed = ": must be a whole number of steps >= 0, or a fraction of all steps below 1";
  check_fault({.warmup_steps = -1}, std::string("warmup_steps is -1") + allowed);
  check_fault({.warmup_steps = 1.5}, std::string("warmup_steps is 1.5") + allowed);
  check_fault({.warmup_steps = nan_value}, std::string("warmup_steps is nan") + allowed);
  check_fault({.warmup_steps = infinity}, std::string("warmup_steps is inf") + allowed);
  check_good({.warmup_steps = 0.06});
  check_good({.warmup_steps = 100});
}

TEST_CASE("options of the schedule and of the optimizer can be parsed") {
  check_fault({.lr_scheduler_kwargs = 3}, "lr_scheduler_kwargs is number: must be a JSON object");
  check_fault({.lr_scheduler_kwargs = {{"power", nan_value}}},
              "lr_scheduler_kwargs.power is not finite: must be a finite number");
  check_fault({.lr_scheduler_kwargs = {{"schedulers", {1, {{"gamma", infinity}}}}}},
              "lr_scheduler_kwargs.schedulers[1].gamma is not finite: must be a finite number");
  check_fault({.optim_args = "momentum"},
              "optim_args is 'momentum': must be name=value,name=value, but 'momentum' is not name=value");
  check_good({.optim_args = "momentum=0.9,nesterov=true", .lr_scheduler_kwargs = nullptr});
}

TEST_CASE("intervals of logs, evaluations and checkpoints are whole steps or a share") {
  for (const double wrong : {0.0, -1.0, 1.5, nan_value, infinity, -0.5}) {
    CAPTURE(wrong);
    check_fault({.logging_steps = wrong}, fmt::format("logging_steps is {}: must be {}", wrong, interval));
    check_fault({.save_steps = wrong}, fmt::format("save_steps is {}: must be {}", wrong, interval));
    if (wrong != 0) {
      check_fault({.eval_strategy = IntervalStrategy::steps, .eval_steps = wrong},
                  fmt::format("eval_steps is {}: must be {}", wrong, interval));
    }
  }
  for (const double good : {1.0, 500.0, 0.1}) check_good({.save_steps = good, .logging_steps = good});
}

TEST_CASE("steps count only under the strategy of steps") {
  check_good({.eval_steps = -1,
              .save_strategy = SaveStrategy::epoch,
              .save_steps = -1,
              .logging_strategy = IntervalStrategy::epoch,
              .logging_steps = 0});
}

TEST_CASE("evaluation by steps without eval_steps uses logging_steps") {
  check_fault({.eval_strategy = IntervalStrategy::steps,
               .logging_strategy = IntervalStrategy::no,
               .logging_steps = 0},
              fmt::format("logging_steps is 0: must be {}", interval));
  check_good({.eval_strategy = IntervalStrategy::steps,
              .eval_steps = 10,
              .logging_strategy = IntervalStrategy::no,
              .logging_steps = 0});
}

TEST_CASE("evaluation's own settings are checked") {
  check_fault({.eval_delay = -1}, "eval_delay is -1: must be at least 0 and finite");
  check_fault({.eval_delay = nan_value}, "eval_delay is nan: must be at least 0 and finite");
  check_fault({.eval_accumulation_steps = 0}, "eval_accumulation_steps is 0: must be at least 1, or unset");
  check_fault({.include_for_metrics = {"inputs", "los"}},
              "include_for_metrics has 'los': must be one of inputs, loss; did you mean 'loss'?");
  check_fault({.label_names = Lines{}}, "label_names is empty: must not be empty, or be unset");
  check_good(
      {.eval_accumulation_steps = 1, .include_for_metrics = {"loss", "inputs"}, .label_names = Lines{"y"}});
}

TEST_CASE("only known trackers are accepted") {
  check_fault({.report_to = {"mlflow", "tensorbord"}},
              "report_to has 'tensorbord': must be one of all, none, tensorboard, wandb, comet_ml, mlflow, "
              "azure_ml, codecarbon; did you mean 'tensorboard'?");
  check_fault({.report_to = {"mlflow", "all"}}, "report_to has 'all' and others: must be alone");
  check_good({.report_to = {"mlflow", "wandb"}});
  check_good({.report_to = {"none"}});
}

TEST_CASE("options that follow a metric need evaluation") {
  check_fault(
      {.lr_scheduler_type = SchedulerType::reduce_lr_on_plateau},
      "lr_scheduler_type is reduce_lr_on_plateau: eval_strategy must be steps or epoch, since the schedule "
      "follows a metric of the evaluation");
  check_fault(
      {.lr_scheduler_type = SchedulerType::greedy},
      "lr_scheduler_type is greedy: eval_strategy must be steps or epoch, since the schedule follows a "
      "metric of the evaluation");
  check_fault(
      {.save_strategy = SaveStrategy::best},
      "save_strategy is best: eval_strategy must be steps or epoch, since evaluation finds the best model");
  check_good({.lr_scheduler_type = SchedulerType::greedy, .eval_strategy = IntervalStrategy::epoch});
  check_good({.eval_strategy = IntervalStrategy::epoch, .save_strategy = SaveStrategy::best});
}

TEST_CASE("the best model needs evaluations, but no checkpoints at the same steps") {
  const std::string fault =
      "load_best_model_at_end is true: eval_strategy must be steps or epoch, since evaluation finds the best "
      "model";
  check_fault({.load_best_model_at_end = true}, fault);
  check_fault({.save_strategy = SaveStrategy::no, .load_best_model_at_end = true}, fault);
  check_good({.eval_strategy = IntervalStrategy::epoch, .load_best_model_at_end = true});
  check_good({.eval_strategy = IntervalStrategy::steps,
              .eval_steps = 7,
              .save_steps = 10,
              .load_best_model_at_end = true});
  check_good({.eval_strategy = IntervalStrategy::epoch,
              .save_strategy = SaveStrategy::no,
              .load_best_model_at_end = true});
}

TEST_CASE("a limit leaves room for a checkpoint") {
  for (const std::int64_t wrong : {0, -1})
    check_fault({.save_total_limit = wrong},
                fmt::format("save_total_limit is {}: must be at least 1, or unset", wrong));
  check_good({.save_total_limit = 1});
}

TEST_CASE("a direction needs a metric, and a metric needs a name") {
  check_fault({.greater_is_better = true},
              "greater_is_better is true: metric_for_best_model must be given, since it names the metric");
  check_fault({.metric_for_best_model = ""},
              "metric_for_best_model is empty: must not be empty, or be unset");
  check_good({.metric_for_best_model = "accuracy", .greater_is_better = true});
  check_good(
      {.eval_strategy = IntervalStrategy::steps, .load_best_model_at_end = true, .greater_is_better = false});
}

TEST_CASE("seeds and workers are in range") {
  check_fault({.seed = -1}, "seed is -1: must be at least 0");
  check_fault({.data_seed = -1}, "data_seed is -1: must be at least 0, or unset");
  check_fault({.dataloader_num_workers = -1}, "dataloader_num_workers is -1: must be from 0 to 10000");
  check_fault({.dataloader_num_workers = 2, .dataloader_prefetch_factor = 0},
              "dataloader_prefetch_factor is 0: must be from 1 to 10000, or unset");
  check_fault({.dataloader_prefetch_factor = 2},
              "dataloader_prefetch_factor is 2: dataloader_num_workers must be at least 1, since the "
              "workers prefetch");
  check_good({.seed = 0, .data_seed = 0, .dataloader_num_workers = 1, .dataloader_prefetch_factor = 1});
}

TEST_CASE("validate reports all faults at once") {
  CHECK_NOTHROW(validate(TrainingArguments{}));
  CHECK_THROWS_WITH_AS(
      validate(TrainingArguments{.per_device_train_batch_size = 0, .learning_rate = -1, .seed = -1}),
      "per_device_train_batch_size is 0: must be from 1 to 1000000000\n"
      "learning_rate is -1: must be at least 0 and finite\n"
      "seed is -1: must be at least 0",
      etude::ArgumentError);
}

TEST_CASE("report and disable_tqdm agree, and report counts if both are given") {
  using etude::ReportMode;
  const auto of = [](const TrainingArguments& args) {
    const auto result = etude::normalized(args);
    CHECK(result.disable_tqdm == (result.report != ReportMode::bar));
    return result.report;
  };
  CHECK(of({}) == ReportMode::bar);
  CHECK(of({.disable_tqdm = true}) == ReportMode::lines);
  CHECK(of({.log_level = etude::LogLevel::error}) == ReportMode::lines);
  CHECK(of({.log_level = etude::LogLevel::error, .report = ReportMode::bar}) == ReportMode::bar);
  CHECK(of({.report = ReportMode::quiet, .disable_tqdm = false}) == ReportMode::quiet);
}

TEST_CASE("formats of log lines are checked before a training") {
  CHECK(etude::faults({.log_lines = {"loss {loss:.4f}", "{}", "{x:s}"}}).size() == 2);
  CHECK(etude::faults({.log_lines = {"{}"}})[0] ==
        "log_lines[0] is '{}' has a field without a name: must be such as {loss:.4f}");
}

TEST_CASE("plain_loop switches off what a loop by hand doesn't do") {
  const auto args = etude::plain_loop();
  CHECK(args.optim == etude::OptimizerNames::adamw_torch);
  CHECK(args.lr_scheduler_type == etude::SchedulerType::constant);
  CHECK(args.max_grad_norm == 0);
  CHECK(args.weight_decay == 0);
  CHECK(args.save_strategy == etude::SaveStrategy::no);
  CHECK(args.train_sampling_strategy == etude::SamplingStrategy::sequential);
  CHECK(etude::faults(args).empty());
}

TEST_CASE("normalized arguments resolve unset values") {
  const auto plain = etude::normalized({});
  CHECK(plain == TrainingArguments{.report = etude::ReportMode::bar, .disable_tqdm = false});
  CHECK(etude::normalized({.log_level = etude::LogLevel::error}).disable_tqdm == true);
  CHECK(etude::normalized({.log_level = etude::LogLevel::error, .disable_tqdm = false}).disable_tqdm ==
        false);

  CHECK(etude::normalized({.eval_strategy = IntervalStrategy::steps, .logging_steps = 20}).eval_steps == 20);
  CHECK(etude::normalized({.eval_strategy = IntervalStrategy::steps, .eval_steps = 0, .logging_steps = 20})
            .eval_steps == 20);
  CHECK(etude::normalized({.eval_strategy = IntervalStrategy::steps, .eval_steps = 5}).eval_steps == 5);
  CHECK(etude::normalized({.eval_strategy = IntervalStrategy::epoch}).eval_steps == std::nullopt);

  for (const TrainingArguments& args :
       {TrainingArguments{.load_best_model_at_end = true},
        TrainingArguments{.save_strategy = SaveStrategy::best},
        TrainingArguments{.lr_scheduler_type = SchedulerType::reduce_lr_on_plateau},
        TrainingArguments{.lr_scheduler_type = SchedulerType::greedy}}) {
    const auto decided = etude::normalized(args);
    CHECK(decided.metric_for_best_model == "loss");
    CHECK(decided.greater_is_better == false);
  }
  CHECK(etude::normalized({.metric_for_best_model = "f1"}).greater_is_better == true);
  CHECK(etude::normalized({.metric_for_best_model = "eval_loss"}).greater_is_better == false);
  CHECK(etude::normalized({.metric_for_best_model = "loss", .greater_is_better = true}).greater_is_better ==
        true);
  CHECK(etude::normalized({.lr_scheduler_kwargs = nullptr}).lr_scheduler_kwargs.is_object());
}

TEST_CASE("a tilde at the start of output_dir is the home folder") {
  const char* home = std::getenv("HOME");
  REQUIRE(home);
  CHECK(etude::normalized({.output_dir = "~/runs"}).output_dir == std::string(home) + "/runs");
  CHECK(etude::normalized({.output_dir = "~"}).output_dir == home);
  CHECK(etude::normalized({.output_dir = "~other/runs"}).output_dir == "~other/runs");
  CHECK(etude::normalized({.output_dir = "a~/b"}).output_dir == "a~/b");
}

TEST_CASE("shares become whole steps, rounded up") {
  CHECK(etude::absolute_steps(10, 1000) == 10);
  CHECK(etude::absolute_steps(1, 1000) == 1);
  CHECK(etude::absolute_steps(0.5, 7) == 4);
  CHECK(etude::absolute_steps(0.001, 7) == 1);
  CHECK(etude::get_warmup_steps({.warmup_steps = 0}, 100) == 0);
  CHECK(etude::get_warmup_steps({.warmup_steps = 25}, 100) == 25);
  CHECK(etude::get_warmup_steps({.warmup_steps = 0.125}, 100) == 13);
}

}  // namespace arguments_validation_test
