/// A callback that announces the start of training. Any struct can be a callback; it handles the events for
/// which it has an `on`.

#include "data/digits.hpp"

struct AnnounceCallback {
  void on(const etude::TrainBegin&) { etude::print("Starting training\n"); }
};

void train(const etude::TrainingArguments& args) {
  const auto [train, test] = digits::split(digits::read(), args.seed);
  etude::Trainer<AnnounceCallback> trainer({.model = digits::Net(),
                                            .args = args,
                                            .loss = torch::nn::CrossEntropyLoss(),
                                            .train_dataset = digits::dataset(train),
                                            .eval_dataset = digits::dataset(test)});
  trainer.train();
}

int main(int argc, char** argv) { return etude::run(argc, argv, digits::arguments(), train); }
