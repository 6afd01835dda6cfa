#include "etude/checkpoint/load_weights.hpp"

#include <doctest/doctest.h>
#include <torch/nn/modules/linear.h>

#include <memory>
#include <string>
#include <vector>

#include "common/folder.hpp"
#include "etude/base/error.hpp"
#include "etude/formats/safetensors.hpp"
#include "etude/model/equal.hpp"

namespace checkpoint_load_weights_test {

using Names = std::vector<std::string>;

struct NetImpl : torch::nn::Module {
  torch::nn::Linear body = register_module("body", torch::nn::Linear(2, 2));
  torch::nn::Linear head = register_module("head", torch::nn::Linear(2, 3));
};
TORCH_MODULE(Net);

/// A model whose head shares the embedding's weight.
struct TiedImpl : torch::nn::Module {
  struct Part : torch::nn::Module {
    explicit Part(const torch::Tensor& weight) { register_parameter("weight", weight); }
  };
  torch::Tensor weight = torch::zeros({2, 2});
  std::shared_ptr<Part> embed = register_module("embed", std::make_shared<Part>(weight));
  std::shared_ptr<Part> head = register_module("head", std::make_shared<Part>(weight));
};
TORCH_MODULE(Tied);

etude::StateDict pretrained() {
  return {{"bert.body.weight", torch::full({2, 2}, 1.0)},
          {"bert.body.bias", torch::full({2}, 2.0, torch::kBFloat16)},
          {"bert.pooler.weight", torch::ones({1})},
          {"head.weight", torch::full({5, 2}, 3.0)}};
}

TEST_CASE("what fits is loaded, and the rest reported by name") {
  const toy::Folder folder;
  etude::save_safetensors(folder / "bert.safetensors", pretrained());
  Net net;
  const auto weight = net->head->weight.detach().clone();
  const auto report = etude::load_weights(*net, folder / "bert.safetensors", {.rename = {{"bert.", ""}}});
  CHECK(report.loaded == Names{"body.weight", "body.bias"});
  CHECK(report.missing_keys == Names{"head.bias"});
  CHECK(report.unexpected_keys == Names{"pooler.weight"});
  REQUIRE(report.mismatched_keys.size() == 1);
  CHECK(report.mismatched_keys[0].in_file == std::vector<std::int64_t>{5, 2});
  CHECK(report.text() ==
        "loaded 2 of 4 tensors\n"
        "not in the file: head.bias\n"
        "of another shape in the file: head.weight [5, 2] instead of [3, 2]\n"
        "not in the model: pooler.weight\n");
  CHECK(torch::equal(net->body->weight, torch::full({2, 2}, 1.f)));
  CHECK(torch::equal(net->body->bias, torch::full({2}, 2.f)));
  CHECK(torch::equal(net->head->weight, weight));
}

TEST_CASE("a folder of a model is loaded as a whole, and a prefix can be put before each name") {
  const toy::Folder folder;
  Net net, other;
  etude::save_model_files(folder / "model", etude::state_dict(*net));
  CHECK(etude::load_weights(*other, folder / "model", {.strict = true}).is_complete());
  CHECK(etude::equal(*net, *other));
  struct Outer : torch::nn::Module {
    Net inner{register_module("inner", Net())};
  } outer;
  CHECK(etude::load_weights(outer, folder / "model", {.rename = {{"", "inner."}}}).is_complete());
  CHECK(etude::equal(*net, *outer.inner));
}

TEST_CASE("a tied tensor needs one of its names") {
  Tied tied;
  const auto report = etude::load_weights(*tied, {{"embed.weight", torch::ones({2, 2})}});
  CHECK(report.is_complete());
  CHECK(torch::equal(tied->weight, torch::ones({2, 2})));
}

TEST_CASE("errors say what doesn't fit, and nothing is copied then") {
  Net net, before;
  etude::load_weights(*before, etude::state_dict(*net), {.strict = true});
  CHECK_THROWS_WITH_AS(etude::load_weights(*net, pretrained(), {.rename = {{"bert.", ""}}, .strict = true}),
                       doctest::Contains("the weights don't fit the model\nloaded 2 of 4 tensors\n"),
                       etude::CheckpointError);
  CHECK_THROWS_WITH_AS(etude::load_weights(*net, {{"model.body.weight", torch::ones({2, 2})}}),
                       doctest::Contains("loaded 0 of 4 tensors\nnot in the file: body.weight, body.bias, "
                                         "head.weight, head.bias\nnot in the model: model.body.weight\n"),
                       etude::CheckpointError);
  CHECK_THROWS_WITH_AS(
      etude::load_weights(*net, pretrained(), {.rename = {{"bert.body.weight", "head.weight"}}}),
      doctest::Contains("'bert.body.weight' and 'head.weight' both become 'head.weight'"),
      etude::CheckpointError);
  CHECK_THROWS_WITH_AS(etude::load_weights(*net, "net.pt"),
                       doctest::Contains("load_torch_file(path).tensors"), etude::CheckpointError);
  CHECK(etude::equal(*net, *before));
}

}  // namespace checkpoint_load_weights_test
