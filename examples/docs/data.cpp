/// The parts that docs/data.md, docs/metrics.md and docs/checkpoints.md show.

#include <fstream>
#include <sstream>

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

void collators() {
  // [padding]
  const etude::PaddingCollator collator{.attention_mask = "attention_mask"};
  const auto batch = collator(
      {{{{torch::ones(3)}, {"input_ids"}}, {torch::tensor(0)}},
       {{{torch::ones(5)}, {"input_ids"}}, {torch::tensor(1)}}});
  // batch.inputs["input_ids"] is [2, 5], and batch.inputs["attention_mask"] 1
  // where it isn't padded
  // [/padding]
  check(
      batch.inputs["input_ids"].size(1) == 5,
      "texts are padded to the longest");
  check(
      batch.inputs["attention_mask"].sum().item<std::int64_t>() == 8,
      "the mask leaves padding out");
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
}

int main() { return run(datasets, several_evaluations, collators, metrics); }
