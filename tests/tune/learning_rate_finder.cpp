#include "etude/tune/learning_rate_finder.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "common/folder.hpp"
#include "common/toy.hpp"
#include "etude/base/error.hpp"
#include "etude/libtorch/generators.hpp"
#include "etude/optim/rules/adam.hpp"

namespace tune_learning_rate_finder_test {

using etude::find_learning_rate;
using etude::LearningRateCurve;
using etude::LearningRateSuggestion;

/// One example, x = 0 and y = 1: only the bias learns, and each SGD step multiplies its error by 1 - 2 lr.
etude::TrainerOptions one_example() {
  auto options = toy::options(toy::arguments(), 1);
  options.args.optim = etude::OptimizerNames::sgd;
  options.args.max_grad_norm = 0;
  return options;
}

TEST_CASE("each step records a rate that grows by a constant factor, its loss and a smoothed loss") {
  etude::Trainer<> trainer(one_example());
  const auto curve = find_learning_rate(
      trainer, {.start_lr = 1e-3, .end_lr = 0.1, .num_it = 21, .beta = 0.9, .stop_factor = 0});
  REQUIRE(curve.losses.size() == 21);
  CHECK_FALSE(curve.diverged);
  double error = 1;
  std::vector<double> losses;
  for (std::size_t i = 0; i < 21; ++i) {
    CAPTURE(i);
    const double rate = 1e-3 * std::pow(10, static_cast<double>(i) / 10);  // 100 times in 20 steps
    CHECK(curve.learning_rates[i] == doctest::Approx(rate).epsilon(1e-12));
    losses.push_back(error * error);
    CHECK(curve.losses[i] == doctest::Approx(losses.back()).epsilon(1e-5));
    error *= 1 - 2 * rate;

    double sum = 0, weights = 0;
    for (std::size_t j = 0; j <= i; ++j) {
      const double weight = std::pow(0.9, static_cast<double>(i - j));
      sum += weight * losses[j];
      weights += weight;
    }
    CHECK(curve.smoothed[i] == doctest::Approx(sum / weights).epsilon(1e-5));
  }
}

TEST_CASE("it ends once the smoothed loss is four times its best, or isn't finite") {
  etude::Trainer<> trainer(one_example());
  const auto curve = find_learning_rate(trainer, {.start_lr = 0.8, .end_lr = 3, .num_it = 50});
  CHECK(curve.diverged);
  REQUIRE(curve.smoothed.size() < 50);
  double best = curve.smoothed.front();
  for (std::size_t i = 0; i < curve.smoothed.size(); ++i) {
    CHECK((curve.smoothed[i] > 4 * best) == (i + 1 == curve.smoothed.size()));
    best = std::min(best, curve.smoothed[i]);
  }
  CHECK(curve.learning_rates.back() > 1);  // from 1 on, 1 - 2 lr is below -1

  // The loss grows by more than (1e10)^2 a step, so the third one overflows a float.
  const auto overflow =
      find_learning_rate(trainer, {.start_lr = 1e10, .end_lr = 1e12, .num_it = 10, .stop_factor = 0});
  CHECK(overflow.diverged);
  CHECK(overflow.losses.size() == 2);
  for (const double loss : overflow.losses) CHECK(std::isfinite(loss));
}

/// A loss with ripples that falls around the rate 10^-shift and rises from about 1 on.
LearningRateCurve curve_of(double shift, double ripples) {
  LearningRateCurve curve;
  for (int i = 0; i < 100; ++i) {
    const double rate = 1e-7 * std::pow(10 / 1e-7, i / 99.0), power = std::log10(rate);
    curve.learning_rates.push_back(rate);
    curve.smoothed.push_back(2 / (1 + std::exp(3 * (power + shift))) +
                             std::pow(10, 2 * (power + 0.4)) * 0.05 + ripples * std::sin(1.7 * i));
  }
  curve.losses = curve.smoothed;
  return curve;
}

// Computed in Python with the three functions of fastai/callback/schedule.py, over lrs[10:-5] as in lr_find.
TEST_CASE("the suggestions are those of fastai") {
  struct Row {
    double shift, ripples, valley, steep, minimum;
  };
  for (const auto& row :
       {Row{3, 0, 0.00017073526474706903, 0.0009111627561154895, 0.009545484566618346},
        Row{3, 0.02, 0.0027825594022071257, 0.0009111627561154895, 0.007924828983539169},
        Row{4.5, 0.05, 0.002310129700083158, 3.199267137797385e-05, 0.0010235310218990267}}) {
    auto curve = curve_of(row.shift, row.ripples);
    CHECK(curve.suggested(LearningRateSuggestion::valley).value() == doctest::Approx(row.valley));
    CHECK(curve.suggested(LearningRateSuggestion::steep).value() == doctest::Approx(row.steep));
    CHECK(curve.suggested(LearningRateSuggestion::minimum).value() == doctest::Approx(row.minimum));
    CHECK(curve.suggested() == curve.suggested(LearningRateSuggestion::valley));
    curve.suggestion = LearningRateSuggestion::steep;
    CHECK(curve.suggested() == curve.suggested(LearningRateSuggestion::steep));
  }
  LearningRateCurve rising{.learning_rates = {1, 2, 3}, .losses = {1, 2, 3}, .smoothed = {1, 2, 3}};
  for (const auto way :
       {LearningRateSuggestion::valley, LearningRateSuggestion::steep, LearningRateSuggestion::minimum}) {
    CHECK_FALSE(rising.suggested(way).has_value());
    CHECK_FALSE(LearningRateCurve().suggested(way).has_value());
  }
}

/// A model that has everything a dry run must restore: random numbers, buffers, and different modes.
struct NetImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) {
    if (forwards == fails_at) throw std::runtime_error("the model has failed");
    ++forwards;
    return last(dropout(still(norm(first(x))).relu()));
  }
  torch::nn::Linear first{register_module("first", torch::nn::Linear(1, 8))};
  torch::nn::BatchNorm1d norm{register_module("norm", torch::nn::BatchNorm1d(8))};
  torch::nn::BatchNorm1d still{register_module("still", torch::nn::BatchNorm1d(8))};
  torch::nn::Dropout dropout{register_module("dropout", torch::nn::Dropout(0.5))};
  torch::nn::Linear last{register_module("last", torch::nn::Linear(8, 1))};
  int forwards = 0, fails_at = -1;
};
TORCH_MODULE(Net);

etude::TrainerOptions with_everything(const Net& net) {
  auto options = toy::options(toy::arguments(), 12);
  options.model = net;
  options.args.num_train_epochs = 2;
  options.args.per_device_train_batch_size = 3;
  options.args.gradient_accumulation_steps = 2;
  options.args.logging_strategy = etude::IntervalStrategy::steps;
  options.args.logging_steps = 1;
  options.args.max_grad_norm = 0.5;
  return options;
}

/// All state that a dry run could change, as text.
std::string everything(const Net& net) {
  std::ostringstream out;
  out.precision(17);
  for (const auto& item : net->named_parameters()) {
    out << item.key() << item.value().detach().to(torch::kDouble);
    if (item.value().grad().defined()) out << item.value().grad();
  }
  for (const auto& item : net->named_buffers()) out << item.key() << item.value();
  for (const auto& item : net->named_modules()) out << item.key() << item.value()->is_training();
  out << etude::generator_state(at::globalContext().defaultGenerator(torch::kCPU)).sum();
  return out.str();
}

/// A training's history, without times.
std::string history(const etude::TrainerState& state) {
  std::string text;
  for (auto line : state.log_history) {
    for (const char* name : {"train_runtime", "train_samples_per_second", "train_steps_per_second"})
      line.erase(name);
    text += nlohmann::json(line).dump() + "\n";
  }
  return text;
}

Net seeded_net() {
  torch::manual_seed(1);
  return {};
}

TEST_CASE("everything is restored, and no event is raised") {
  auto net = seeded_net();
  auto options = with_everything(net);
  std::mt19937 engine(7);
  options.generators = {{"engine", &engine}};
  options.loss = {};
  options.compute_loss = [&](etude::Model& model, const etude::Batch& batch, std::optional<double>) {
    static_cast<void>(engine());
    auto outputs = model.forward(batch);
    auto loss = torch::mse_loss(outputs.single(), batch.labels.single());
    return etude::LossOutput{.loss = loss, .outputs = std::move(outputs)};
  };
  etude::Trainer<toy::Recorder> trainer(options);
  net->train();
  net->still->eval();
  net->first->weight.mutable_grad() = torch::full({8, 1}, 3.0);
  const auto before = everything(net);
  const auto engine_before = engine;
  const auto curve = find_learning_rate(trainer, {.num_it = 30});
  CHECK(curve.losses.size() > 5);
  CHECK(net->forwards >= 60);
  CHECK(everything(net) == before);
  CHECK(engine == engine_before);
  CHECK(trainer.optimizer() == nullptr);
  CHECK(trainer.callback<toy::Recorder>().heard == std::vector<std::string>{"InitEnd"});
  CHECK(trainer.state() == etude::TrainerState());
}

TEST_CASE("trainings after it are the same as without it") {
  std::string without, with;
  for (auto* text : {&without, &with}) {
    auto net = seeded_net();
    etude::Trainer<> trainer(with_everything(net));
    if (text == &with) find_learning_rate(trainer, {.num_it = 20});
    trainer.train();
    *text += history(trainer.state());
    if (text == &with) find_learning_rate(trainer, {.num_it = 20});
    trainer.train();  // with its existing optimizer
    *text += history(trainer.state()) + everything(net);
  }
  CHECK(with == without);
}

TEST_CASE("a user's own optimizer gets its state and rate back") {
  std::string without, with;
  for (auto* text : {&without, &with}) {
    auto net = seeded_net();
    auto options = with_everything(net);
    const auto own = std::make_shared<torch::optim::Adam>(net->parameters(), torch::optim::AdamOptions(0.03));
    options.optimizer = own;
    for (const auto& parameter : net->parameters()) parameter.mutable_grad() = torch::ones_like(parameter);
    own->step();  // before it is passed to the trainer
    etude::Trainer<> trainer(options);
    for (int i = 0; i < 2; ++i) {
      if (text == &with) find_learning_rate(trainer, {.num_it = 20});
      if (i == 0) CHECK(own->param_groups()[0].options().get_lr() == 0.03);
      trainer.train();
      *text += history(trainer.state()) + everything(net);
    }
  }
  CHECK(with == without);
}

/// Continues through the examples across epochs.
struct GoesOn : etude::StatefulSampler {
  void reset(std::optional<std::size_t>) override { left = 4; }
  std::optional<std::vector<std::size_t>> next(std::size_t count) override {
    std::vector<std::size_t> indices;
    while (indices.size() < count && left > 0) {
      indices.push_back(place++ % 12);
      --left;
    }
    if (indices.empty()) return std::nullopt;
    return indices;
  }
  void save(torch::serialize::OutputArchive&) const override {}
  void load(torch::serialize::InputArchive&) override {}
  std::string state() const override { return std::to_string(place); }
  void load_state(const std::string& state) override { place = std::stoul(state); }
  std::size_t place = 0, left = 0;
};

/// Logs each loss that it computes.
struct Logging : etude::TrainerBase<Logging> {
  using TrainerBase::TrainerBase;
  etude::LossOutput compute_loss(const etude::Batch& batch, std::optional<double> items = {}) {
    auto output = TrainerBase::compute_loss(batch, items);
    context().log("mine", output.loss);
    return output;
  }
};

TEST_CASE("a sampler's position is restored, and nothing is logged later") {
  const auto sampler = std::make_shared<GoesOn>();
  auto options = toy::options(toy::arguments(), 12);
  sampler->place = 5;
  options.train_sampler = sampler;
  options.args.max_steps = 2;
  options.args.logging_strategy = etude::IntervalStrategy::steps;
  options.args.logging_steps = 2;
  Logging trainer(options);
  find_learning_rate(trainer, {.start_lr = 0.01, .end_lr = 0.2, .num_it = 10});
  CHECK(sampler->place == 5);
  trainer.train();
  // The mean covers only the first two steps.
  const auto& line = trainer.state().log_history.front();
  CHECK(line.at("mine").get<double>() == doctest::Approx(line.at("loss").get<double>()));
}

TEST_CASE("an exception of the model propagates, with everything restored") {
  auto net = seeded_net();
  etude::Trainer<> trainer(with_everything(net));
  const auto before = everything(net);
  net->fails_at = 7;
  CHECK_THROWS_WITH_AS(find_learning_rate(trainer), "the model has failed", std::runtime_error);
  CHECK(everything(net) == before);
}

TEST_CASE("the curve is drawn as text, and as an image file") {
  const toy::Folder folder;
  auto curve = curve_of(3, 0);
  const auto text = curve.text(60, 10);
  CHECK(std::ranges::count(text, '\n') == 10 + 3);
  CHECK(std::ranges::count(text, '*') >= 30);
  CHECK(text.ends_with("valley: 1.71e-04, steep: 9.11e-04, minimum: 9.55e-03\n"));
  CHECK(text.find("1.0e-07") != std::string::npos);
  CHECK(text.find("1.0e+01") != std::string::npos);
  for (std::size_t begin = 0; begin < text.size(); begin = text.find('\n', begin) + 1)
    CHECK(text.find('\n', begin) - begin <= 60);
  CHECK(LearningRateCurve().text() == "no step had a finite loss\n");

  etude::Trainer<> trainer(one_example());
  curve = find_learning_rate(trainer, {.plot = folder / "curve.svg"});
  const auto svg = toy::read_text(folder / "curve.svg");
  CHECK(svg == curve.svg());
  CHECK(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  CHECK(svg.ends_with("</svg>\n"));
  // A point for each step in each of the two lines.
  const auto points = svg.substr(svg.rfind("points=\""));
  CHECK(std::ranges::count(points.substr(0, points.find("/>")), ',') ==
        static_cast<std::ptrdiff_t>(curve.losses.size()));
  CHECK(svg.find("nan") == std::string::npos);
  CHECK(svg.find("inf") == std::string::npos);
  CHECK(svg.find(">valley</text>") != std::string::npos);
  CHECK(LearningRateCurve().svg().ends_with("</svg>\n"));
}

TEST_CASE("invalid options are refused, all at once") {
  etude::Trainer<> trainer(one_example());
  CHECK_THROWS_WITH_AS(
      find_learning_rate(trainer, {.start_lr = 0, .end_lr = -1, .num_it = 1, .beta = 1, .stop_factor = 0.5}),
      "start_lr is 0: must be above 0 and finite\nend_lr is -1: must be above 0 and finite\n"
      "num_it is 1: must be at least 2\nbeta is 1: must be at least 0 and below 1\n"
      "stop_factor is 0.5: must be above 1 and finite, or 0",
      etude::ArgumentError);
  CHECK_THROWS_WITH_AS(find_learning_rate(trainer, {.start_lr = 2, .end_lr = 2}),
                       "end_lr is 2: must be above start_lr, 2", etude::ArgumentError);
}

}  // namespace tune_learning_rate_finder_test
