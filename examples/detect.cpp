/// A detector of 0 to 5 boxes in an image: batches with unequal numbers of boxes per image, a loss of three
/// parts, and the best model by recall. `loops/detect.cpp` is the loop that it replaces, with the same
/// losses.

#include <etude/etude.hpp>

#include "data/detect.hpp"

struct Images {
  std::int64_t begin, end;
  std::int64_t size() const { return end - begin; }
  etude::Example get(std::int64_t i) const {
    const auto sample = draw(begin + i);
    return {.inputs = sample.image, .labels = sample.boxes};
  }
};

/// Boxes of all images in one tensor [total, 6], whose first column is the image.
etude::Batch collate(const std::vector<etude::Example>& examples) {
  std::vector<torch::Tensor> images, rows;
  for (const auto& example : examples) {
    const auto& boxes = example.labels[0];
    rows.push_back(
        torch::cat({torch::full({boxes.size(0), 1}, static_cast<float>(images.size())), boxes}, 1));
    images.push_back(example.inputs[0]);
  }
  return {.inputs = torch::stack(images),
          .labels = {torch::cat(rows), etude::RowsByIndex{}},
          .size = static_cast<std::int64_t>(examples.size())};
}

etude::LossOutput loss(Detector& model, const etude::Batch& batch) {
  const auto output = model(batch.inputs);
  const auto losses = detection_loss(output, batch.labels);
  return {.loss = total(losses),
          .outputs = output,
          .logs = {{"box", losses.box}, {"object", losses.object}, {"kind", losses.kind}}};
}

/// The number of found boxes and of all boxes in each image.
etude::Tensors count(const etude::Tensors& outputs, const etude::Tensors& labels) {
  std::vector<double> found, boxes;
  for (std::int64_t i = 0; i < outputs[0].size(0); ++i) {
    const auto of_image = labels[0].index({labels[0].select(1, 0).eq(i)}).slice(1, 1);
    const auto [f, b] = recall(outputs[0][i], of_image);
    found.push_back(f), boxes.push_back(b);
  }
  return {torch::tensor(found), torch::tensor(boxes)};
}

int main(int argc, char** argv) {
  auto args = etude::plain_loop();
  args.output_dir = "detect_output";
  args.per_device_train_batch_size = args.per_device_eval_batch_size = batch_size;
  args.num_train_epochs = epochs;
  args.learning_rate = learning_rate;
  args.max_grad_norm = 10;
  args.lr_scheduler_type = etude::SchedulerType::cosine;
  args.eval_strategy = args.logging_strategy = etude::IntervalStrategy::epoch;
  args.save_strategy = etude::SaveStrategy::best;
  args.load_best_model_at_end = true;
  args.metric_for_best_model = "recall";
  args.log_lines = {"epoch {epoch:.0f} loss {loss:.9f} box {box:.9f} object {object:.9f} kind {kind:.9f}",
                    "epoch {epoch:.0f} eval_loss {eval_loss:.6f} recall {eval_recall:.4f}"};
  return etude::run(argc, argv, args, [](const etude::TrainingArguments& given) {
    etude::Trainer<> trainer(
        {.model_init = [] { return Detector(); },
         .args = given,
         .compute_loss = loss,
         .data_collator = collate,
         .train_dataset = Images{0, train_images},
         .eval_dataset = Images{train_images, train_images + test_images},
         .compute_metrics = [](const etude::EvalPrediction& p) -> etude::Metrics {
           return {{"recall", p.predictions[0].sum().item<double>() / p.predictions[1].sum().item<double>()}};
         },
         .preprocess_logits_for_metrics = count});
    trainer.train({.resume_from_checkpoint = etude::if_any});
  });
}
