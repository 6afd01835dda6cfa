#include "etude/precision/cast_guard.hpp"

#include <doctest/doctest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include "etude/data/batch.hpp"
#include "etude/model/model.hpp"

namespace precision_cast_guard_test {

TEST_CASE("weights and buffers of floating point are cast, and come back to the bit, in the same memory") {
  torch::nn::Sequential net(torch::nn::Linear(3, 4), torch::nn::BatchNorm1d(4));
  const etude::Model model(net);
  const auto weight = net->parameters().front();
  const auto copy = weight.detach().clone();
  const void* memory = weight.data_ptr();
  {
    const etude::CastGuard cast(model, torch::kBFloat16);
    CHECK((net->parameters().front().scalar_type() == torch::kBFloat16));
    CHECK(torch::equal(weight, copy.to(torch::kBFloat16)));
    CHECK((net->named_buffers()["1.running_mean"].scalar_type() == torch::kBFloat16));
    CHECK((net->named_buffers()["1.num_batches_tracked"].scalar_type() == torch::kLong));
    const torch::NoGradGuard no_grad;
    weight.zero_();
  }
  CHECK(weight.data_ptr() == memory);
  CHECK(torch::equal(weight, copy));
  CHECK(weight.requires_grad());
  CHECK((net->named_buffers()["1.running_mean"].scalar_type() == torch::kFloat));
}

struct TiedImpl : torch::nn::Module {
  TiedImpl() { register_parameter("second", weight); }
  torch::Tensor forward(const torch::Tensor& x) { return torch::mm(x, weight); }
  torch::Tensor weight = register_parameter("first", torch::ones({2, 2}));
};
TORCH_MODULE(Tied);

TEST_CASE("a weight with two names is cast once, and inputs follow unless they are whole numbers") {
  Tied net;
  {
    const etude::CastGuard cast(etude::Model(net), torch::kHalf);
    CHECK((net->weight.scalar_type() == torch::kHalf));
  }
  CHECK((net->weight.scalar_type() == torch::kFloat));
  const auto batch = etude::with_inputs_as(
      etude::make_batch({torch::ones({2, 2}), torch::ones({2}, torch::kLong)}, {torch::ones({2})}),
      torch::kHalf);
  CHECK((batch.inputs[0].scalar_type() == torch::kHalf));
  CHECK((batch.inputs[1].scalar_type() == torch::kLong));
  CHECK((batch.labels[0].scalar_type() == torch::kFloat));
}

}  // namespace precision_cast_guard_test
