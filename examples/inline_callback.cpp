#include <etude/etude.hpp>

struct CountSteps {
  std::int64_t steps = 0;
  void on(const etude::StepEnd&) { ++steps; }
};

int main(int argc, char** argv) {
  const auto x = torch::rand({800, 2});
  etude::Trainer trainer({.model = torch::nn::Linear(2, 1),
                          .args = etude::parse_arguments<etude::TrainingArguments>(argc, argv),
                          .loss = torch::nn::MSELoss(),
                          .train_dataset = {x, x.sum(1, true)}},
                         CountSteps{},
                         etude::on<etude::StepEnd>().every(100).call([](const etude::StepEnd& e) {
                           etude::print("{} steps so far\n", e.state.global_step);
                         }));
  trainer.train();
  fmt::print("{} steps in all\n", trainer.callback<CountSteps>().steps);
}
