#include "etude/callbacks/convert_sync_batch_norm.hpp"

#include <doctest/doctest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/loss.h>

#include <string>
#include <string_view>

#include "common/printed.hpp"
#include "common/toy.hpp"

namespace callbacks_convert_sync_batch_norm_test {

struct NetImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) { return norm(x); }
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(1));
};
TORCH_MODULE(Net);

template <class... Callbacks>
torch::Tensor trained(etude::LogLevel level = etude::LogLevel::critical) {
  Net net;
  auto args = toy::arguments();
  args.per_device_train_batch_size = 4;
  args.log_level = level;
  auto options = toy::options(args, 8);
  options.model = net;
  etude::Trainer<Callbacks...>(options).train();
  return torch::stack({net->norm->weight, net->norm->bias, net->norm->running_mean, net->norm->running_var});
}

TEST_CASE("in one process it changes nothing, and says so once at level info") {
  torch::Tensor with;
  const auto text = toy::printed(
      [&] { with = trained<etude::ConvertSyncBatchNormCallback>(etude::LogLevel::info); }, STDERR_FILENO);
  CHECK(with.equal(trained<>()));
  const std::string_view expected =
      "ConvertSyncBatchNormCallback: this is the only process, so batch norms use its batches alone";
  CHECK(text.find(expected) != std::string::npos);
  CHECK(text.find(expected) == text.rfind(expected));
  CHECK(text.find("has used no batch norm") == std::string::npos);
}

}  // namespace callbacks_convert_sync_batch_norm_test
