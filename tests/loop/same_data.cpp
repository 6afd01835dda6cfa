#include "etude/loop/same_data.hpp"

#include <doctest/doctest.h>
#include <torch/data/samplers/distributed.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/loss.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/fault_of.hpp"
#include "common/folder.hpp"
#include "common/ranks.hpp"
#include "common/sines.hpp"
#include "common/toy.hpp"
#include "etude/callbacks/convert_sync_batch_norm.hpp"
#include "etude/callbacks/predictions_to_csv.hpp"
#include "etude/metrics/accuracy.hpp"
#include "etude/metrics/streaming.hpp"
#include "etude/parallel/distributed_data_parallel.hpp"
#include "etude/trainer.hpp"

namespace loop_same_data_test {

using etude::already_divided;
using etude::DistributedDataParallel;
using toy::contains;
using toy::fault_of;
using toy::sines::examples;
using toy::sines::net;
using toy::sines::rows;

/// A stream of these examples.
struct Rows {
  std::int64_t first = 0, count = 0, place = 0;
  std::optional<std::pair<torch::Tensor, torch::Tensor>> next() {
    if (place == count) return std::nullopt;
    const auto [inputs, labels] = rows(first + place++, 1);
    return std::pair(inputs[0], labels[0]);
  }
  void reset() { place = 0; }
};

etude::TrainerOptions problem(etude::Dataset train) {
  auto args = toy::arguments();
  args.per_device_train_batch_size = args.per_device_eval_batch_size = 2;
  args.num_train_epochs = 2;
  args.optim = etude::OptimizerNames::sgd;
  args.max_grad_norm = 0;
  args.train_sampling_strategy = etude::SamplingStrategy::sequential;
  args.ddp_timeout = 60;
  auto options = toy::sines::problem(net(), args);
  options.train_dataset = std::move(train);
  options.eval_dataset = examples(4);
  return options;
}

std::string fault_in_training(etude::TrainerOptions options) {
  etude::Trainer<DistributedDataParallel> trainer(std::move(options));
  return fault_of<etude::DataError>([&] { trainer.train(); });
}

constexpr const char* hint = "declare data that is divided already by etude::already_divided(dataset)";

TEST_CASE("training sets of other sizes or contents are refused in all processes, which say who has what") {
  if (toy::launches(3)) return;
  const bool is_last = toy::rank() == 2;
  const auto sizes = fault_in_training(problem(examples(is_last ? 20 : 40)));
  CHECK(contains(sizes,
                 "train_dataset isn't the same in all processes: ranks 0, 1 have 40 examples (checksum "));
  CHECK(contains(sizes, "), rank 2 has 20 examples (checksum "));
  CHECK(contains(sizes, hint));
  const auto contents = fault_in_training(problem(examples(40, is_last ? 40 : 0)));
  CHECK(contains(contents, "ranks 0, 1 have 40 examples (checksum "));
  CHECK(contains(contents, "), rank 2 has 40 examples (checksum "));
  CHECK(contains(fault_in_training(problem(is_last ? examples(4) : already_divided(examples(4)))),
                 "ranks 0, 1 have a part of the data, rank 2 has 4 examples"));
  CHECK(fault_in_training(problem(examples(40))) == "nothing was thrown");
}

TEST_CASE("evaluation and prediction sets that differ are refused at the beginning, by name") {
  if (toy::launches(2)) return;
  const auto count = toy::rank() == 0 ? 13 : 5;
  auto options = problem(examples(8));
  options.eval_dataset = {{"news", examples(4)}, {"books", examples(count)}};
  CHECK(contains(fault_in_training(options),
                 "eval_dataset 'books' isn't the same in all processes: rank 0 has 13 "
                 "examples"));
  options.eval_dataset = toy::rank() == 0 ? etude::EvalDatasets{{"news", examples(4)}, {"books", examples(4)}}
                                          : etude::EvalDatasets{{"news", examples(4)}};
  CHECK(contains(fault_in_training(options), "rank 1 has none"));
  etude::Trainer<DistributedDataParallel> trainer(problem(examples(8)));
  CHECK(
      contains(fault_of<etude::DataError>([&] { trainer.evaluate({.eval_dataset = examples(count)}); }),
               "the dataset to evaluate or predict isn't the same in all processes: rank 0 has 13 examples"));
  etude::Trainer<DistributedDataParallel> other(problem(examples(8)));
  CHECK(
      contains(fault_of<etude::DataError>([&] { other.predict(examples(count)); }), "rank 1 has 5 examples"));
}

TEST_CASE("a stream that ends earlier in one process is refused where it ends") {
  if (toy::launches(2)) return;
  auto options = problem(Rows{0, toy::rank() == 0 ? 12 : 4});
  options.args.max_steps = 20;
  CHECK(
      contains(fault_in_training(options), "train_dataset has no more batches in 1 of 2 processes: must be"));
}

/// Plain LibTorch: batch k of an epoch has the examples of batch k of all parts, and all examples of an
/// update count equally.
std::vector<torch::Tensor> trained_by_hand(const std::vector<std::pair<std::int64_t, std::int64_t>>& parts,
                                           std::int64_t group) {
  auto model = net();
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  for (int epoch = 0; epoch < 2; ++epoch) {
    std::vector<std::pair<torch::Tensor, torch::Tensor>> batches;
    for (std::int64_t place = 0;; place += 2) {
      std::vector<torch::Tensor> inputs, labels;
      for (const auto& [first, count] : parts) {
        const auto left = std::min<std::int64_t>(count - place, 2);
        if (left <= 0) continue;
        const auto [x, y] = rows(first + place, left);
        inputs.push_back(x);
        labels.push_back(y);
      }
      if (inputs.empty()) break;
      batches.emplace_back(torch::cat(inputs), torch::cat(labels));
    }
    for (std::size_t begin = 0; begin < batches.size(); begin += static_cast<std::size_t>(group)) {
      const auto end = std::min(batches.size(), begin + static_cast<std::size_t>(group));
      std::vector<torch::Tensor> inputs, labels;
      for (auto i = begin; i < end; ++i) {
        inputs.push_back(batches[i].first);
        labels.push_back(batches[i].second);
      }
      optimizer.zero_grad();
      torch::nn::functional::cross_entropy(model->forward(torch::cat(inputs)), torch::cat(labels)).backward();
      optimizer.step();
    }
  }
  return model->parameters();
}

template <class Trainer>
void check_weights(Trainer& trainer, const std::vector<torch::Tensor>& expected) {
  const auto found = trainer.model().parameters();
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    CAPTURE(i);
    CHECK((found[i] - expected[i]).abs().max().template item<double>() <= 1e-5);
  }
}

/// The first example and the number of examples of each process's part.
using Parts = std::vector<std::pair<std::int64_t, std::int64_t>>;

template <class Policy>
void check_divided(const Parts& parts, std::int64_t group, bool as_stream = false) {
  const auto [first, count] = parts[static_cast<std::size_t>(toy::rank())];
  auto options =
      problem(already_divided(as_stream ? etude::Dataset(Rows{first, count}) : examples(count, first)));
  options.args.gradient_accumulation_steps = group;
  std::int64_t most = 0;
  for (const auto& [begin, size] : parts) most = std::max(most, size);
  const auto steps = ((most + 1) / 2 + group - 1) / group * 2;
  if (as_stream) options.args.max_steps = steps;
  etude::Trainer<Policy> trainer(options);
  trainer.train();
  CHECK(trainer.state().global_step == steps);
  if (!as_stream) CHECK(trainer.state().epoch == doctest::Approx(2));
  check_weights(trainer, trained_by_hand(parts, group));
}

TEST_CASE(
    "data that is divided already: each process trains on all of its part, every example once an epoch") {
  if (toy::launches(2)) return;
  for (const Parts& parts : {Parts{{0, 6}, {6, 6}}, Parts{{0, 7}, {7, 2}}, Parts{{0, 1}, {1, 8}}})
    for (const std::int64_t group : {1, 2}) {
      CAPTURE(parts[0].second);
      CAPTURE(group);
      check_divided<DistributedDataParallel>(parts, group);
      check_divided<etude::ShardedDataParallel<1>>(parts, group);
      check_divided<etude::ShardedDataParallel<2>>(parts, group);
      check_divided<etude::ShardedDataParallel<3>>(parts, group);
    }
}

TEST_CASE("streams that are divided already may have other lengths") {
  if (toy::launches(2)) return;
  check_divided<DistributedDataParallel>({{0, 6}, {6, 6}}, 1, /*as_stream=*/true);
  check_divided<DistributedDataParallel>({{0, 3}, {3, 6}}, 1, /*as_stream=*/true);
  check_divided<etude::ShardedDataParallel<2>>({{0, 7}, {7, 4}}, 2, /*as_stream=*/true);
}

TEST_CASE("a DistributedSampler divides the same dataset, which is compared") {
  if (toy::launches(2)) return;
  const auto sampler = [] {
    return std::make_shared<torch::data::samplers::DistributedSequentialSampler>(
        12, 2, static_cast<std::size_t>(toy::rank()), /*allow_duplicates=*/false);
  };
  auto options = problem(examples(12));
  options.train_sampler = sampler();
  options.args.max_steps = 6;
  etude::Trainer<DistributedDataParallel> trainer(options);
  trainer.train();
  check_weights(trainer, trained_by_hand({{0, 6}, {6, 6}}, 1));  // rank 1 has the second half
  auto other = problem(examples(12, 12 * toy::rank()));
  other.train_sampler = sampler();
  other.args.max_steps = 6;
  CHECK(contains(fault_in_training(other), "train_dataset isn't the same in all processes"));
}

TEST_CASE("divided data may go with batch norms that all processes compute, though one part ends first") {
  if (toy::launches(2)) return;
  auto options = problem(already_divided(examples(toy::rank() == 0 ? 8 : 2, 8 * toy::rank())));
  torch::manual_seed(3);
  options.model =
      torch::nn::Sequential(torch::nn::Linear(5, 7), torch::nn::BatchNorm1d(7), torch::nn::Linear(7, 3));
  etude::Trainer<DistributedDataParallel, etude::ConvertSyncBatchNormCallback> trainer(options);
  CHECK(trainer.train().global_step == 8);
}

TEST_CASE("alone, data that is divided already is the whole") {
  etude::Trainer<DistributedDataParallel> trainer(problem(already_divided(examples(7))));
  trainer.train();
  check_weights(trainer, trained_by_hand({{0, 7}}, 1));
}

/// A metric that depends on the order of the examples.
etude::Metrics score(const etude::EvalPrediction& p) {
  const auto places = torch::arange(1, p.label_ids[0].size(0) + 1).to(torch::kDouble);
  return {{"score", (p.predictions[0].sum(1).to(torch::kDouble) * places).sum().item<double>()},
          {"rows", static_cast<double>(p.predictions[0].size(0))}};
}

TEST_CASE("an evaluation of divided data has the metrics of all parts, one part after the other") {
  if (toy::launches(2)) return;
  for (const auto& [first, second] : {std::pair(5, 2), std::pair(1, 6), std::pair(4, 4)}) {
    CAPTURE(first);
    const auto part = already_divided(toy::rank() == 0 ? examples(first) : examples(second, first));
    auto options = problem(examples(4));
    options.compute_metrics = score;
    options.eval_dataset = part;
    etude::Trainer<DistributedDataParallel> trainer(options);
    const auto metrics = trainer.evaluate();
    const auto predictions = trainer.predict(part).predictions[0];
    options.compute_metrics = etude::metrics::streaming(etude::metrics::Accuracy());
    options.args.batch_eval_metrics = true;
    etude::Trainer<etude::ShardedDataParallel<3>> by_batch(options);
    const auto accuracy = by_batch.evaluate().at("eval_accuracy");

    const torch::NoGradGuard no_grad;
    const auto [inputs, labels] = rows(0, first + second);
    const auto outputs = net()->forward(inputs);
    const auto expected = score({{outputs}, {labels}, {}, {}, {}});
    CHECK(metrics.at("eval_rows") == first + second);
    CHECK(
        metrics.at("eval_loss") ==
        doctest::Approx(torch::nn::functional::cross_entropy(outputs, labels).item<double>()).epsilon(1e-5));
    CHECK(metrics.at("eval_score") == doctest::Approx(expected.at("score")).epsilon(1e-5));
    CHECK((predictions - outputs).abs().max().item<double>() <= 1e-6);
    CHECK(accuracy ==
          doctest::Approx((outputs.argmax(1) == labels).to(torch::kDouble).mean().item<double>()));
  }
}

TEST_CASE("predictions of divided data are in one CSV file, one part after the other") {
  if (!toy::is_rank()) {
    const toy::Folder folder;
    toy::launches(2, {"ETUDE_TEST_FOLDER=" + std::string(folder)});
    return;
  }
  auto options = problem(examples(4));
  options.args.output_dir = std::getenv("ETUDE_TEST_FOLDER");
  options.eval_dataset = already_divided(toy::rank() == 0 ? examples(5) : examples(2, 5));
  etude::Trainer<DistributedDataParallel, etude::PredictionsToCSVCallback> trainer(options);
  trainer.evaluate();
  trainer.context().trainer.communicator().barrier();
  const auto text = toy::read_text(options.args.output_dir + "/eval_predictions.csv");
  std::string targets;
  for (std::size_t end = text.find('\n', text.find('\n') + 1); end != text.npos;
       end = text.find('\n', end + 1))
    targets += text[end - 1];
  CHECK(targets == "0120120");  // the labels of examples 0 to 6
}

/// Resumes a training on rows [0, 3) and [3, 12) after four steps, when the first part has ended.
template <class MakePart>
void check_resumed(MakePart part_of) {
  if (!toy::is_rank()) {
    const toy::Folder folder;
    toy::launches(2, {"ETUDE_TEST_FOLDER=" + std::string(folder)});
    return;
  }
  const std::string folder = std::getenv("ETUDE_TEST_FOLDER");
  const auto options = [&](std::int64_t steps) {
    auto result = problem(already_divided(toy::rank() == 0 ? part_of(0, 3) : part_of(3, 9)));
    result.args.max_steps = steps;
    toy::save_to(folder, result.args, 4);
    return result;
  };
  etude::Trainer<DistributedDataParallel> first(options(4));
  first.train();
  etude::Trainer<DistributedDataParallel> resumed(options(10));
  resumed.train({.resume_from_checkpoint = folder + "/checkpoint-4"});
  check_weights(resumed, trained_by_hand({{0, 3}, {3, 9}}, 1));
}

TEST_CASE(
    "a training on divided data is resumed where one part has ended already, and from its epoch's start by "
    "others") {
  check_resumed([](std::int64_t first, std::int64_t count) { return examples(count, first); });
}

/// A stream that is resumed from its saved place.
struct RowsWithState : Rows {
  nlohmann::ordered_json state() const { return place; }
  void load_state(const nlohmann::ordered_json& saved) { place = saved.get<std::int64_t>(); }
};

TEST_CASE("a divided stream is resumed at each process's place, not at that of rank 0") {
  check_resumed(
      [](std::int64_t first, std::int64_t count) { return RowsWithState{{.first = first, .count = count}}; });
}

}  // namespace loop_same_data_test
