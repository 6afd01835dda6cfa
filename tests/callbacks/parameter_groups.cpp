#include "etude/callbacks/parameter_groups.hpp"

#include <doctest/doctest.h>

#include <string>

#include "common/toy.hpp"

namespace callbacks_parameter_groups_test {

struct NetImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) { return head(torch::tanh(body(x))); }
  torch::nn::Linear body = register_module("body", torch::nn::Linear(1, 1000));
  torch::nn::Linear head = register_module("head", torch::nn::Linear(1000, 1));
};
TORCH_MODULE(Net);

TEST_CASE("the groups are printed when training begins, by their numbers, but for those that are empty") {
  std::string printed;
  etude::ParameterGroupsCallback callback;
  callback.print = [&](std::string_view text) { printed += text; };
  auto options = toy::options(toy::arguments());
  options.model = Net();
  options.args.learning_rate = 2e-5;
  options.args.warmup_steps = 1;
  options.args.lr_scheduler_type = etude::SchedulerType::linear;
  options.args.weight_decay = 0.1;
  options.parameter_groups = {{"head", {.lr = 0.001, .weight_decay = 0}},
                              {"body.bias", {.weight_decay = 0.2}},
                              {"body.weight", {.frozen = true}},
                              {"head.bias", {.frozen = true}}};
  etude::Trainer<etude::ParameterGroupsCallback>(options, callback).train();
  CHECK(printed ==
        "Group  Parameters              Tensors  Elements  Learning rate  Weight decay  Frozen\n"
        "---------------------------------------------------------------------------------------\n"
        "0      body.weight                   1     1,000          2e-05           0.1     yes\n"
        "2      head.weight, head.bias        2     1,001          0.001             0       1\n"
        "3      body.bias                     1     1,000          2e-05           0.2      no\n"
        "---------------------------------------------------------------------------------------\n");
}

}  // namespace callbacks_parameter_groups_test
