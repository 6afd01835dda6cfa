/// A custom event: each training batch is verified before it is used. The trainer that raises it overrides
/// its training step and calls the base's; `Raises` lets the compiler check its handlers.

#include "data/digits.hpp"

// [event]
struct VerifyTrainBatch {
  const torch::Tensor& xb;
  const torch::Tensor& yb;
};
// [/event]

// [callback]
struct VerifyBatch {
  std::int64_t verified = 0;
  void on(const VerifyTrainBatch& e) {
    TORCH_CHECK(e.xb.size(0) == e.yb.size(0), "a batch of ", e.xb.size(0), " images has ", e.yb.size(0),
                " labels");
    TORCH_CHECK(e.xb.isfinite().all().item<bool>(), "a batch has pixels that aren't finite");
    ++verified;
  }
  void on(const etude::TrainEnd&) { etude::print("{} batches verified\n", verified); }
};
// [/callback]

// [trainer]
struct VerifyingTrainer : etude::TrainerBase<VerifyingTrainer, VerifyBatch, etude::Raises<VerifyTrainBatch>> {
  using TrainerBase::TrainerBase;

  torch::Tensor training_step(etude::Batch& batch) {
    call_event(VerifyTrainBatch{batch.inputs, batch.labels});
    return TrainerBase::training_step(batch);
  }
};
// [/trainer]

void train(const etude::TrainingArguments& args) {
  const auto [train, test] = digits::split(digits::read(), args.seed);
  VerifyingTrainer trainer({.model = digits::Net(),
                            .args = args,
                            .loss = torch::nn::CrossEntropyLoss(),
                            .train_dataset = digits::dataset(train),
                            .eval_dataset = digits::dataset(test)});
  trainer.train();
}

int main(int argc, char** argv) { return etude::run(argc, argv, digits::arguments(), train); }
