#include "etude/loop/sharded_parameters.hpp"

#include <doctest/doctest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/loss.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "common/fault_of.hpp"
#include "common/folder.hpp"
#include "common/logged.hpp"
#include "common/ranks.hpp"
#include "common/sines.hpp"
#include "common/toy.hpp"
#include "etude/callbacks/model_ema.hpp"
#include "etude/dispatch/filters.hpp"
#include "etude/parallel/distributed_data_parallel.hpp"
#include "etude/trainer.hpp"

namespace loop_sharded_parameters_test {

using Sharded = etude::ShardedDataParallel<3>;
using etude::IntervalStrategy;
using toy::logged;
using toy::sines::check_close;
using toy::sines::check_resumed;
using toy::sines::examples;
using toy::sines::stage;
using toy::sines::weights;

etude::Model sequential() { return toy::sines::net(); }

struct NetImpl : torch::nn::Module {
  NetImpl() {
    for (int i = 0; i < 3; ++i) layers->push_back(torch::nn::Linear(8, 8));
  }
  torch::nn::Linear first{register_module("first", torch::nn::Linear(5, 8))};
  etude::Units<torch::nn::Linear> layers{register_module("layers", etude::Units<torch::nn::Linear>())};
  torch::nn::Linear last{register_module("last", torch::nn::Linear(8, 3))};
  torch::Tensor forward(torch::Tensor x) {
    x = first(x);
    for (const auto& layer : *layers) x = torch::tanh(layer(x));
    return last(x);
  }
};
TORCH_MODULE(Net);

etude::Model net() {
  torch::manual_seed(3);
  return Net();
}

etude::TrainerOptions problem(etude::Model model, std::int64_t batch, std::int64_t group) {
  auto args = toy::sines::arguments(batch, group);
  args.weight_decay = 0.1;
  args.eval_strategy = IntervalStrategy::epoch;
  return toy::sines::problem(std::move(model), args);
}

/// The message of the exception that a training throws, perhaps that another process has left.
template <class Trainer>
std::string fault_in(etude::TrainerOptions options) {
  return toy::fault_of<std::exception>([&] { Trainer(std::move(options)).train(); });
}

TEST_CASE("processes with shares of the parameters train, evaluate and predict as one") {
  if (toy::launches(3)) return;
  for (const int variant : {0, 1, 2, 3}) {
    CAPTURE(variant);
    const auto make = variant % 2 == 0 ? sequential : net;
    const bool recomputes = variant >= 2;
    auto options = problem(make(), 3, 2);
    options.args.gradient_checkpointing = recomputes;
    etude::Trainer<Sharded> sharded(options);
    sharded.train();
    const auto predictions = sharded.predict(examples(7)).predictions[0];
    const toy::Alone alone;
    etude::Trainer<> one(problem(make(), 9, 2));
    one.train();
    check_close(weights(sharded), weights(one));
    check_close({predictions}, {one.predict(examples(7)).predictions[0]});
    for (const auto* name : {"grad_norm", "eval_loss"}) {
      const auto ours = logged(sharded.state(), name), expected = logged(one.state(), name);
      REQUIRE(!expected.empty());
      REQUIRE(ours.size() == expected.size());
      for (std::size_t i = 0; i < ours.size(); ++i)
        CHECK(ours[i] == doctest::Approx(expected[i]).epsilon(1e-4));
    }
  }
}

struct FreezeMiddle {
  void on(const etude::TrainBegin& e) {
    for (auto& [name, parameter] : e.model.named_parameters())
      if (name.starts_with("layers.1.")) torch::Tensor(parameter).set_requires_grad(false);
  }
};

TEST_CASE("gradients pass through a unit whose shared parameters are frozen during the training") {
  if (toy::launches(2)) return;
  for (const bool recomputes : {false, true}) {
    auto options = problem(net(), 3, 1);
    options.args.gradient_checkpointing = recomputes;
    etude::Trainer<Sharded, FreezeMiddle> sharded(options);
    sharded.train();
    const toy::Alone alone;
    etude::Trainer<FreezeMiddle> one(problem(net(), 6, 1));
    one.train();
    check_close(weights(sharded), weights(one));
  }
}

TEST_CASE("a second training and saved weights are those of whole parameters") {
  if (!toy::is_rank()) {
    const toy::Folder folder;
    toy::launches(2, {"ETUDE_TEST_FOLDER=" + std::string(folder)});
    return;
  }
  etude::Trainer<Sharded> sharded(problem(net(), 4, 1));
  sharded.train();
  sharded.train();
  sharded.save_model(std::getenv("ETUDE_TEST_FOLDER"));
  const toy::Alone alone;
  etude::Trainer<> one(problem(net(), 8, 1));
  one.train();
  one.train();
  check_close(weights(sharded), weights(one));
}

struct SeesNaNInUnits {
  void on(const etude::StepEnd& e) {
    for (const auto& [name, parameter] : e.model.named_parameters()) {
      CHECK(parameter.isnan().all().item<bool>() == name.starts_with("layers."));
      CHECK(parameter.dim() == (name.ends_with("weight") ? 2 : 1));
    }
    ++steps;
  }
  int steps = 0;
};

TEST_CASE("between steps, parameters of units read as NaN in their shape, and others as they are") {
  if (toy::launches(2)) return;
  etude::Trainer<Sharded, SeesNaNInUnits> trainer(problem(net(), 4, 1));
  trainer.train();
  CHECK(trainer.template callback<SeesNaNInUnits>().steps == 12);
  for (const auto& tensor : weights(trainer)) CHECK(!tensor.isnan().any().item<bool>());
}

TEST_CASE("a checkpoint with shares of the parameters is resumed by 2 and 1, and without shares") {
  const auto options = [&](const std::string& where) {
    auto result = problem(net(), 8 / toy::world_size(), 1);
    toy::save_to(where, result.args, 2);
    return result;
  };
  if (toy::is_rank()) {
    const std::string where = std::getenv("ETUDE_TEST_FOLDER"), now = std::getenv("ETUDE_TEST_STAGE");
    if (now == "break") {
      etude::Trainer<Sharded, toy::sines::BreaksAfterStep5> trainer(options(where));
      CHECK_THROWS(trainer.train());
    } else if (now == "resume in shards") {
      etude::Trainer<Sharded> trainer(options(where));
      check_resumed(trainer, where, problem(net(), 8, 1));
    } else {
      etude::Trainer<etude::DistributedDataParallel> trainer(options(where));
      check_resumed(trainer, where, problem(net(), 8, 1));
    }
    return;
  }
  const toy::Folder folder;
  toy::launches(2, stage(folder, "break"));
  for (const std::int64_t world : {1, 2}) {
    toy::launches(world, stage(folder, "resume in shards"));
    toy::launches(world, stage(folder, "resume"));
  }
}

TEST_CASE("with shares of the parameters, a model without units is refused by name") {
  if (toy::launches(2)) return;
  const auto fault =
      fault_in<etude::Trainer<Sharded>>(problem((torch::manual_seed(3), torch::nn::Linear(5, 3)), 4, 1));
  CHECK(fault.find("torch::nn::LinearImpl has no units: must be a torch::nn::Sequential") != fault.npos);
}

TEST_CASE("with shares of the parameters, a callback that reads them is refused by name") {
  if (toy::launches(2)) return;
  const auto fault = fault_in<etude::Trainer<Sharded, etude::ModelEmaCallback>>(problem(net(), 4, 1));
  CHECK(fault.find("ModelEmaCallback reads the parameters between steps: can't be used with "
                   "ShardedDataParallel<3>") != fault.npos);
}

/// Reads the parameters if it is told to.
struct Reader {
  bool reads = true;
  bool reads_parameters() const { return reads; }
  void on(const etude::StepEnd&) { ++steps; }
  int steps = 0;
};

constexpr const char* reader_refused =
    "Reader reads the parameters between steps: can't be used with ShardedDataParallel<3>, which keeps them "
    "divided among the processes";

TEST_CASE("with shares of the parameters, a callback says by its options whether it reads them") {
  if (toy::launches(2)) return;
  etude::Trainer<Sharded, Reader> reads(problem(net(), 4, 1));
  CHECK(toy::fault_of<etude::ArgumentError>([&] { reads.train(); }) == reader_refused);
  etude::Trainer<Sharded, Reader> counts(problem(net(), 4, 1), Reader{.reads = false});
  counts.train();
  CHECK(counts.callback<Reader>().steps == 12);
}

TEST_CASE("with shares of the parameters, a callback that reads them can't be added at run time") {
  if (toy::launches(2)) return;
  using Trainer = etude::Trainer<Sharded, etude::RuntimeCallbacks>;
  Trainer before(problem(net(), 4, 1));
  before.add_callback(Reader{});
  CHECK(toy::fault_of<etude::ArgumentError>([&] { before.train(); }) == reader_refused);
  Trainer counts(problem(net(), 4, 1));
  counts.add_callback(Reader{.reads = false});
  counts.train();
  CHECK(counts.callback<Reader>().steps == 12);

  Trainer during(problem(net(), 4, 1));
  std::string fault;
  during.add_callback(etude::on<etude::StepEnd>().once(2).call([&](const etude::StepEnd&) {
    fault = toy::fault_of<etude::ArgumentError>([&] { during.add_callback(Reader{}); });
    during.add_callback(Reader{.reads = false});
  }));
  during.train();
  CHECK(fault == reader_refused);
  CHECK(during.callback<Reader>().steps == 10);
  during.add_callback(etude::ModelEmaCallback{});  // After the training, the parameters are whole.
}

TEST_CASE("with shares of the parameters, a StopTraining of one process's loss ends all with an error") {
  if (toy::launches(2)) return;
  auto options = problem(net(), 4, 2);
  options.loss = {};
  options.compute_loss = toy::sines::loss_that_stops(2, "enough on rank 1");
  CHECK(fault_in<etude::Trainer<Sharded>>(options).find("enough on rank 1") != std::string::npos);
}

TEST_CASE("with shares of the parameters, a callback of one process stops all") {
  if (toy::launches(2)) return;
  struct Stops {
    void on(const etude::SubstepEnd& e) {
      if (e.args.process_index() == 1 && e.state.global_step == 2) e.control.request_stop("enough");
    }
  };
  etude::Trainer<Sharded, Stops> trainer(problem(net(), 4, 2));
  CHECK(trainer.train().stop_reason == "enough");
  CHECK(trainer.state().global_step == 2);
}

TEST_CASE("alone, ShardedDataParallel<3> is one process") {
  etude::Trainer<Sharded> sharded(problem(net(), 4, 1));
  sharded.train();
  etude::Trainer<> one(problem(net(), 4, 1));
  one.train();
  check_close(weights(sharded), weights(one));
}

}  // namespace loop_sharded_parameters_test
