#include "etude/tune/batch_size_finder.hpp"

#include <doctest/doctest.h>

#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <stdexcept>
#include <utility>
#include <vector>

#include "common/toy.hpp"
#include "etude/base/error.hpp"
#include "etude/libtorch/generators.hpp"

namespace tune_batch_size_finder_test {

using etude::BatchSizeSearchMode;
using etude::find_batch_size;

constexpr auto no_limit = std::numeric_limits<std::int64_t>::max();

/// A model that fits into memory only with batches of at most `limit`.
struct LimitedImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) {
    ++forwards;
    if (x.size(0) > limit) fail();
    return dropout(norm(x)) * weight;
  }
  torch::nn::BatchNorm1d norm{register_module("norm", torch::nn::BatchNorm1d(1))};
  torch::nn::Dropout dropout{register_module("dropout", torch::nn::Dropout(0.5))};
  torch::Tensor weight = register_parameter("weight", torch::ones({1}));
  std::int64_t limit = no_limit;
  int forwards = 0;
  std::function<void()> fail = [] { throw std::bad_alloc(); };
};
TORCH_MODULE(Limited);

etude::TrainerOptions options(const Limited& net, std::int64_t examples = 100) {
  auto result = toy::options(toy::arguments(), examples);
  result.model = net;
  return result;
}

using Trials = std::vector<std::pair<std::int64_t, bool>>;
Trials trials(const etude::BatchSizeSearch& search) {
  Trials result;
  for (const auto& [size, fits] : search.trials) result.emplace_back(size, fits);
  return result;
}

TEST_CASE("power doubles until a batch doesn't fit, and returns the last that did") {
  Limited net;
  net->limit = 37;
  etude::Trainer<> trainer(options(net));
  const auto search = find_batch_size(trainer);
  CHECK(search.batch_size == 32);
  CHECK(trials(search) == Trials{{2, true}, {4, true}, {8, true}, {16, true}, {32, true}, {64, false}});
  CHECK(net->forwards == 5 * 3 + 1);
  CHECK_FALSE(search.limited_by_dataset);
  CHECK_FALSE(search.limited_by_trials);
}

TEST_CASE("binsearch continues between the last that fitted and the first that didn't") {
  Limited net;
  net->limit = 37;
  etude::Trainer<> trainer(options(net));
  const auto search = find_batch_size(trainer, {.mode = BatchSizeSearchMode::binsearch, .init_val = 16});
  CHECK(search.batch_size == 37);
  CHECK(trials(search) == Trials{{16, true},
                                 {32, true},
                                 {64, false},
                                 {48, false},
                                 {40, false},
                                 {36, true},
                                 {38, false},
                                 {37, true}});
}

TEST_CASE("a first size that doesn't fit is halved until one does") {
  Limited net;
  net->limit = 5;
  etude::Trainer<> trainer(options(net));
  CHECK(trials(find_batch_size(trainer, {.init_val = 32})) ==
        Trials{{32, false}, {16, false}, {8, false}, {4, true}});
  CHECK(find_batch_size(trainer, {.mode = BatchSizeSearchMode::binsearch, .init_val = 32}).batch_size == 5);
  net->limit = 0;
  CHECK_THROWS_WITH_AS(find_batch_size(trainer),
                       "not even a batch of one example fits into memory: std::bad_alloc", etude::Error);
}

TEST_CASE("no size is tried beyond the dataset, nor after the last trial") {
  Limited net;
  etude::Trainer<> small(options(net, 20));
  auto search = find_batch_size(small);
  CHECK(trials(search) == Trials{{2, true}, {4, true}, {8, true}, {16, true}, {20, true}});
  CHECK(search.batch_size == 20);
  CHECK(search.limited_by_dataset);

  search = find_batch_size(small, {.max_trials = 3});
  CHECK(search.batch_size == 8);
  CHECK(search.limited_by_trials);

  // A sampler that returns fewer examples than the dataset has.
  auto sampled = options(net);
  sampled.train_sampler = std::make_shared<torch::data::samplers::RandomSampler>(10);
  etude::Trainer<> few(sampled);
  search = find_batch_size(few);
  CHECK(search.batch_size == 8);
  CHECK(search.limited_by_dataset);
}

TEST_CASE("each form of running out of memory is recognised; any other error propagates as it was thrown") {
  Limited net;
  net->limit = 10;
  etude::Trainer<> trainer(options(net));
  net->fail = [] { static_cast<void>(torch::empty({std::int64_t{1} << 50})); };
  CHECK(find_batch_size(trainer).batch_size == 8);
  net->fail = [] { C10_THROW_ERROR(OutOfMemoryError, "the device has no memory left"); };
  CHECK(find_batch_size(trainer).batch_size == 8);
  net->fail = [] { throw std::logic_error("too many examples"); };
  CHECK_THROWS_WITH_AS(find_batch_size(trainer), "too many examples", std::logic_error);
}

TEST_CASE("everything is restored, also after an error, and no event is raised") {
  Limited net;
  net->limit = 10;
  etude::Trainer<toy::Recorder> trainer(options(net));
  const auto state = [&] {
    std::vector<torch::Tensor> tensors{
        etude::generator_state(at::globalContext().defaultGenerator(torch::kCPU))};
    for (const auto& tensor : net->parameters()) tensors.push_back(tensor.detach().clone());
    for (const auto& tensor : net->buffers()) tensors.push_back(tensor.clone());
    return tensors;
  };
  const auto check_same = [&](const std::vector<torch::Tensor>& before) {
    const auto now = state();
    for (std::size_t i = 0; i < now.size(); ++i) CHECK(now[i].equal(before[i]));
    CHECK_FALSE(net->weight.grad().defined());
    CHECK_FALSE(net->norm->is_training());
    CHECK(net->dropout->is_training());
  };
  net->train();
  net->norm->eval();
  const auto before = state();
  find_batch_size(trainer);
  check_same(before);
  net->fail = [] { throw std::logic_error("too many examples"); };
  CHECK_THROWS_AS(find_batch_size(trainer), std::logic_error);
  check_same(before);
  CHECK(trainer.callback<toy::Recorder>().heard == std::vector<std::string>{"InitEnd"});
  CHECK(trainer.args().per_device_train_batch_size == 1);
  CHECK(trainer.optimizer() == nullptr);
}

TEST_CASE("invalid options are refused, all at once") {
  etude::Trainer<> trainer(options(Limited()));
  CHECK_THROWS_WITH_AS(find_batch_size(trainer, {.steps_per_trial = 0, .init_val = -2, .max_trials = 0}),
                       "steps_per_trial is 0: must be at least 1\ninit_val is -2: must be at least 1\n"
                       "max_trials is 0: must be at least 1",
                       etude::ArgumentError);
}

}  // namespace tune_batch_size_finder_test
