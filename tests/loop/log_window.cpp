#include "etude/loop/log_window.hpp"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "common/printed.hpp"
#include "etude/checkpoint/training_progress.hpp"
#include "etude/metrics/metrics.hpp"
#include "etude/model/model.hpp"
#include "etude/trainer_state.hpp"
#include "etude/training_arguments.hpp"

namespace loop_log_window_test {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

etude::TrainerState at_step(std::int64_t step) {
  etude::TrainerState state;
  state.global_step = step;
  return state;
}

etude::Model model() { return torch::nn::Linear(1, 1); }

void add(etude::LogWindow& window, double loss, std::int64_t step) {
  window.add_loss(torch::tensor(loss, torch::kDouble), step);
}

TEST_CASE("a log has the mean loss per update since the last one, and the latest rates") {
  const etude::TrainingArguments args;
  const etude::Ranks ranks;
  etude::LogWindow window(args, ranks);
  window.begin_training();
  CHECK_FALSE(window.has_steps(0));
  add(window, 1, 1);
  add(window, 2, 1);  // a second micro-batch of the same update
  window.set_learning_rate(0.5);
  add(window, 5, 2);
  window.set_learning_rate(0.25);
  window.set_grad_norm(torch::tensor(7.0));
  CHECK(window.has_steps(2));
  CHECK(window.take_logs(at_step(2)) ==
        etude::Metrics{{"loss", 4}, {"grad_norm", 7}, {"learning_rate", 0.25}});
  CHECK_FALSE(window.has_steps(2));
  add(window, 3, 3);
  CHECK(window.take_loss(3) == 3);
  etude::Metrics summary;
  window.sum_up(summary, model());
  CHECK(summary == etude::Metrics{{"train_loss", 11.0 / 3}});
}

TEST_CASE("tokens are counted from the start of the clock") {
  const etude::TrainingArguments args{.include_num_input_tokens_seen = etude::InputTokens::all};
  const etude::Ranks ranks;
  etude::LogWindow window(args, ranks);
  window.begin_training();
  window.start_clock(100);
  add(window, 1, 1);
  auto state = at_step(1);
  state.num_input_tokens_seen = 100;
  const auto logs = window.take_logs(state);
  CHECK(logs.at("train_tokens_per_second") == 0);
  CHECK(logs.contains("train_runtime"));
  CHECK_FALSE(logs.contains("grad_norm"));
}

TEST_CASE("losses that aren't finite are counted, and the summary names the first step") {
  const etude::TrainingArguments args;
  const etude::Ranks ranks;
  etude::LogWindow window(args, ranks);
  window.begin_training();
  add(window, 2, 1);
  add(window, nan, 2);
  add(window, nan, 3);
  const auto logs = window.take_logs(at_step(3));
  CHECK(logs.at("loss") == 2);
  CHECK(logs.at("non_finite_losses") == 2);
  add(window, nan, 4);
  window.take_loss(4);
  etude::Metrics summary;
  const auto text = toy::printed([&] { window.sum_up(summary, model()); }, STDERR_FILENO);
  CHECK(summary.at("non_finite_losses") == 3);
  CHECK(text.find("3 of the losses weren't finite, since step 2: train_loss") != text.npos);
}

TEST_CASE("several losses of one step that aren't finite count as one step") {
  const etude::TrainingArguments args;
  const etude::Ranks ranks;
  etude::LogWindow window(args, ranks);
  window.begin_training();
  for (const double loss : {nan, nan, 1.0}) add(window, loss, 1);
  add(window, nan, 2);
  etude::TrainingProgress progress;
  window.save(progress);
  CHECK(progress.loss.filtered == 2);
  CHECK(progress.loss.first_filtered == 1);

  etude::LogWindow other(args, ranks);
  other.begin_training();
  other.load(progress);
  for (auto* each : {&window, &other}) {
    add(*each, nan, 3);
    add(*each, nan, 3);
    CHECK(each->take_logs(at_step(3)).at("non_finite_losses") == 3);
    add(*each, nan, 4);
    CHECK(each->take_logs(at_step(4)).at("non_finite_losses") == 1);
  }
}

TEST_CASE("a window that is loaded continues as the one that was saved") {
  const etude::TrainingArguments args{.log_level = etude::LogLevel::error};
  const etude::Ranks ranks;
  etude::LogWindow window(args, ranks);
  window.begin_training();
  add(window, nan, 1);
  window.take_loss(1);
  add(window, 4, 2);
  window.set_learning_rate(0.5);
  window.set_grad_norm(torch::tensor(3.0));
  etude::TrainingProgress progress;
  window.save(progress);
  CHECK(progress.last_logged_step == 1);
  CHECK(progress.loss.sum == 4);
  CHECK(progress.non_finite_losses == 1);
  CHECK(progress.first_non_finite_loss == 1);
  CHECK(progress.grad_norm == 3);
  CHECK(progress.learning_rate == 0.5);

  etude::LogWindow other(args, ranks);
  other.begin_training();
  other.load(progress);
  const auto logs_and_summary = [](etude::LogWindow& each) {
    add(each, 2, 3);
    auto logs = each.take_logs(at_step(3));
    each.sum_up(logs, model());
    return logs;
  };
  const auto logs = logs_and_summary(other);
  CHECK(logs.at("loss") == 3);
  CHECK(logs.at("grad_norm") == 3);
  CHECK(logs.at("non_finite_losses") == 1);
  CHECK(logs == logs_and_summary(window));
}

TEST_CASE("another training begins without losses") {
  const etude::TrainingArguments args{.log_level = etude::LogLevel::error};
  const etude::Ranks ranks;
  etude::LogWindow window(args, ranks);
  window.begin_training();
  add(window, nan, 1);
  window.set_grad_norm(torch::tensor(3.0));
  window.take_loss(1);
  add(window, 5, 2);
  window.begin_training();
  CHECK_FALSE(window.grad_norm().defined());
  CHECK_FALSE(window.has_steps(0));
  etude::Metrics summary;
  window.sum_up(summary, model());
  CHECK(summary.empty());
  add(window, 1, 1);
  CHECK(window.take_loss(1) == 1);
}

}  // namespace loop_log_window_test
