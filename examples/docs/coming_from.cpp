/// The parts that the pages docs/coming-from-*.md show, each next to the same
/// code in Python.

#include "common.hpp"

namespace hugging_face {

// [hugging_face_callback]
struct StopAtLoss {
  double loss = 0;
  void on(const etude::Log& e) {
    if (e.logs.contains("loss") && e.logs.at("loss") < loss)
      e.control.should_training_stop = true;
  }
};
// [/hugging_face_callback]

void train(Net model, etude::Dataset train_set, etude::Dataset eval_set) {
  // [hugging_face]
  etude::TrainingArguments args{
      .output_dir = "out",
      .per_device_train_batch_size = 32,
      .num_train_epochs = 3,
      .learning_rate = 5e-5,
      .eval_strategy = etude::IntervalStrategy::epoch,
      .save_strategy = etude::SaveStrategy::epoch,
      .load_best_model_at_end = true,
  };
  etude::Trainer trainer(
      {.model = model,
       .args = args,
       .loss = torch::nn::CrossEntropyLoss(),
       .train_dataset = train_set,
       .eval_dataset = eval_set,
       .compute_metrics = etude::metrics::accuracy},
      etude::EarlyStoppingCallback{.early_stopping_patience = 2},
      StopAtLoss{.loss = 0.1});
  trainer.train({.resume_from_checkpoint = etude::if_any});
  fmt::print("{}\n", trainer.evaluate().at("eval_accuracy"));
  // [/hugging_face]
  check(trainer.state().global_step > 0, "a training after Hugging Face's");
}

// [hugging_face_loss]
struct WeightedTrainer : etude::TrainerBase<WeightedTrainer> {
  using TrainerBase::TrainerBase;
  etude::LossOutput compute_loss(
      const etude::Batch& batch, std::optional<double>) {
    const auto logits = model().as<Net>().forward(batch.inputs[0]);
    const auto weight = torch::tensor({1.0F, 2.0F});
    return {
        .loss = torch::cross_entropy_loss(logits, batch.labels[0], weight),
        .outputs = logits};
  }
};
// [/hugging_face_loss]

}  // namespace hugging_face

namespace pytorch_accelerated {

// [pytorch_accelerated_event]
struct VerifyTrainBatch {
  const torch::Tensor& xb;
};
struct PrintShape {
  void on(const VerifyTrainBatch& e) {
    etude::print("{} examples\n", e.xb.size(0));
  }
};
struct VerifyingTrainer : etude::TrainerBase<VerifyingTrainer, PrintShape> {
  using TrainerBase::TrainerBase;
  torch::Tensor training_step(etude::Batch& batch) {
    call_event(VerifyTrainBatch{batch.inputs[0]});
    return TrainerBase::training_step(batch);
  }
};
// [/pytorch_accelerated_event]

void train(Net model, etude::Dataset train_set, etude::Dataset eval_set) {
  // [pytorch_accelerated]
  etude::TrainingArguments args{
      .output_dir = "out",
      .per_device_train_batch_size = 32,
      .num_train_epochs = 8,
      .max_grad_norm = 0,
      .lr_scheduler_type = etude::SchedulerType::constant,
      .eval_strategy = etude::IntervalStrategy::epoch,
      .save_strategy = etude::SaveStrategy::no,
      .logging_strategy = etude::IntervalStrategy::epoch,
  };
  etude::Trainer trainer(
      {.model = model,
       .args = args,
       .loss = torch::nn::CrossEntropyLoss(),
       .train_dataset = train_set,
       .eval_dataset = eval_set,
       .optimizer =
           std::make_shared<torch::optim::Adam>(model->parameters(), 1e-3)},
      etude::TerminateOnNaNCallback{},
      etude::SaveBestModelCallback{.save_path = "best"});
  trainer.train();
  // [/pytorch_accelerated]
  check(std::filesystem::exists("best"), "the best model is saved");
}

}  // namespace pytorch_accelerated

namespace lightning {

// [lightning_module]
struct ClassifierImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) { return net->forward(x); }

  torch::nn::Sequential net = register_module(
      "net", torch::nn::Sequential(
                 torch::nn::Linear(2, 32), torch::nn::ReLU(),
                 torch::nn::Linear(32, 2)));
};
TORCH_MODULE(Classifier);
// [/lightning_module]

void train(etude::Dataset train_set, etude::Dataset eval_set) {
  // [lightning]
  etude::TrainingArguments args{
      .per_device_train_batch_size = 32,
      .num_train_epochs = 10,
      .optim = etude::OptimizerNames::adam,
      .learning_rate = 1e-3,
      .max_grad_norm = 0.5,
      .lr_scheduler_type = etude::SchedulerType::constant,
      .eval_strategy = etude::IntervalStrategy::epoch,
      .save_strategy = etude::SaveStrategy::best,
      .logging_steps = 50,
  };
  etude::Trainer<etude::LearningRateMonitor> trainer({
      .model = Classifier(),
      .args = args,
      .loss = torch::nn::CrossEntropyLoss(),
      .train_dataset = train_set,
      .eval_dataset = eval_set,
      .compute_metrics = etude::metrics::accuracy,
  });
  trainer.train();
  trainer.evaluate();
  // [/lightning]
  check(
      trainer.state().best_metric.has_value(), "the best checkpoint is known");
}

}  // namespace lightning

namespace keras {

void train(
    const torch::Tensor& x, const torch::Tensor& y, etude::Dataset eval_set) {
  // [keras]
  torch::nn::Sequential model(
      torch::nn::Linear(2, 32), torch::nn::ReLU(), torch::nn::Linear(32, 2));
  etude::TrainingArguments args{
      .per_device_train_batch_size = 32,
      .num_train_epochs = 5,
      .optim = etude::OptimizerNames::adam,
      .learning_rate = 1e-3,
      .adam_epsilon = 1e-7,
      .max_grad_norm = 0,
      .lr_scheduler_type = etude::SchedulerType::constant,
      .eval_strategy = etude::IntervalStrategy::epoch,
      .save_strategy = etude::SaveStrategy::no,
      .load_best_model_at_end = false,
      .logging_strategy = etude::IntervalStrategy::epoch,
  };
  etude::Trainer trainer(
      {.model = model,
       .args = args,
       .loss = torch::nn::CrossEntropyLoss(),
       .train_dataset = {x, y},
       .eval_dataset = eval_set,
       .compute_metrics = etude::metrics::accuracy},
      etude::CSVLoggerCallback{},
      etude::on<etude::TrainingRunEpochEnd>().call(
          [](const etude::TrainingRunEpochEnd& e) {
            etude::print("{}\n", e.state.epoch);
          }));
  trainer.train();
  auto predictions = trainer.predict(x).predictions;
  // [/keras]
  check(predictions[0].size(0) == x.size(0), "a prediction for each example");
}

}  // namespace keras

int main() {
  const auto train_set = points(320), eval_set = points(100);
  const auto x = torch::rand({320, 2}), y = x.sum(1).gt(1).to(torch::kLong);
  return run(
      [&] { hugging_face::train(Net(), train_set, eval_set); },
      [&] {
        hugging_face::WeightedTrainer trainer(
            {.model = Net(),
             .args = small_arguments(),
             .loss = {},
             .train_dataset = train_set});
        check(trainer.train().global_step == 40, "a loss with weights");
      },
      [&] { pytorch_accelerated::train(Net(), train_set, eval_set); },
      [&] {
        auto args = small_arguments();
        args.max_steps = 2;
        pytorch_accelerated::VerifyingTrainer trainer(
            {.model = Net(),
             .args = args,
             .loss = torch::nn::CrossEntropyLoss(),
             .train_dataset = train_set});
        check(trainer.train().global_step == 2, "a custom event");
      },
      [&] { lightning::train(train_set, eval_set); },
      [&] { keras::train(x, y, eval_set); });
}
