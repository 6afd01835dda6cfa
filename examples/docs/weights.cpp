/// The parts that docs/fine-tuning.md, docs/checkpoints.md,
/// docs/exported-models.md and docs/several-processes.md show.

#include <etude/checkpoint/load_weights.hpp>
#include <etude/model/load_exported.hpp>

#include "common.hpp"

struct ClassifierImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) {
    return head(torch::relu(backbone->forward(x)));
  }
  torch::nn::Sequential backbone = register_module(
      "backbone", torch::nn::Sequential(
                      torch::nn::Linear(2, 16), torch::nn::ReLU(),
                      torch::nn::Linear(16, 16)));
  torch::nn::Linear head = register_module("head", torch::nn::Linear(16, 2));
};
TORCH_MODULE(Classifier);

void load() {
  Classifier trained, net;
  etude::save_model_files("trained", etude::state_dict(*trained->backbone));
  // [load]
  const auto report =
      etude::load_weights(*net, "trained", {.rename = {{"", "backbone."}}});
  fmt::print("{}", report.text());
  // [/load]
  check(report.missing_keys.size() == 2, "the head isn't in the file");
  check(
      torch::equal(net->parameters()[0], trained->parameters()[0]),
      "the backbone is");
}

void groups() {
  auto args = small_arguments();
  Classifier net;
  // [groups]
  etude::Trainer<etude::ParameterGroupsCallback> trainer(
      {.model = net,
       .args = args,
       .loss = torch::nn::CrossEntropyLoss(),
       .train_dataset = points(400),
       .parameter_groups = {
           {"backbone", {.lr = 1e-5}},
           {"backbone.0", {.frozen = true}},
           {"*.bias", {.weight_decay = 0}}}});
  // [/groups]
  trainer.train();
  check(!net->parameters()[0].requires_grad(), "the first layer is frozen");
}

void unfreeze() {
  auto args = small_arguments();
  args.max_steps = -1;
  args.num_train_epochs = 2;
  // [unfreeze]
  const auto one_in_each_epoch = etude::GradualUnfreezingCallback{
      .layer_groups = {"backbone.0", "backbone.2", "head"}};
  const auto all_at_once = etude::GradualUnfreezingCallback{
      .layer_groups = {"backbone", "head"}, .unfreeze_at = {"2ep"}};
  const auto in_steps = etude::GradualUnfreezingCallback{
      .layer_groups = {"backbone", "head"}, .unfreeze_every = 500};
  // [/unfreeze]
  for (const auto& callback : {one_in_each_epoch, all_at_once, in_steps}) {
    etude::Trainer trainer(
        {.model = Classifier(),
         .args = args,
         .loss = torch::nn::CrossEntropyLoss(),
         .train_dataset = points(80)},
        callback);
    check(trainer.train().global_step == 20, "a training with frozen layers");
  }
}

// [units]
struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(std::int64_t width)
      : linear(register_module("linear", torch::nn::Linear(width, width))) {}
  torch::Tensor forward(torch::Tensor x) { return x + torch::relu(linear(x)); }
  torch::nn::Linear linear;
};
TORCH_MODULE(Block);

struct DeepNetImpl : torch::nn::Module {
  DeepNetImpl() {
    for (int i = 0; i < 12; ++i) blocks->push_back(Block(2));
  }
  torch::Tensor forward(torch::Tensor x) {
    for (const auto& block : *blocks) x = block(x);
    return x;
  }
  etude::Units<Block> blocks{register_module("blocks", etude::Units<Block>())};
};
TORCH_MODULE(DeepNet);
// [/units]

void units() {
  auto args = small_arguments();
  args.gradient_checkpointing = true;
  etude::Trainer<> trainer(
      {.model = DeepNet(),
       .args = args,
       .loss = torch::nn::CrossEntropyLoss(),
       .train_dataset = points(400)});
  check(trainer.train().global_step == 40, "units are computed again");
  check(etude::units(trainer.model()).size() == 12, "units are listed");
}

void reuse() {
  auto args = small_arguments();
  args.save_strategy = etude::SaveStrategy::steps;
  args.save_steps = 20;
  etude::Trainer<> trainer(
      {.model = Net(),
       .args = args,
       .loss = torch::nn::CrossEntropyLoss(),
       .train_dataset = points(400)});
  trainer.train();
  // [reuse]
  trainer.save_model("final");
  Net net;
  etude::load_weights(
      *net, "final", {.strict = true});  // or a checkpoint's folder
  // [/reuse]
  check(
      torch::equal(
          net->hidden->weight, trainer.model().as<Net>().hidden->weight),
      "weights are read");
}

void compiled() try {
  auto args = small_arguments();
  const auto examples = points(400);
  // [compiled]
  args.compiled_graph = etude::CompiledGraphMode::required;
  etude::Trainer<> trainer(
      {.model = etude::load_exported("model.pt2", {.run_compiled_code = true}),
       .args = args,
       .train_dataset = examples});
  // [/compiled]
  check(false, "there is no model.pt2");
} catch (const etude::CheckpointError& error) {
  check(
      std::string_view(error.what()).find("model.pt2") != std::string::npos,
      "the error names the file");
}

int main() { return run(load, groups, unfreeze, units, reuse, compiled); }
