/// The parts that docs/data.md, docs/metrics.md and docs/checkpoints.md show.

#include <fstream>
#include <random>
#include <sstream>

#include <etude/formats/npy.hpp>
#include <etude/formats/safetensors.hpp>
#include <etude/formats/token_windows.hpp>

#include "common.hpp"

// [map]
struct Circle {
  std::int64_t size() const { return 4000; }
  std::pair<torch::Tensor, std::int64_t> get(std::int64_t i) {
    const auto point = torch::tensor(
        {std::cos(0.1 * static_cast<double>(i)), 0.5}, torch::kFloat);
    return {point, i % 2};
  }
};
// [/map]

// [noisy]
struct Noisy {
  std::int64_t size() const { return 4000; }
  std::pair<torch::Tensor, std::int64_t> get(
      std::int64_t i, torch::Generator& generator) {
    return {torch::randn({2}, generator), i % 2};
  }
};
// [/noisy]

// [stream]
struct Lines {
  std::string path;
  std::ifstream file{path};
  std::int64_t offset = 0;

  explicit Lines(std::string path_) : path(std::move(path_)) {}
  Lines(const Lines& other) : Lines(other.path) {}  // from the beginning

  std::optional<etude::Example> next() {
    std::string line;
    if (!std::getline(file, line)) return std::nullopt;
    offset += static_cast<std::int64_t>(line.size()) + 1;
    std::istringstream numbers(line);
    float x = 0, y = 0;
    std::int64_t label = 0;
    numbers >> x >> y >> label;
    return etude::Example{{torch::tensor({x, y})}, {torch::tensor(label)}};
  }
  void reset() { go_to(0); }

  nlohmann::ordered_json state() const { return {{"offset", offset}}; }
  void load_state(const nlohmann::ordered_json& state) {
    go_to(state.at("offset").get<std::int64_t>());
  }

  void go_to(std::int64_t place) {
    file = std::ifstream(path);
    file.seekg(offset = place);
  }
};
// [/stream]

void datasets() {
  auto args = small_arguments();
  args.dataloader_num_workers = 2;
  std::ofstream lines("lines.txt");
  for (int i = 0; i < 100; ++i)
    lines << 0.01 * i << ' ' << 0.5 << ' ' << i % 2 << '\n';
  lines.close();

  const auto steps_on = [&](etude::Dataset dataset) {
    return etude::Trainer<>({.model = Net(),
                             .args = args,
                             .loss = torch::nn::CrossEntropyLoss(),
                             .train_dataset = std::move(dataset)})
        .train()
        .global_step;
  };
  check(steps_on(Circle{}) == 40, "a dataset has size and get");
  check(steps_on(Noisy{}) == 40, "get may take a generator");
  check(steps_on(Lines("lines.txt")) == 40, "a stream has next");
}

void divided_data() {
  auto args = small_arguments();
  std::ofstream("lines-0.txt") << "0.5 0.5 0\n0.25 0.5 1\n";
  // [divided]
  const auto rank = etude::find_launch().rank;
  etude::Trainer<etude::DistributedDataParallel> trainer(
      {.model = Net(),
       .args = args,
       .loss = torch::nn::CrossEntropyLoss(),
       .train_dataset =
           etude::already_divided(Lines(fmt::format("lines-{}.txt", rank)))});
  // [/divided]
  check(trainer.train().global_step == 40, "a process trains on its part");
}

void several_evaluations() {
  auto args = small_arguments();
  // [eval_by_name]
  etude::Trainer<> trainer(
      {.model = Net(),
       .args = args,
       .loss = torch::nn::CrossEntropyLoss(),
       .train_dataset = points(4000),
       .eval_dataset = {{"near", points(500)}, {"far", points(200)}},
       .compute_metrics = etude::metrics::accuracy});
  etude::Metrics metrics = trainer.evaluate();
  fmt::print(
      "{:.3f} {:.3f}\n", metrics.at("eval_near_accuracy"),
      metrics.at("eval_far_accuracy"));
  // [/eval_by_name]
  check(metrics.at("eval_far_accuracy") <= 1, "each dataset has its metrics");
}

// [ragged]
/// The boxes of all images in one tensor [boxes, 5]: the number of the image,
/// and four coordinates.
etude::Batch boxes_in_one(const std::vector<etude::Example>& examples) {
  std::vector<torch::Tensor> images, boxes;
  for (const auto& example : examples) {
    const auto& own = example.labels[0];  // [boxes of the image, 4]
    const auto image = torch::full({own.size(0), 1}, std::ssize(images));
    boxes.push_back(torch::cat({image, own}, 1));
    images.push_back(example.inputs[0]);
  }
  return {
      .inputs = torch::stack(images),
      .labels = {torch::cat(boxes), etude::RowsByIndex{.column = 0}},
      .size = std::ssize(examples)};
}
// [/ragged]

// [windows]
/// Windows of a token file, for a model that shifts the labels itself.
struct Windows {
  using BatchType = etude::Batch;
  using BatchRequestType = etude::TokenWindows::BatchRequestType;
  etude::TokenWindows tokens;

  std::size_t size() const { return tokens.size(); }
  etude::Batch get_batch(BatchRequestType indices) const {
    const torch::Tensor ids = tokens.get_batch(indices).inputs;
    return {
        .inputs = {{ids, ids}, {"input_ids", "labels"}},
        .labels = {},
        .size = ids.size(0)};
  }
};
// [/windows]

void files_of_python() {
  std::ofstream("train.bin", std::ios::binary) << std::string(200, 'a');
  const Windows windows{{"train.bin", {.context = 8}}};
  const etude::Batch batch = windows.get_batch({0, 1});
  check(
      batch.inputs["labels"].equal(batch.inputs["input_ids"]) &&
          batch.inputs["labels"].size(1) == 8,
      "the model gets its labels");
  etude::save_npy("pixels.npy", torch::rand({6, 3, 4, 4}));
  etude::save_npy("labels.npy", torch::zeros({6}, torch::kLong));
  // [arrays]
  const etude::Tensors pictures(
      {etude::load_npy("pixels.npy"), etude::load_npy("labels.npy")},
      {"pixel_values", "labels"});
  // [/arrays]
  check(etude::Dataset(pictures).size() == 6, "arrays are a dataset");
}

void collators() {
  const auto image = torch::rand({3, 8, 8});
  const auto boxes = boxes_in_one(
      {{image, torch::rand({2, 4})},
       {image, torch::rand({0, 4})},
       {image, torch::rand({3, 4})}});
  check(
      boxes.slice(1, 3).labels[0].size(0) == 3,
      "a part of the batch has the boxes of its images");
  // [padding]
  const etude::PaddingCollator collator{.attention_mask = "attention_mask"};
  const auto batch = collator(
      {{{{torch::ones(3)}, {"input_ids"}}, {torch::tensor(0)}},
       {{{torch::ones(5)}, {"input_ids"}}, {torch::tensor(1)}}});
  // batch.inputs["input_ids"] is [2, 5], and batch.inputs["attention_mask"] is
  // 1 where it isn't padded
  // [/padding]
  check(
      batch.inputs["input_ids"].size(1) == 5,
      "texts are padded to the longest");
  check(
      batch.inputs["attention_mask"].sum().item<std::int64_t>() == 8,
      "the mask leaves padding out");
}

// [own_streaming]
struct MeanScore : etude::metrics::Accumulator {
  void update(const torch::Tensor& predictions, const torch::Tensor&) {
    sum("scores", predictions.to(torch::kDouble).sum());
    sum("count", torch::tensor(predictions.numel()));
  }
  etude::Metrics compute() const {
    const auto mean = value("scores") / value("count");
    return {{"mean_score", mean.item<double>()}};
  }
  void merge(const MeanScore& other) { merge_state(other); }
};
// [/own_streaming]

// [tensors]
struct KeepReplay {
  torch::Tensor replay = torch::zeros({100, 2});

  void on(etude::SaveBegin& e) {
    e.tensors["replay.safetensors"] = {{"states", replay}};
  }
  void on(const etude::CheckpointLoaded& e) {
    const auto file = e.checkpoint / "replay.safetensors";
    for (const auto& [name, tensor] : etude::load_safetensors(file).tensors)
      if (name == "states") replay = tensor;
  }
};
// [/tensors]

void tensors_in_checkpoints() {
  auto args = small_arguments();
  args.save_strategy = etude::SaveStrategy::steps;
  args.save_steps = 20;
  const auto trainer_with = [&](torch::Tensor replay) {
    return std::make_unique<etude::Trainer<KeepReplay>>(
        etude::TrainerOptions{
            .model = Net(),
            .args = args,
            .loss = torch::nn::CrossEntropyLoss(),
            .train_dataset = points(400)},
        KeepReplay{replay});
  };
  trainer_with(torch::ones({100, 2}))->train();
  const auto resumed = trainer_with(torch::zeros({100, 2}));
  resumed->train({.resume_from_checkpoint = "docs_output/checkpoint-20"});
  check(
      resumed->callback<KeepReplay>().replay.sum().item<double>() == 200,
      "a callback's tensors are in the checkpoint");
}

// [program_state]
struct Replay {
  ETUDE_STRUCT(
      Replay,
      (torch::Tensor, states, "of the last 100", torch::zeros({100, 2})),
      (std::int64_t, added, "so far"));
};

etude::TrainerOptions with_state(
    etude::TrainerOptions options, Replay& replay, std::mt19937& engine,
    std::int64_t& tick) {
  options.program_state = {
      {"replay", replay}, {"engine", engine}, {"tick", tick}};
  return options;
}
// [/program_state]

void variables_in_checkpoints() {
  auto args = small_arguments();
  args.save_strategy = etude::SaveStrategy::steps;
  args.save_steps = 20;
  const auto train = [&](Replay& replay, std::int64_t& tick,
                         const etude::TrainOptions& how) {
    std::mt19937 engine;
    etude::Trainer<>(with_state(
                         {.model = Net(),
                          .args = args,
                          .loss = torch::nn::CrossEntropyLoss(),
                          .train_dataset = points(400)},
                         replay, engine, tick))
        .train(how);
  };
  Replay replay{.states = torch::ones({100, 2})}, resumed;
  std::int64_t tick = 7, resumed_tick = 0;
  train(replay, tick, {});
  train(
      resumed, resumed_tick,
      {.resume_from_checkpoint = "docs_output/checkpoint-20"});
  check(
      resumed_tick == 7 && resumed.states.sum().item<double>() == 200,
      "a program's variables are in the checkpoint");
}

template <class ComputeMetrics>
etude::Metrics evaluated_by(ComputeMetrics compute_metrics) {
  return etude::Trainer<>({.model = Net(),
                           .args = small_arguments(),
                           .loss = torch::nn::CrossEntropyLoss(),
                           .eval_dataset = points(500),
                           .compute_metrics = compute_metrics})
      .evaluate();
}

void metrics() {
  etude::TrainerOptions options;
  // [metric]
  options.compute_metrics = etude::metrics::accuracy;
  // [/metric]
  // [streaming]
  options.compute_metrics = etude::metrics::streaming(
      etude::metrics::Accuracy(), etude::metrics::Accuracy({.top_k = 2}),
      etude::metrics::F1({.average = etude::metrics::Average::macro}));
  // [/streaming]
  // [own_metric]
  const auto share_of_ones =
      [](const etude::EvalPrediction& p) -> etude::Metrics {
    return {
        {"share_of_ones",
         p.predictions[0].argmax(1).to(torch::kDouble).mean().item<double>()}};
  };
  // [/own_metric]
  check(
      evaluated_by(share_of_ones).at("eval_share_of_ones") <= 1,
      "a metric may be your own function");
  const auto streamed = evaluated_by(options.compute_metrics);
  check(
      streamed.at("eval_top_2_accuracy") == 1,
      "one of two classes is always among the best two");
  check(streamed.contains("eval_f1"), "metrics that stream are combined");
  check(
      evaluated_by(etude::metrics::streaming(MeanScore()))
          .contains("eval_mean_score"),
      "a streaming metric may be your own");
}

int main() {
  return run(
      datasets, divided_data, several_evaluations, files_of_python, collators,
      metrics, tensors_in_checkpoints, variables_in_checkpoints);
}
