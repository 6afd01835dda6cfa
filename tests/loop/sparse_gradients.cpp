#include <doctest/doctest.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/loss.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <csignal>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/fault_of.hpp"
#include "common/folder.hpp"
#include "common/interrupting.hpp"
#include "common/toy.hpp"
#include "etude/loop/non_finite_origin.hpp"

namespace loop_sparse_gradients_test {

using etude::OptimizerNames;
using Quiet = etude::Without<etude::PrinterCallback>;

constexpr std::int64_t users = 40, examples = 24, batch_size = 3;

/// A table with a dense head. Each batch reads a few rows of the table.
struct TableImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& user) { return head(table(user)).squeeze(1); }

  torch::nn::Embedding table{
      register_module("table", torch::nn::Embedding(torch::nn::EmbeddingOptions(users, 4).sparse(true)))};
  torch::nn::Linear head{register_module("head", torch::nn::Linear(4, 1))};
};
TORCH_MODULE(Table);

Table seeded() {
  torch::manual_seed(3);
  return Table();
}

/// Some batches have a user twice; none has a user from 30 on.
std::pair<torch::Tensor, torch::Tensor> data() {
  const auto user = (torch::arange(examples) * 7 / 2).to(torch::kLong).remainder(10) * 3;
  return {user, torch::sin(user.to(torch::kFloat))};
}

etude::TrainerOptions options(const Table& model, OptimizerNames optim, double max_grad_norm = 0) {
  auto args = toy::arguments();
  args.per_device_train_batch_size = batch_size;
  args.num_train_epochs = 3;
  args.train_sampling_strategy = etude::SamplingStrategy::sequential;
  args.optim = optim;
  args.max_grad_norm = max_grad_norm;
  const auto [user, rating] = data();
  return {.model = model, .args = args, .loss = torch::nn::MSELoss(), .train_dataset = {user, rating}};
}

/// The hand-written loop, with clipping over the coalesced values.
void train_by_hand(Table& model, torch::optim::Optimizer& optimizer, std::int64_t accumulation = 1,
                   double max_grad_norm = 0) {
  const auto [user, rating] = data();
  for (int epoch = 0; epoch < 3; ++epoch)
    for (std::int64_t i = 0; i < examples; i += batch_size * accumulation) {
      optimizer.zero_grad();
      for (std::int64_t part = 0; part < accumulation; ++part) {
        const auto at = i + part * batch_size;
        (torch::mse_loss(model(user.narrow(0, at, batch_size)), rating.narrow(0, at, batch_size)) /
         accumulation)
            .backward();
      }
      if (max_grad_norm > 0) {
        auto& table = model->table->weight.mutable_grad();
        table = table.coalesce();
        double squares = table.values().square().sum().item<double>();
        for (const auto& dense : model->head->parameters())
          squares += dense.grad().square().sum().item<double>();
        const double factor = max_grad_norm / (std::sqrt(squares) + 1e-6);
        if (factor < 1)
          for (const auto& parameter : model->parameters()) parameter.mutable_grad().mul_(factor);
      }
      optimizer.step();
    }
}

void check_close(const Table& a, const Table& b, double tolerance) {
  const auto of_a = a->parameters(), of_b = b->parameters();
  for (std::size_t i = 0; i < of_a.size(); ++i) {
    CAPTURE(i);
    CHECK((of_a[i] - of_b[i]).abs().max().item<double>() <= tolerance);
  }
}

TEST_CASE("a training with sparse gradients equals the loop by hand, with accumulation and clipping") {
  for (const auto optim : {OptimizerNames::sgd, OptimizerNames::adagrad})
    for (const std::int64_t accumulation : {1, 2})
      for (const double max_grad_norm : {0.0, 0.05}) {
        CAPTURE(accumulation);
        CAPTURE(max_grad_norm);
        auto ours = seeded(), theirs = seeded();
        auto given = options(ours, optim, max_grad_norm);
        given.args.gradient_accumulation_steps = accumulation;
        etude::Trainer<Quiet> trainer(given);
        trainer.train();
        std::unique_ptr<torch::optim::Optimizer> torchs;
        if (optim == OptimizerNames::sgd)
          torchs = std::make_unique<torch::optim::SGD>(theirs->parameters(), torch::optim::SGDOptions(0.1));
        else
          torchs = std::make_unique<torch::optim::Adagrad>(theirs->parameters(),
                                                           torch::optim::AdagradOptions(0.1));
        train_by_hand(theirs, *torchs, accumulation, max_grad_norm);
        check_close(ours, theirs, 2e-6);
      }
}

TEST_CASE("LibTorch's own optimizer, as an object or behind a unique_ptr, sees the sparse gradient") {
  const auto train = [](const Table& model, auto given) {
    auto all = options(model, OptimizerNames::sgd);
    all.optimizer = std::move(given);
    etude::Trainer<Quiet>(all).train();
  };
  const torch::optim::AdagradOptions rate(0.1);
  auto expected = seeded(), object = seeded(), unique = seeded(), shared = seeded();
  torch::optim::Adagrad by_hand(expected->parameters(), rate);
  train_by_hand(expected, by_hand);
  train(object, torch::optim::Adagrad(object->parameters(), rate));
  train(unique, std::make_unique<torch::optim::Adagrad>(unique->parameters(), rate));
  train(shared, std::make_shared<torch::optim::Adagrad>(shared->parameters(), rate));
  for (const auto& model : {object, unique, shared}) check_close(model, expected, 0);
}

TEST_CASE("an optimizer that can't use a sparse gradient ends the training with the parameter's name") {
  const auto fault = toy::fault_of<etude::ArgumentError>(
      [] { etude::Trainer<Quiet>(options(seeded(), OptimizerNames::adamw_torch_fused, 1)).train(); });
  CHECK(toy::contains(fault, "parameter 'table.weight' has a sparse gradient, which AdamW can't use"));
}

TEST_CASE("sparse_adam for a table and adam for the rest are two optimizers") {
  auto model = seeded();
  const auto before = model->table->weight.detach().clone();
  const auto [user, rating] = data();
  const auto loss = [&] { return torch::mse_loss(model(user), rating).item<double>(); };
  const double first = loss();
  auto all = options(model, OptimizerNames::sgd);
  all.optimizers = {{"table", {.optim = OptimizerNames::sparse_adam}},
                    {"head", {.optim = OptimizerNames::adam}}};
  etude::Trainer<Quiet> trainer(all);
  trainer.train();
  const auto moved = (model->table->weight - before).abs().sum(1).detach();
  CHECK(moved.narrow(0, 30, 10).count_nonzero().item<std::int64_t>() == 0);
  CHECK(moved[3].item<double>() > 0);
  CHECK(loss() < first / 2);
}

TEST_CASE("a training that is interrupted within an update resumes bit for bit, with its moments") {
  const toy::OwnHandler handler;
  for (const auto optim : {OptimizerNames::adagrad, OptimizerNames::sgd}) {
    const auto run = [&](const std::string& folder, std::int64_t interrupted) {
      auto model = seeded();
      auto given = options(model, optim, 0.05);
      given.args.gradient_accumulation_steps = 4;
      toy::save_to(folder, given.args, 1000);
      etude::Trainer<Quiet, toy::Interrupting> trainer(given, toy::Interrupting{interrupted});
      if (interrupted >= 0)
        CHECK_THROWS_AS(trainer.train(), etude::Interrupted);
      else
        trainer.train({.resume_from_checkpoint = etude::if_any});
      return model;
    };
    const toy::Folder whole, parts;
    run(parts, 2);
    check_close(run(parts, -1), run(whole, -1), 0);
  }
}

TEST_CASE("the gradient of a table that isn't finite is found") {
  auto module = seeded();
  const etude::Model model(module);
  etude::Batch batch{.inputs = {torch::tensor({1, 2})}, .labels = {}, .size = 2};
  const auto compute_loss = [&](const etude::Batch& part) {
    return (module->table(part.inputs[0]).sum() * 0).sqrt();  // its derivative is infinite
  };
  const auto origin = etude::find_non_finite(model, batch, compute_loss, /*backward=*/true);
  CHECK(toy::contains(origin.text, "the gradient of table.weight isn't finite"));
}

}  // namespace loop_sparse_gradients_test
