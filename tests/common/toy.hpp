#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/folder.hpp"
#include "etude/trainer.hpp"

/// A problem that is small enough to be worked out by hand, and a callback that records its events.
namespace toy {

/// y = w x + b with w = b = 0 at first.
struct LineImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) { return x * weight + bias; }
  torch::Tensor weight = register_parameter("weight", torch::zeros({1}));
  torch::Tensor bias = register_parameter("bias", torch::zeros({1}));
};
TORCH_MODULE(Line);

/// Points [n, 1] of y = 2 x + 1, x = 0, 1/n, 2/n, ...
inline std::pair<torch::Tensor, torch::Tensor> points(std::int64_t n) {
  const auto x = torch::arange(n).to(torch::kFloat).reshape({n, 1}) / static_cast<double>(n);
  return {x, 2 * x + 1};
}
inline etude::Dataset dataset(std::int64_t n) {
  const auto [x, y] = points(n);
  return {x, y};
}

/// The arguments of most tests: batches of one, no logs, evaluations or checkpoints, and quiet.
inline etude::TrainingArguments arguments() {
  return {.output_dir = "/nonexistent",
          .per_device_train_batch_size = 1,
          .per_device_eval_batch_size = 1,
          .num_train_epochs = 1,
          .learning_rate = 0.1,
          .lr_scheduler_type = etude::SchedulerType::constant,
          .save_strategy = etude::SaveStrategy::no,
          .logging_strategy = etude::IntervalStrategy::no,
          .log_level = etude::LogLevel::critical,
          .disable_tqdm = true};
}

/// The same for two epochs with a log after each step, in a folder.
inline etude::TrainingArguments logged_arguments(const std::string& folder) {
  auto args = arguments();
  args.output_dir = folder;
  args.num_train_epochs = 2;
  args.logging_strategy = etude::IntervalStrategy::steps;
  args.logging_steps = 1;
  return args;
}

/// Writes checkpoints to a folder at this interval, for runs that are resumed.
inline void save_to(const std::string& folder, etude::TrainingArguments& args,
                    const etude::Interval& save_steps = 1) {
  args.output_dir = folder;
  args.save_strategy = etude::SaveStrategy::steps;
  args.save_steps = save_steps;
}

inline etude::TrainerOptions options(etude::TrainingArguments args, std::int64_t train = 2,
                                     std::int64_t eval = 1) {
  return {.model = Line(),
          .args = std::move(args),
          .loss = torch::nn::MSELoss(),
          .train_dataset = dataset(train),
          .eval_dataset = dataset(eval)};
}

/// Predicts each label, or the next one. Its loss is the mean squared error over the labels that aren't -100.
/// It runs out of memory with more than `most` examples.
struct RowsImpl : torch::nn::Module {
  explicit RowsImpl(etude::LossItems mean_over, std::int64_t most_examples = 1000)
      : items(mean_over), most(most_examples) {}
  std::pair<torch::Tensor, torch::Tensor> forward(torch::Tensor x, torch::Tensor labels) {
    if (x.size(0) > most)
      throw c10::OutOfMemoryError({__func__, __FILE__, 0}, "DefaultCPUAllocator: can't allocate memory");
    auto scores = x * weight;
    const bool is_shifted = items == etude::LossItems::shifted_labels;
    const auto given = is_shifted ? scores.slice(1, 0, -1) : scores;
    const auto expected = is_shifted ? labels.slice(1, 1) : labels;
    return {(given - expected).square().masked_select(expected != -100).mean(), scores};
  }
  etude::LossItems loss_items() const { return items; }
  etude::LossItems items;
  std::int64_t most;
  torch::Tensor weight = register_parameter("weight", torch::zeros({1}));
};
TORCH_MODULE(Rows);

/// Rows [6, 3] with different numbers of labels, one of them with none.
inline std::pair<torch::Tensor, torch::Tensor> rows_with_ignored_labels() {
  const auto x = torch::arange(18).to(torch::kFloat).reshape({6, 3}) / 18;
  auto y = torch::arange(18).reshape({6, 3}).remainder(4);
  y[1].fill_(-100);
  y[4][1] = -100;
  y[5][0] = -100;  // the first label, which only counts if labels aren't shifted
  return {x, y};
}

/// A model that has room for four examples at a time.
struct FitsFourImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) {
    if (x.size(0) > 4)
      throw c10::OutOfMemoryError({__func__, __FILE__, 0}, "DefaultCPUAllocator: can't allocate memory");
    return line(x);
  }
  torch::nn::Linear line{register_module("line", torch::nn::Linear(1, 1))};
};
TORCH_MODULE(FitsFour);

/// Options of a training whose first attempt, with batches of five, runs out of memory.
inline etude::TrainerOptions first_too_large(etude::TrainingArguments args) {
  args.per_device_train_batch_size = 5;
  args.auto_find_batch_size = true;
  auto result = options(args, 8);
  result.model = FitsFour();
  return result;
}

/// The events of parts of a run, as Recorder::events() gives them.
inline constexpr std::string_view a_step = "StepBegin PreOptimizerStep OptimizerStep StepEnd";
inline constexpr std::string_view a_step_of_two =
    "StepBegin SubstepEnd PreOptimizerStep OptimizerStep StepEnd";
inline constexpr std::string_view an_evaluation = "PredictionStep Evaluate Log";

template <class... Parts>
std::string run(const Parts&... parts) {
  return fmt::format("{}", fmt::join(std::initializer_list<std::string_view>{parts...}, " "));
}

/// The names of all events, in the order in which they came.
struct Recorder {
  std::vector<std::string> heard = {};
  template <std::derived_from<etude::Context> Event>
  void on(const Event&) {
    heard.emplace_back(etude::short_type_name<Event>());
  }

  std::string names() const { return fmt::format("{}", fmt::join(heard, " ")); }

  /// The names of the events that Hugging Face's Trainer has, and of PushBegin.
  std::string events() const {
    static const std::set<std::string> known{
        "InitEnd",          "TrainBegin",    "TrainEnd", "EpochBegin",
        "EpochEnd",         "StepBegin",     "StepEnd",  "SubstepEnd",
        "PreOptimizerStep", "OptimizerStep", "Evaluate", "PredictionStep",
        "Predict",          "Save",          "Log",      "PushBegin"};
    std::vector<std::string> those;
    std::ranges::copy_if(heard, std::back_inserter(those),
                         [](const auto& name) { return known.contains(name); });
    return fmt::format("{}", fmt::join(those, " "));
  }

  auto count(const std::string& name) const { return std::count(heard.begin(), heard.end(), name); }
};

}  // namespace toy
