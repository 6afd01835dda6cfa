#include "etude/model/modules.hpp"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/fault_of.hpp"
#include "common/ranks.hpp"
#include "common/toy.hpp"
#include "etude/formats/safetensors.hpp"
#include "etude/parallel/distributed_data_parallel.hpp"

namespace loop_modules_test {

using etude::Modules;
using torch::nn::Sequential;
using Values = std::vector<double>;

constexpr std::int64_t batch_size = 4, steps = 6;
constexpr double decay = 0.9;

Sequential net() {
  return Sequential(torch::nn::Linear(3, 5), torch::nn::BatchNorm1d(5), torch::nn::Tanh(),
                    torch::nn::Linear(5, 2));
}

torch::Tensor images() { return torch::sin(torch::arange(batch_size * steps * 3).reshape({-1, 3}) * 0.7); }

torch::Tensor distill_loss(Sequential& student, Sequential& teacher, Sequential& slow,
                           const torch::Tensor& x) {
  torch::Tensor wanted;
  {
    const torch::NoGradGuard no_grad;
    wanted = teacher->forward(x) + slow->forward(x);
  }
  return torch::mse_loss(student->forward(x), wanted);
}

struct Nets {
  Sequential student = nullptr, teacher = nullptr, slow = nullptr;
};

Nets nets() {
  torch::manual_seed(5);
  Nets made{.student = net(), .teacher = net(), .slow = net()};
  made.teacher->eval();
  return made;
}

/// The losses of a hand-written loop.
Values by_hand(std::int64_t every) {
  auto made = nets();
  auto &student = made.student, &teacher = made.teacher, &slow = made.slow;
  const auto follow = [&](double weight) {
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < student->parameters().size(); ++i)
      slow->parameters()[i].lerp_(student->parameters()[i], weight);
    for (std::size_t i = 0; i < student->buffers().size(); ++i)
      slow->buffers()[i].copy_(student->buffers()[i]);
  };
  follow(1);
  slow->eval();
  torch::optim::SGD optimizer(student->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  Values losses;
  for (const auto& x : images().split(batch_size)) {
    optimizer.zero_grad();
    const auto loss = distill_loss(student, teacher, slow, x);
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item<double>());
    if (losses.size() % static_cast<std::size_t>(every) == 0) follow(every == 1 ? 1 - decay : 1);
  }
  return losses;
}

struct Record {
  std::shared_ptr<Values> losses = std::make_shared<Values>();
  void on(const etude::BackwardEnd& e) { losses->push_back(e.loss.item<double>()); }
};

struct Distillation {
  Nets made = nets();
  Record record;
  etude::Trainer<Record> trainer;

  explicit Distillation(std::int64_t every, std::optional<std::string> folder = {})
      : trainer(
            {.model = Modules{{"student", made.student},
                              {"teacher", etude::frozen(made.teacher)},
                              {"slow", etude::target_of("student", made.slow,
                                                        {.decay = every == 1 ? decay : 0, .every = every})}},
             .args = arguments(folder),
             .compute_loss =
                 [](Sequential& student, Sequential& teacher, Sequential& slow, const etude::Batch& batch) {
                   return distill_loss(student, teacher, slow, batch.inputs[0]);
                 },
             .train_dataset = images(),
             .optimizer =
                 torch::optim::SGD(made.student->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9))},
            record) {}

  static etude::TrainingArguments arguments(const std::optional<std::string>& folder) {
    auto args = toy::arguments();
    args.per_device_train_batch_size = batch_size;
    args.max_grad_norm = 0;
    args.train_sampling_strategy = etude::SamplingStrategy::sequential;
    if (folder) toy::save_to(*folder, args);
    return args;
  }
};

TEST_CASE("a loop with a teacher and a slow copy has the same losses to the bit with Modules") {
  for (const std::int64_t every : {1, 2}) {
    Distillation distillation(every);
    distillation.trainer.train();
    CHECK(*distillation.record.losses == by_hand(every));
  }
}

TEST_CASE("a training with a slow copy is resumed to the bit, and its checkpoints leave out the teacher") {
  const toy::Folder folder;
  Distillation whole(2, folder);
  whole.trainer.train();
  const auto weights = etude::load_safetensors(folder / "checkpoint-3/model.safetensors").tensors;
  for (const auto& [name, tensor] : weights)
    CHECK((name.starts_with("student.") || name.starts_with("slow.")));
  CHECK(weights.size() == 2 * 9);

  Distillation resumed(2, folder);
  resumed.trainer.train({.resume_from_checkpoint = folder / "checkpoint-3"});
  const Values all = by_hand(2);
  CHECK(*resumed.record.losses == Values(all.begin() + 3, all.end()));
  CHECK(torch::equal(resumed.made.slow->parameters()[0], whole.made.slow->parameters()[0]));
}

struct CriticImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) { return score(x); }
  torch::nn::Linear score = register_module("score", torch::nn::Linear(2, 1));
};
TORCH_MODULE(Critic);
struct GeneratorImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) { return out(x); }
  torch::nn::Linear out = register_module("out", torch::nn::Linear(3, 2));
};
TORCH_MODULE(Generator);

TEST_CASE("two modules with an optimizer each: losses take those that they use, by their types") {
  const auto make = [] {
    torch::manual_seed(9);
    return std::pair(Generator(), Critic());
  };
  const auto sgd = [](const auto& net) {
    return torch::optim::SGD(net->parameters(), torch::optim::SGDOptions(0.1));
  };
  Values expected;
  {
    auto [generator, critic] = make();
    auto of_critic = sgd(critic), of_generator = sgd(generator);
    for (const auto& x : images().split(batch_size)) {
      of_critic.zero_grad();
      auto loss = critic(generator(x).detach()).mean() + critic(x.slice(1, 0, 2)).square().mean();
      loss.backward();
      of_critic.step();
      expected.push_back(loss.item<double>());
      of_generator.zero_grad();
      loss = -critic(generator(x)).mean();
      loss.backward();
      of_generator.step();
      expected.push_back(loss.item<double>());
    }
  }
  auto [generator, critic] = make();
  Values losses;
  auto args = Distillation::arguments({});
  etude::Trainer<> trainer(
      {.model = Modules{{"generator", generator}, {"critic", critic}},
       .args = args,
       .train_dataset = images(),
       .optimizers = {{"critic",
                       {.compute_loss =
                            [&](Generator& g, CriticImpl& c, const etude::Batch& batch) {
                              const torch::Tensor& x = batch.inputs[0];
                              const auto loss = c.forward(g(x).detach()).mean() +
                                                c.forward(x.slice(1, 0, 2)).square().mean();
                              losses.push_back(loss.item<double>());
                              return loss;
                            },
                        .optimizer = sgd(critic)}},
                      {"generator",
                       {.compute_loss =
                            [&](Critic c, Generator g, const etude::Batch& batch, std::optional<double>) {
                              const auto loss = -c(g(batch.inputs[0])).mean();
                              losses.push_back(loss.item<double>());
                              return etude::LossOutput{.loss = loss, .outputs = {}};
                            },
                        .optimizer = sgd(generator)}}}});
  trainer.train();
  CHECK(losses == expected);
}

TEST_CASE(
    "a teacher has the weights' type in an evaluation and with pure_bf16, where a slow copy is refused") {
  std::vector<torch::ScalarType> types;
  const auto options = [&](etude::TrainingArguments args, Critic teacher) -> etude::TrainerOptions {
    return {.model = Modules{{"student", Generator()}, {"teacher", etude::frozen(teacher)}},
            .args = std::move(args),
            .compute_loss =
                [&types](Generator& student, Critic& of_batch, const etude::Batch& batch) {
                  types.push_back(of_batch->score->weight.scalar_type());
                  return of_batch(student(batch.inputs[0])).mean();
                },
            .train_dataset = torch::ones({1, 3}),
            .eval_dataset = torch::ones({1, 3})};
  };
  auto args = toy::arguments();
  args.bf16_full_eval = true;
  Critic teacher;
  etude::Trainer<> evaluated(options(args, teacher));
  evaluated.evaluate();
  CHECK(types == std::vector{torch::kBFloat16});
  CHECK((teacher->score->weight.scalar_type() == torch::kFloat));

  types.clear();
  args = toy::arguments();
  args.pure_bf16 = true;
  etude::Trainer<> trained(options(args, Critic()));
  trained.train();
  CHECK(types == std::vector{torch::kBFloat16});

  auto refused = options(args, Critic());
  refused.model = Modules{{"student", Generator()}, {"slow", etude::target_of("student", Generator())}};
  refused.compute_loss = [](etude::Model& model, const etude::Batch& batch) {
    return model.forward(batch)[0].mean();
  };
  etude::Trainer<> trainer(refused);
  CHECK_THROWS_WITH_AS(trainer.train(),
                       doctest::Contains("pure_bf16 is true: must be false with a target_of"),
                       etude::ArgumentError);
}

etude::TrainerOptions of_processes(torch::nn::Linear student, torch::nn::Linear slow) {
  auto args = Distillation::arguments({});
  args.per_device_train_batch_size = batch_size / 2;
  args.learning_rate = 0.1;
  return {
      .model = Modules{{"student", student}, {"slow", etude::target_of("student", slow, {.decay = decay})}},
      .args = args,
      .compute_loss =
          [](torch::nn::Linear& trained, torch::nn::Linear& follower, const etude::Batch& batch) {
            return torch::mse_loss(trained(batch.inputs[0]), follower(batch.inputs[0]) + 1);
          },
      .train_dataset = images()};
}

/// Compares the slow copy with an average that it makes itself.
struct FollowsStudent {
  torch::nn::Linear student, slow;
  torch::Tensor expected = student->weight.detach().clone();
  void on(const etude::StepEnd&) {
    const torch::NoGradGuard no_grad;
    expected.lerp_(student->weight, 1 - decay);
    CHECK(torch::equal(slow->weight, expected));
  }
};

TEST_CASE("in two processes, a slow copy follows the trained weights, and gets no gradients") {
  if (toy::launches(2)) return;
  torch::manual_seed(5);
  torch::nn::Linear student(3, 1), slow(3, 1);
  etude::Trainer<etude::DistributedDataParallel, FollowsStudent> trainer(of_processes(student, slow),
                                                                         FollowsStudent{student, slow});
  CHECK(trainer.train().global_step == steps);
  CHECK_FALSE(slow->weight.grad().defined());
}

TEST_CASE("in two processes that share the parameters, a slow copy is refused") {
  if (toy::launches(2)) return;
  etude::Trainer<etude::ShardedDataParallel<3>> trainer(
      of_processes(torch::nn::Linear(3, 1), torch::nn::Linear(3, 1)));
  // A process may learn of the other's error before it throws its own.
  CHECK(toy::contains(toy::fault_of<std::exception>([&] { trainer.train(); }),
                      "ShardedDataParallel<3> keeps no whole parameters"));
}

TEST_CASE("a loss that takes another number of modules than have its type is refused") {
  const auto train = [](etude::ComputeLossOption loss) {
    etude::Trainer<> trainer({.model = Modules{{"a", Critic()}, {"b", Critic()}},
                              .args = toy::arguments(),
                              .compute_loss = std::move(loss),
                              .train_dataset = torch::ones({2, 2})});
    trainer.train();
  };
  CHECK_THROWS_WITH_AS(
      train([](Critic& only, const etude::Batch& batch) { return only(batch.inputs[0]).mean(); }),
      doctest::Contains("the model has 2 modules of type loop_modules_test::CriticImpl, and 1 are asked for"),
      etude::ArgumentError);
  CHECK_THROWS_AS(train([](Generator& g, const etude::Batch& batch) { return g(batch.inputs[0]).mean(); }),
                  etude::ArgumentError);
  CHECK_NOTHROW(train([](etude::Model& model, const etude::Batch& batch) {
    return model.as<Critic>("b").forward(batch.inputs[0]).mean();
  }));
}

}  // namespace loop_modules_test
