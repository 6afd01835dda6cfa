/// Transfer learning: a network that Python has trained and scripted becomes the backbone of one that reads
/// digits. Its weights are frozen at first, while the new head learns; then all layers are trained, each with
/// a lower learning rate than the one after it.
///
///   transfer --backbone backbone.pt
///
/// examples/loops/transfer.cpp does the same in a handwritten loop.

#include <torch/script.h>

#include "data/digits.hpp"

struct TransferArguments {
  ETUDE_STRUCT(TransferArguments,
               (std::string, backbone,
                "a module of torch.jit that takes pixels [N, 64] and gives features [N, 32]", "backbone.pt"));
};

// [backbone]
struct NetImpl : torch::nn::Module {
  explicit NetImpl(const std::string& path)
      : backbone(register_module("backbone", etude::ScriptModule(torch::jit::load(path)))) {}
  torch::Tensor forward(torch::Tensor pixels) { return head(backbone(pixels.flatten(1))); }

  etude::ScriptModule backbone;
  torch::nn::Linear head = register_module("head", torch::nn::Linear(32, 10));
};
// [/backbone]
TORCH_MODULE(Net);

void train(const etude::TrainingArguments& args, const TransferArguments& options) {
  const auto [train, test] = digits::split(digits::read(), args.seed);
  torch::manual_seed(1);
  Net net(options.backbone);

  etude::TrainerOptions training{.model = net,
                                 .args = args,
                                 .loss = torch::nn::CrossEntropyLoss(),
                                 .train_dataset = digits::dataset(train),
                                 .parameter_groups = {{"backbone", {.frozen = true}}}};
  using Trainer = etude::Trainer<etude::ParameterGroupsCallback>;
  Trainer(training).train();

  training.args.layerwise_learning_rate_decay = 0.5;
  training.parameter_groups = {{"backbone", {.frozen = false}}};
  Trainer all(training);
  all.train();
  all.save_model(args.output_dir);

  net->eval();
  const auto right = net(test.first).argmax(1) == test.second;
  fmt::print("accuracy {:.4f}\n", right.to(torch::kDouble).mean().item<double>());
}

int main(int argc, char** argv) {
  const etude::TrainingArguments defaults{.output_dir = "transferred",
                                          .per_device_train_batch_size = 32,
                                          .num_train_epochs = 4,
                                          .learning_rate = 4e-3,
                                          .lr_scheduler_type = etude::SchedulerType::constant,
                                          .save_strategy = etude::SaveStrategy::no,
                                          .logging_strategy = etude::IntervalStrategy::epoch,
                                          .log_lines = {"epoch {epoch} loss {loss:.6f}"},
                                          .train_sampling_strategy = etude::SamplingStrategy::sequential};
  return etude::run(argc, argv, defaults, TransferArguments{}, train);
}
