// The handwritten loop that examples/detect.cpp replaces.

#include "../data/detect.hpp"

#include <cstdio>

struct Images : torch::data::datasets::Dataset<Images, Sample> {
  Images(std::int64_t first, std::int64_t last) : begin(first), end(last) {}
  Sample get(size_t i) override { return draw(begin + static_cast<std::int64_t>(i)); }
  c10::optional<size_t> size() const override { return static_cast<size_t>(end - begin); }
  std::int64_t begin, end;
};

struct Batch {
  torch::Tensor images, rows;
};

Batch collate(const std::vector<Sample>& samples) {
  std::vector<torch::Tensor> images, rows;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    images.push_back(samples[i].image);
    const auto& boxes = samples[i].boxes;
    rows.push_back(torch::cat({torch::full({boxes.size(0), 1}, static_cast<float>(i)), boxes}, 1));
  }
  return {torch::stack(images), torch::cat(rows)};
}

int main() {
  torch::manual_seed(42);
  Detector model;
  torch::optim::AdamW optimizer(model->parameters(),
                                torch::optim::AdamWOptions(learning_rate).weight_decay(0));
  auto train = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
      Images(0, train_images), batch_size);
  auto test = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
      Images(train_images, train_images + test_images), batch_size);
  const auto steps = epochs * (train_images / batch_size);
  double best = 0;
  for (std::int64_t epoch = 1, step = 0; epoch <= epochs; ++epoch) {
    model->train();
    double box = 0, object = 0, kind = 0, all = 0;
    std::int64_t batches = 0;
    for (const auto& samples : *train) {
      const auto batch = collate(samples);
      for (auto& group : optimizer.param_groups())
        group.options().set_lr(learning_rate * 0.5 *
                               (1 + std::cos(M_PI * static_cast<double>(step) / static_cast<double>(steps))));
      optimizer.zero_grad();
      const auto losses = detection_loss(model(batch.images), batch.rows);
      const auto loss = total(losses);
      loss.backward();
      torch::nn::utils::clip_grad_norm_(model->parameters(), 10);
      optimizer.step();
      ++step;
      box += losses.box.item<double>(), object += losses.object.item<double>(),
          kind += losses.kind.item<double>();
      all += loss.item<double>(), ++batches;
    }
    const auto mean = [&](double sum) { return sum / static_cast<double>(batches); };
    std::printf("epoch %ld loss %.9f box %.9f object %.9f kind %.9f\n", static_cast<long>(epoch), mean(all),
                mean(box), mean(object), mean(kind));

    model->eval();
    const torch::NoGradGuard no_grad;
    double found = 0, boxes = 0, eval_loss = 0;
    for (const auto& samples : *test) {
      const auto batch = collate(samples);
      const auto output = model(batch.images);
      eval_loss +=
          total(detection_loss(output, batch.rows)).item<double>() * static_cast<double>(samples.size());
      for (std::size_t i = 0; i < samples.size(); ++i) {
        const auto [f, b] = recall(output[static_cast<std::int64_t>(i)], samples[i].boxes);
        found += f, boxes += b;
      }
    }
    std::printf("epoch %ld eval_loss %.6f recall %.4f\n", static_cast<long>(epoch),
                eval_loss / static_cast<double>(test_images), found / boxes);
    if (found / boxes > best) {
      best = found / boxes;
      torch::save(model, "detector.pt");
    }
  }
  torch::load(model, "detector.pt");
}
