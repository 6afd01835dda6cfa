#include <etude/etude.hpp>
#include <etude/integrations/report_to.hpp>

int main() {
  etude::Trainer<etude::RuntimeCallbacks> trainer(
      {.model = torch::nn::Linear(2, 2),
       .args = etude::TrainingArguments{.max_steps = 3, .report_to = {"tensorboard"}},
       .loss = torch::nn::CrossEntropyLoss(),
       .train_dataset = {torch::rand({8, 2}), torch::zeros({8}, torch::kLong)}});
  etude::add_trackers(trainer);
  trainer.train();
}
