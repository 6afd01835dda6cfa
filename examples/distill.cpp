/// A student network learns from a frozen teacher, and from a slow copy of itself that sees another view of
/// the same image. `loops/distill.cpp` is the loop that it replaces, with the same losses.

#include <etude/etude.hpp>

#include "data/distill.hpp"

// [loss]
etude::LossOutput loss(torch::nn::Sequential student, torch::nn::Sequential slow,
                       torch::nn::Sequential teacher, const etude::Batch& batch) {
  if (!student->is_training()) {  // evaluations use no random views
    const auto output = student->forward(batch.inputs[0]), of_slow = slow->forward(batch.inputs[0]);
    return {.loss = torch::cross_entropy_loss(output, batch.labels), .outputs = {output, of_slow}};
  }
  const auto one = view(batch.inputs), two = view(batch.inputs), output = student->forward(one);
  const auto from_teacher = distance(output, teacher->forward(one)),
             from_slow = distance(output, slow->forward(two));
  return {.loss = from_teacher + consistency * from_slow,
          .logs = {{"teacher", from_teacher}, {"slow", from_slow}}};
}
// [/loss]

etude::Metrics accuracies(const etude::EvalPrediction& p) {
  const auto hits = [&](std::size_t i) {
    return p.predictions[i].argmax(1).eq(p.label_ids).to(torch::kFloat);
  };
  return {{"accuracy", hits(0).mean().item<double>()}, {"slow_accuracy", hits(1).mean().item<double>()}};
}

int main(int argc, char** argv) {
  auto args = etude::plain_loop();
  args.output_dir = "distill_output";
  args.per_device_train_batch_size = batch_size;
  args.num_train_epochs = epochs;
  args.optim = etude::OptimizerNames::sgd;
  args.optim_args = "momentum=0.9, fused=false";
  args.learning_rate = learning_rate;
  args.eval_strategy = args.logging_strategy = etude::IntervalStrategy::epoch;
  args.save_strategy = etude::SaveStrategy::epoch;
  args.log_lines = {"epoch {epoch:.0f} teacher {teacher:.9f} slow {slow:.9f}",
                    "epoch {epoch:.0f} accuracy {eval_accuracy:.4f} slow_accuracy {eval_slow_accuracy:.4f}"};
  return etude::run(argc, argv, args, [](const etude::TrainingArguments& given) {
    const auto train = images(train_images, 2), test = images(test_images, 3);
    // [trainer]
    etude::Trainer<> trainer({.model_init = [teacher = trained_teacher()]() -> etude::Modules {
                                return {
                                    {"student", convolutions(8)},
                                    {"slow", etude::target_of("student", convolutions(8), {.decay = decay})},
                                    {"teacher", etude::frozen(teacher)}};
                              },
                              .args = given,
                              .compute_loss = loss,
                              .train_dataset = train.images,
                              .eval_dataset = {test.images, test.labels},
                              .compute_metrics = accuracies});
    // [/trainer]
    trainer.train({.resume_from_checkpoint = etude::if_any});
  });
}
