#include <doctest/doctest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/loss.h>
#include <torch/nn/utils/convert_parameters.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/sgd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "common/fault_of.hpp"
#include "common/folder.hpp"
#include "common/ranks.hpp"
#include "common/toy.hpp"
#include "etude/dispatch/filters.hpp"
#include "etude/parallel/distributed_data_parallel.hpp"

/// Trainings with the option `phases`.
namespace loop_phases_test {

using etude::OptimizerNames;
using etude::PhaseOptions;
using Values = std::vector<double>;
using Phases = std::vector<std::pair<std::string, PhaseOptions>>;

torch::nn::Sequential network() {
  torch::manual_seed(3);
  return torch::nn::Sequential(torch::nn::Linear(2, 5), torch::nn::Tanh(), torch::nn::Linear(5, 1));
}

std::pair<torch::Tensor, torch::Tensor> data(std::int64_t n, std::uint64_t seed = 4) {
  torch::manual_seed(seed);
  const auto x = torch::randn({n, 2});
  return {x, x.sin().sum(1, true)};
}

etude::Dataset dataset(std::int64_t n, std::uint64_t seed = 4) {
  const auto [x, y] = data(n, seed);
  return {x, y};
}

/// A loop without shuffling, clipping and decay, over 12 examples in batches of 4.
etude::TrainerOptions options(const Phases& phases, const std::string& output_dir = "/nonexistent") {
  auto args = etude::plain_loop();
  args.output_dir = output_dir;
  args.per_device_train_batch_size = 4;
  args.learning_rate = 0.01;
  args.logging_strategy = etude::IntervalStrategy::no;
  args.log_level = etude::LogLevel::critical;
  args.report = etude::ReportMode::quiet;
  return {.model = network(),
          .args = args,
          .loss = torch::nn::MSELoss(),
          .train_dataset = dataset(12),
          .phases = phases};
}

torch::Tensor weights(const std::vector<torch::Tensor>& parameters) {
  return torch::nn::utils::parameters_to_vector(parameters).detach().clone();
}

template <class Trainer>
torch::Tensor weights_of(Trainer& trainer) {
  return weights(trainer.model().parameters());
}

/// Steps of a hand-written loop over batches of `size`, in order, again and again.
void steps_by_hand(torch::nn::Sequential& net, torch::optim::Optimizer& optimizer, std::int64_t steps,
                   const std::pair<torch::Tensor, torch::Tensor>& examples, std::int64_t size = 4) {
  const auto batches = examples.first.size(0) / size;
  for (std::int64_t step = 0; step < steps; ++step) {
    const auto begin = step % batches * size;
    optimizer.step([&] {
      optimizer.zero_grad();
      const auto loss = torch::mse_loss(net->forward(examples.first.narrow(0, begin, size)),
                                        examples.second.narrow(0, begin, size));
      loss.backward();
      return loss;
    });
  }
}

/// AdamW for one and a third epochs, then L-BFGS, then SGD with momentum on different data in different
/// batches, with a frozen head.
Phases three_phases() {
  return {{"adam", {.max_steps = 4, .learning_rate = 0.05}},
          {"lbfgs", {.max_steps = 2, .learning_rate = 0.5, .optim = OptimizerNames::lbfgs}},
          {"tail",
           {.num_train_epochs = 2,
            .per_device_train_batch_size = 3,
            .optim = OptimizerNames::sgd,
            .optim_args = "momentum=0.9,fused=false",
            .train_dataset = dataset(6, 9),
            .parameter_groups = {{"2", {.frozen = true}}}}}};
}

TEST_CASE("each phase trains as a loop by hand with an optimizer of its own, to the bit") {
  auto net = network();
  {
    torch::optim::AdamW adam(net->parameters(), torch::optim::AdamWOptions(0.05).weight_decay(0));
    steps_by_hand(net, adam, 4, data(12));
  }
  {
    torch::optim::LBFGS lbfgs(net->parameters(), torch::optim::LBFGSOptions(0.5));
    steps_by_hand(net, lbfgs, 2, data(12));
  }
  const auto head = net->ptr(2)->parameters();
  const auto before = weights(head);
  torch::optim::SGD sgd(net->ptr(0)->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9));
  steps_by_hand(net, sgd, 4, data(6, 9), 3);

  etude::Trainer trainer(options(three_phases()));
  const auto output = trainer.train();
  CHECK(output.global_step == 10);
  CHECK(output.stop_reason.empty());
  CHECK(torch::equal(weights(head), before));
  CHECK(torch::equal(weights_of(trainer), weights(net->parameters())));
}

/// Records the phases, epochs and steps, with the state at each.
struct Course {
  std::vector<std::string> lines;
  bool with_steps = true;
  void on(const etude::TrainBegin& e) { add(e, "train"); }
  void on(const etude::PhaseBegin& e) {
    add(e, fmt::format("phase {} {}{} {}", e.index, e.name, e.is_resumed ? " resumed" : "",
                       e.optimizer->type()));
  }
  void on(const etude::EpochBegin& e) { add(e, "epoch"); }
  void on(const etude::StepEnd& e) {
    if (with_steps) add(e, "step");
  }
  void on(const etude::TrainingRunEpochEnd& e) { add(e, e.is_done ? "epoch done" : "epoch left"); }
  void on(const etude::PhaseEnd& e) { add(e, e.is_done ? "phase done" : "phase left"); }
  void on(const etude::TrainEnd& e) { add(e, "end"); }
  void add(const etude::Context& e, const std::string& what) {
    lines.push_back(fmt::format("{} {}/{} {:.2f}/{}", what, e.state.global_step, e.state.max_steps,
                                e.state.epoch, e.state.num_train_epochs));
  }
};

TEST_CASE("steps and epochs are counted through all phases, each of which begins an epoch") {
  etude::Trainer<Course> trainer(options({{"a", {.max_steps = 2}}, {"b", {.num_train_epochs = 1}}}));
  trainer.train();
  const std::vector<std::string> expected{"train 0/5 0.00/2",      "phase 0 a AdamW 0/5 0.00/2",
                                          "epoch 0/5 0.00/2",      "step 1/5 0.33/2",
                                          "step 2/5 0.67/2",       "epoch left 2/5 0.67/2",
                                          "phase done 2/5 0.67/2", "phase 1 b AdamW 2/5 0.67/2",
                                          "epoch 2/5 0.67/2",      "step 3/5 1.33/2",
                                          "step 4/5 1.67/2",       "step 5/5 2.00/2",
                                          "epoch done 5/5 2.00/2", "phase done 5/5 2.00/2",
                                          "end 5/5 2.00/2"};
  CHECK(trainer.callback<Course>().lines == expected);
}

TEST_CASE("a schedule and its warmup run over the steps of their phase") {
  auto with = options(
      {{"a",
        {.max_steps = 4,
         .learning_rate = 1,
         .lr_scheduler_type = etude::SchedulerType::linear,
         .warmup_steps = 2}},
       {"b", {.max_steps = 2, .learning_rate = 0.5, .lr_scheduler_type = etude::SchedulerType::linear}},
       {"c", {.max_steps = 1}},
       {"d",
        {.max_steps = 2, .lr_scheduler = [](std::int64_t step) { return static_cast<double>(step) + 1; }}}});
  with.args.logging_strategy = etude::IntervalStrategy::steps;
  with.args.logging_steps = 1;
  etude::Trainer<> trainer(with);
  trainer.train();
  std::vector<double> rates;
  for (const auto& line : trainer.state().log_history)
    if (const auto rate = line.find("learning_rate"); rate != line.end()) rates.push_back(rate->second);
  const std::vector<double> expected{0, 0.5, 1, 0.5, 0.5, 0.25, 0.01, 0.01, 0.02};
  REQUIRE(rates.size() == expected.size());
  for (std::size_t i = 0; i < rates.size(); ++i) CHECK(rates[i] == doctest::Approx(expected[i]));
}

TEST_CASE("a phase may have a loss of its own") {
  const auto constant = [](double value) {
    return [value](torch::nn::Sequential model, const etude::Batch& batch) {
      return value + 0 * model->forward(batch.inputs[0]).sum();
    };
  };
  auto with = options({{"a", {.max_steps = 1, .compute_loss = constant(7)}}, {"b", {.max_steps = 1}}});
  with.loss = [](const torch::Tensor& output, const torch::Tensor&) { return 0 * output.sum() + 3; };
  with.args.logging_strategy = etude::IntervalStrategy::steps;
  with.args.logging_steps = 1;
  etude::Trainer<> trainer(with);
  trainer.train();
  CHECK(trainer.state().log_history[0].at("loss") == 7);
  CHECK(trainer.state().log_history[1].at("loss") == 3);
}

TEST_CASE("a training that is killed after any step and resumed ends with the same weights") {
  const toy::Folder folder;
  auto with = options(three_phases(), folder);
  toy::save_to(folder, with.args);
  with.args.report = etude::ReportMode::quiet;
  etude::Trainer<> whole(with);
  whole.train();
  for (std::int64_t step = 1; step <= 10; ++step) {
    CAPTURE(step);
    const toy::Folder other;
    auto again = options(three_phases(), other);
    etude::Trainer<Course> resumed(again);
    const auto output =
        resumed.train({.resume_from_checkpoint = folder / ("checkpoint-" + std::to_string(step))});
    CHECK(output.global_step == 10);
    CHECK(torch::equal(weights_of(resumed), weights_of(whole)));
    const auto place = step <= 4   ? "0 adam resumed AdamW"
                       : step <= 6 ? "1 lbfgs resumed LBFGS"
                                   : "2 tail resumed SGD";
    CHECK(resumed.callback<Course>().lines[1].starts_with(std::string("phase ") + place));
    CHECK(resumed.state().max_steps == 10);
  }
}

TEST_CASE("a stop ends the training in its phase, which a resumed one goes on with") {
  const toy::Folder folder;
  auto with = options({{"a", {.max_steps = 4}}, {"b", {.max_steps = 3}}}, folder);
  toy::save_to(folder, with.args, 100);
  etude::Trainer<> whole(with);
  whole.train();
  for (const std::int64_t last : {1, 3, 4, 6}) {
    CAPTURE(last);
    const toy::Folder other;
    with = options(with.phases, other);
    toy::save_to(other, with.args, 100);
    etude::Trainer stopped(with, Course{}, etude::on<etude::StepEnd>().call([&](const etude::StepEnd& e) {
      if (e.state.global_step == last) e.control.request_stop("enough");
    }));
    CHECK(stopped.train().stop_reason == "enough");
    const auto& lines = stopped.template callback<Course>().lines;
    CHECK(lines[lines.size() - 2].starts_with(last == 4 ? "phase done" : "phase left"));
    etude::Trainer<> resumed(options(with.phases, other));
    resumed.train({.resume_from_checkpoint = true});
    CHECK(torch::equal(weights_of(resumed), weights_of(whole)));
  }
}

TEST_CASE("another phase may follow a training that is done; those that are done must stay") {
  const toy::Folder folder;
  const Phases two{{"a", {.max_steps = 2}}, {"b", {.max_steps = 2}}};
  auto three = two;
  three.push_back({"c", {.max_steps = 3, .learning_rate = 0.2}});
  auto with = options(two, folder);
  toy::save_to(folder, with.args, 100);
  etude::Trainer<>(with).train();

  etude::Trainer<> whole(options(three));
  whole.train();
  with.model = network();
  with.phases = three;
  etude::Trainer<> longer(with);
  CHECK(longer.train({.resume_from_checkpoint = true}).global_step == 7);
  CHECK(torch::equal(weights_of(longer), weights_of(whole)));

  for (const auto& phases :
       {Phases{{"b", {.max_steps = 2}}, {"a", {.max_steps = 2}}, {"c", {.max_steps = 1}}},
        Phases{{"a", {.max_steps = 2}}}, Phases{}}) {
    with.phases = phases;
    etude::Trainer<> other(with);
    CHECK(toy::contains(
        toy::fault_of<etude::ArgumentError>([&] { other.train({.resume_from_checkpoint = true}); }),
        "must begin with those that the checkpoint"));
  }
}

TEST_CASE("what a phase changes ends with it, however the training ends") {
  auto with = options({{"a",
                        {.max_steps = 1,
                         .learning_rate = 0.3,
                         .parameter_groups = {{"*", {.frozen = true}}, {"2", {.frozen = false}}}}},
                       {"b", {.max_steps = 1, .parameter_groups = {{"0", {.frozen = true}}}}}});
  std::vector<std::vector<bool>> trained;
  const auto note = [&](const etude::Context& e) {
    auto& now = trained.emplace_back();
    for (const auto& parameter : e.model.parameters()) now.push_back(parameter.requires_grad());
  };
  const std::vector<bool> head{false, false, true, true}, all(4, true);
  for (const bool throws : {false, true}) {
    trained.clear();
    etude::Trainer trainer(with, etude::on<etude::PhaseBegin>().call([&](const etude::PhaseBegin& e) {
      note(e);
      CHECK(e.args.learning_rate == (e.index == 0 ? 0.3 : 0.01));
      if (throws) throw std::runtime_error("no");
    }));
    if (throws)
      CHECK_THROWS_AS(trainer.train(), std::runtime_error);
    else
      trainer.train();
    for (const auto& parameter : trainer.model().parameters()) CHECK(parameter.requires_grad());
    CHECK(trainer.args().learning_rate == 0.01);
    CHECK(trained.front() == head);
    if (!throws) CHECK(trained.back() == head);
  }
}

struct Seen {
  std::vector<double>* numbers = nullptr;
  void on(const etude::BatchFetched& e) const {
    numbers->push_back(e.batch.inputs[0][0][0].template item<double>());
  }
};

/// A stream of 1000, 1001, ... in its first epoch and 2000, 2001, ... in the second.
struct Numbers {
  double first = 0;
  std::int64_t epoch = 0, place = 0;
  std::optional<etude::Example> next() {
    const auto number = first + 1000.0 * static_cast<double>(epoch) + static_cast<double>(place++);
    return etude::Example{{torch::full({2}, number)}, {torch::zeros({1})}};
  }
  void reset() {
    ++epoch;
    place = 0;
  }
  nlohmann::json state() const { return {epoch, place}; }
  void load_state(const nlohmann::json& state) {
    epoch = state[0];
    place = state[1];
  }
};

TEST_CASE("a stream begins another epoch in each phase, and one of a phase's own its first") {
  const auto seen_by = [](auto& trainer, const etude::TrainOptions& from = {}) {
    std::vector<double> seen;
    trainer.template callback<Seen>().numbers = &seen;
    trainer.train(from);
    return seen;
  };
  const toy::Folder folder;
  const auto make = [&] {
    auto with = options({{"a", {.max_steps = 2}},
                         {"b", {.max_steps = 2}},
                         {"c", {.max_steps = 2, .train_dataset = etude::Dataset(Numbers{.first = 0.5})}}},
                        folder);
    with.train_dataset = etude::Dataset(Numbers{});
    with.args.per_device_train_batch_size = 2;
    return with;
  };
  auto with = make();
  toy::save_to(folder, with.args);
  etude::Trainer whole(with, Seen{});
  CHECK((seen_by(whole) == Values{1000, 1002, 2000, 2002, 1000.5, 1002.5}));
  etude::Trainer resumed(make(), Seen{});
  CHECK((seen_by(resumed, {.resume_from_checkpoint = folder / "checkpoint-1"}) ==
         Values{1002, 2000, 2002, 1000.5, 1002.5}));
  etude::Trainer later(make(), Seen{});
  CHECK((seen_by(later, {.resume_from_checkpoint = folder / "checkpoint-4"}) == Values{1000.5, 1002.5}));
}

TEST_CASE("everything wrong with phases is said at once, by the phase's name") {
  auto with = options({{"a", {}},
                       {"a", {.num_train_epochs = 1, .max_steps = 1}},
                       {"", {.max_steps = 1, .learning_rate = -1}},
                       {"d", {.max_steps = 1, .per_device_train_batch_size = 2}}});
  with.args.max_steps = 5;
  with.args.auto_find_batch_size = true;
  with.args.weight_decay = -2;
  const auto fault = toy::fault_of<etude::ArgumentError>([&] { etude::Trainer<> trainer(with); });
  const auto count = [&](const std::string& part) {
    std::int64_t times = 0;
    for (auto at = fault.find(part); at != fault.npos; at = fault.find(part, at + 1)) ++times;
    return times;
  };
  CHECK(count("max_steps is 5: must not be set with phases, each of which has a length") == 1);
  CHECK(count("phase 'a': num_train_epochs is 0 and max_steps is 0: one of them must be positive") == 1);
  CHECK(count("phase 'a': num_train_epochs is 1 and max_steps is 1: one of them must be positive") == 1);
  CHECK(count("phases has the name 'a' twice") == 1);
  CHECK(count("phases has the name '': must be UTF-8 and not empty") == 1);
  CHECK(count("phase '': learning_rate is -1") == 1);
  CHECK(count("weight_decay is -2") == 1);
  CHECK(count("phase 'd': per_device_train_batch_size is 2: must not be set with auto_find_batch_size") == 1);

  etude::Trainer<> hosted(options({{"a", {.max_steps = 1}}}));
  CHECK(
      toy::contains(toy::fault_of<etude::ArgumentError>([&] { hosted.step(data(4).first, data(4).second); }),
                    "phases is set: must not be in a training whose batches or losses a program gives"));
}

TEST_CASE("what a later phase refuses is said before the first step") {
  const auto fault_of = [](PhaseOptions later, bool auto_microbatching = false) {
    auto with = options({{"first", {.max_steps = 1}}, {"later", std::move(later)}});
    with.args.auto_microbatching = auto_microbatching;
    etude::Trainer<> trainer(with);
    auto fault = toy::fault_of<etude::ArgumentError>([&] { trainer.train(); });
    CHECK(trainer.state().global_step == 0);
    for (const auto& parameter : trainer.model().parameters()) CHECK(parameter.requires_grad());
    return fault;
  };
  CHECK(toy::contains(fault_of({.max_steps = 1, .parameter_groups = {{"nowhere", {.frozen = true}}}}),
                      "phase 'later': "));
  CHECK(toy::contains(fault_of({.max_steps = 1, .optim_args = "momentun=1"}), "momentun"));
  CHECK(toy::contains(fault_of({.max_steps = 1, .optim = OptimizerNames::lbfgs}, true),
                      "phase 'later': auto_microbatching is true"));
  CHECK(toy::contains(fault_of({.max_steps = 1,
                                .lr_scheduler_type = etude::SchedulerType::cosine,
                                .lr_scheduler_kwargs = nlohmann::json{{"num_circles", 2}}}),
                      "num_circles"));
}

TEST_CASE("a checkpoint that doesn't say its phase isn't resumed") {
  const toy::Folder folder;
  auto with = options({{"a", {.max_steps = 2}}, {"b", {.max_steps = 2}}}, folder);
  toy::save_to(folder, with.args);
  etude::Trainer<> trainer(with);
  trainer.train();
  std::filesystem::remove(folder / "checkpoint-3" / "training_progress.json");
  std::filesystem::remove(folder / "checkpoint-3" / "etude_manifest.json");
  const auto fault = toy::fault_of<etude::CheckpointError>(
      [&] { trainer.train({.resume_from_checkpoint = folder / "checkpoint-3"}); });
  CAPTURE(fault);
  CHECK(toy::contains(fault, "has no training_progress.json, which says what phase it is in"));
}

template <class Policy>
void train_as_one() {
  auto with = options({{"adam", {.max_steps = 3, .learning_rate = 0.05}},
                       {"sgd",
                        {.num_train_epochs = 1,
                         .optim = OptimizerNames::sgd,
                         .optim_args = "momentum=0.9",
                         .parameter_groups = {{"0", {.frozen = true}}}}},
                       {"last", {.max_steps = 2}}});
  with.args.per_device_train_batch_size = 2;
  etude::Trainer<Policy> several(with);
  several.train();
  const auto ours = weights_of(several);
  const toy::Alone alone;
  with.model = network();
  with.args.per_device_train_batch_size = 4;
  etude::Trainer<> one(with);
  one.train();
  CHECK(torch::allclose(ours, weights_of(one), 1e-4, 1e-6));
}

TEST_CASE("processes go through the phases as one") {
  if (toy::launches(2)) return;
  train_as_one<etude::DistributedDataParallel>();
}

TEST_CASE("processes with shares of optimizers and parameters go through the phases as one") {
  if (toy::launches(2)) return;
  train_as_one<etude::ShardedDataParallel<1>>();
  train_as_one<etude::ShardedDataParallel<2>>();
  train_as_one<etude::ShardedDataParallel<3>>();
}

}  // namespace loop_phases_test
