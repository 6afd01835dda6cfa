#include "etude/model/load_exported.hpp"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "common/exported_model.hpp"
#include "common/fault_of.hpp"
#include "common/folder.hpp"
#include "common/zip_bytes.hpp"
#include "etude/formats/zip_archive.hpp"

namespace model_load_exported_test {

using toy::contains;
using toy::fault_of;
namespace x = toy::exported;
using namespace std::string_literals;
using Entries = std::vector<toy::ZipEntry>;

// y = op(x, w) + c, with w = 2 and c = 10.
x::Model model(const std::string& operation) {
  return {
      .inputs = {x::parameter("w"), x::constant("c"), x::batch("x", {"s0"})},
      .nodes = {x::call(operation, {{"self", x::tensor("x")}, {"other", x::tensor("p_w")}}, {x::tensor("z")}),
                x::call("aten.add.Tensor", {{"self", x::tensor("z")}, {"other", x::tensor("c_c")}},
                        {x::tensor("y")})},
      .outputs = {{"y", "y"}}};
}

std::string config(const std::string& name, const std::string& path) {
  return R"({"config": {")" + name + R"(": {"path_name": ")" + path +
         R"(", "is_param": true, "use_pickle": false, "tensor_meta": {"dtype": 7, "sizes": [{"as_int": 1}], "strides": [{"as_int": 1}], "storage_offset": {"as_int": 0}}}}})";
}

Entries file(const std::vector<std::pair<std::string, x::Model>>& models) {
  Entries entries{{"m/archive_format", "pt2"},
                  {"m/archive_version", "0"},
                  {"m/data/weights/weight_0", "\0\0\0\x40"s},
                  {"m/data/constants/tensor_0", "\0\0\x20\x41"s},
                  {"m/extra/config.json", "{}"}};
  for (const auto& [name, each] : models) {
    entries.push_back({"m/models/" + name + ".json", each.json()});
    entries.push_back({"m/data/weights/" + name + "_weights_config.json", config("w", "weight_0")});
    entries.push_back({"m/data/constants/" + name + "_constants_config.json", config("c", "tensor_0")});
  }
  return entries;
}

struct Loaded {
  toy::Folder folder;
  etude::ExportedModule load(const Entries& entries) {
    toy::write_text(folder / "m.pt2", toy::zip_bytes(entries));
    return etude::load_exported(folder / "m.pt2");
  }
  std::string fault(const Entries& entries) {
    const auto text = fault_of([&] { load(entries); });
    CHECK(text.starts_with((folder / "m.pt2").string() + ": "));
    return text;
  }
};

float at_five(etude::ExportedModule module) {
  return module->forward(torch::full({1}, 5.f)).at("y").item<float>();
}

TEST_CASE("a file's model computes, has its files, and its state by name") {
  Loaded loaded;
  auto module = loaded.load(file({{"model", model("aten.mul.Tensor")}}));
  CHECK(at_five(module) == 20);
  CHECK(module->files() == etude::ModelFiles{{"config.json", "{}"}});
  CHECK(module->named_parameters().keys() == std::vector<std::string>{"w"});
  CHECK(module->buffers().empty());
}

TEST_CASE("a file says what the loss is a mean over, and that is no file of the model") {
  Loaded loaded;
  const auto with = [&](const std::string& text) {
    auto entries = file({{"model", model("aten.mul.Tensor")}});
    entries.push_back({"m/extra/etude.json", text});
    return entries;
  };
  CHECK(loaded.load(file({{"model", model("aten.mul.Tensor")}}))->loss_items() == etude::LossItems::unknown);
  auto module = loaded.load(with(R"({"loss_items": "shifted_labels"})"));
  CHECK(module->loss_items() == etude::LossItems::shifted_labels);
  CHECK(module->files() == etude::ModelFiles{{"config.json", "{}"}});
  CHECK(loaded.load(with(R"({"loss_items": "labels"})"))->loss_items() == etude::LossItems::labels);
  CHECK(contains(loaded.fault(with(R"({"loss_items": "rows"})")),
                 ": extra/etude.json: loss_items is rows: must be labels or shifted_labels"));
  CHECK(contains(loaded.fault(with("{")), ": extra/etude.json: "));
}

// y = x * w * other, two names of one tensor.
x::Model tied_model() {
  return {.inputs = {x::parameter("w"), x::parameter("other"), x::batch("x", {"s0"})},
          .nodes = {x::call("aten.mul.Tensor", {{"self", x::tensor("x")}, {"other", x::tensor("p_w")}},
                            {x::tensor("z")}),
                    x::call("aten.mul.Tensor", {{"self", x::tensor("z")}, {"other", x::tensor("p_other")}},
                            {x::tensor("y")})},
          .outputs = {{"y", "y"}}};
}

TEST_CASE("a tied tensor has the name that the file keeps, and an adapter its file") {
  Loaded loaded;
  const auto with = [&](const std::string& notes, const std::string& path_of_other = "weight_0") {
    auto weights = etude::detail::ExportedJson::parse(config("w", "weight_0"));
    weights["config"]["other"] =
        etude::detail::ExportedJson::parse(config("other", path_of_other))["config"]["other"];
    auto entries = file({{"model", tied_model()}});
    for (auto& each : entries)
      if (each.name.ends_with("model_weights_config.json")) each.data = weights.dump();
    entries.push_back({"m/data/weights/weight_1", "\0\0\0\x40"s});
    entries.push_back({"m/extra/etude.json", notes});
    return entries;
  };
  using Names = std::vector<std::string>;
  const auto saved = [](const etude::Model& model) {
    Names names;
    for (const auto& [name, tensor] : model.state_dict()) names.push_back(name);
    return names;
  };
  CHECK(saved(loaded.load(with("{}"))) == Names{"w", "other"});
  CHECK(saved(loaded.load(with(R"({"tied": {"other": "w"}})"))) == Names{"w"});
  auto module = loaded.load(with(R"({"tied": {"w": "other"}, "adapter": {"lora": "other"}})"));
  CHECK(saved(module) == Names{"other"});
  CHECK(module->named_parameters().keys() == Names{"w", "other"});
  CHECK(at_five(module) == 20);
  for (const std::string name : {"w", "other"}) {  // either name may be in the state
    etude::Model(module).load_state_dict({{name, torch::full({1}, 3.f)}});
    CHECK(at_five(module) == 45);
  }
  CHECK(contains(fault_of([&] { etude::Model(module).load_state_dict({}); }), "w is missing"));
  etude::Model(module).load_state_dict({{"other", torch::full({1}, 2.f)}});
  module->forward(torch::full({1}, 5.f)).at("y").sum().backward();
  CHECK(module->named_parameters()["other"].grad().item<float>() == 20);  // the derivative of 5 w^2 is 10 w
  CHECK(module->tensor_files() == etude::TensorFiles{{"adapter_model.safetensors", {{"lora", "other"}}}});

  CHECK(contains(loaded.fault(with(R"({"tied": {"w": "other"}})", "weight_1")), "'w' isn't tied to 'other'"));
  CHECK(contains(loaded.fault(with(R"({"tied": {"w": "none"}})")), "'w' isn't tied to 'none'"));
  CHECK(contains(loaded.fault(with(R"({"tied": {"w": "other", "other": "w"}})")), "isn't tied to"));
  CHECK(contains(loaded.fault(with(R"({"adapter": {"lora": "none"}})")),
                 "it has no tensor 'none' of the adapter"));
  CHECK(contains(loaded.fault(with(R"({"tied": 3})")), ": extra/etude.json: "));
}

TEST_CASE("a file with both modes has one graph for each") {
  Loaded loaded;
  for (const std::string training : {"model", "train"}) {
    auto module =
        loaded.load(file({{training, model("aten.mul.Tensor")}, {"eval", model("aten.sub.Tensor")}}));
    CHECK(at_five(module) == 20);
    module->eval();
    CHECK(at_five(module) == 13);
    CHECK(module->parameters().size() == 1);
  }
  auto any_name = loaded.load(file({{"mine", model("aten.mul.Tensor")}}));
  CHECK(at_five(any_name) == 20);
}

TEST_CASE("other graphs are an error that names them") {
  Loaded loaded;
  const auto one = model("aten.mul.Tensor");
  CHECK(contains(loaded.fault(file({{"a", one}, {"b", one}})),
                 "it has the graphs a, b: must have one, or model (or train) and eval"));
  CHECK(contains(loaded.fault(file({{"model", one}, {"eval", one}, {"more", one}})),
                 "it has the graphs eval, model, more"));
  CHECK(contains(loaded.fault(file({{"model", one}, {"train", one}})), "it has the graphs model, train"));
  CHECK(contains(loaded.fault(file({})), "it has the graphs : must have one"));
}

TEST_CASE("faults of graphs and weights name the file and the place") {
  Loaded loaded;
  CHECK(contains(loaded.fault(file({{"model", model("aten.no_such.default")}})),
                 ": models/model.json: node torch.ops.aten.no_such.default: LibTorch "));
  auto entries = file({{"model", model("aten.mul.Tensor")}});
  for (auto& each : entries)
    if (each.name == "m/data/weights/model_weights_config.json") each.data = config("other", "weight_0");
  CHECK(contains(loaded.fault(entries), "it has no tensor 'w'"));
  toy::write_text(loaded.folder / "m.pt2", "");
  CHECK(contains(fault_of([&] { etude::load_exported(loaded.folder / "m.pt2"); }), "it is empty"));
  CHECK(contains(fault_of([&] { etude::load_exported(loaded.folder / "none.pt2"); }),
                 "none.pt2: can't be opened: No such file"));
}

TEST_CASE("a file of torch 2.8, whose tensors are pickled, computes what torch 2.8 computed") {
  // tools/export.py wrote it: batch norm, linear, dropout, plus a buffer and a constant; mean squared error.
  auto module =
      etude::load_exported(std::filesystem::path(__FILE__).parent_path() / "exported_by_torch_2_8.pt2");
  CHECK(module->named_parameters().keys() ==
        std::vector<std::string>{"norm.weight", "norm.bias", "linear.weight", "linear.bias"});
  const auto inputs = module->inputs();
  REQUIRE(inputs.size() == 2);
  CHECK(inputs[0].name == "x");
  CHECK((inputs[0].dtype == torch::kFloat));
  CHECK(inputs[0].sizes == std::vector<std::int64_t>{-1, 3});
  CHECK_FALSE(inputs[0].is_label);
  CHECK(inputs[1].name == "labels");
  CHECK(inputs[1].is_label);
  const etude::Tensors batch({torch::arange(6).to(torch::kFloat).reshape({2, 3}), torch::zeros({2, 2})},
                             {"x", "labels"});
  module->eval();
  const auto out = module->forward(batch);
  const auto expected =
      torch::tensor({{0.8479092717170715, 2.0450470447540283}, {0.33853578567504883, 0.5677258968353271}});
  CHECK(out.at("logits").allclose(expected.to(torch::kFloat), 1e-6));
  CHECK(out.at("loss").item<double>() == doctest::Approx(1.334521770477295).epsilon(1e-6));
  module->train();
  CHECK_FALSE(module->forward(batch).at("logits").allclose(expected.to(torch::kFloat), 1e-3));
  CHECK(module->named_buffers()["norm.num_batches_tracked"].item<std::int64_t>() == 1);
}

TEST_CASE("plain torch.export.save of every torch opens, computes and trains") {
  // exported_linear.py wrote them: y = x W^T + b, with W = [[0, 1, 2], [3, 4, 5]] / 8 and b = [0.5, -0.25].
  for (const std::string version : {"2_8", "2_9", "2_10", "2_11", "2_12", "2_13", "2_14", "2_15"}) {
    CAPTURE(version);
    auto module = etude::load_exported(std::filesystem::path(__FILE__).parent_path() /
                                       ("linear_by_torch_" + version + ".pt2"));
    const auto x = torch::arange(6).to(torch::kFloat).reshape({2, 3});
    torch::optim::SGD optimizer(module->parameters(), torch::optim::SGDOptions(0.125));
    const torch::Tensor y = module(x);
    CHECK(y.equal(torch::tensor({{1.125f, 1.5f}, {2.25f, 6.f}})));
    // The loss is the mean of four y^2, so the gradient of y is y / 2.
    y.square().mean().backward();
    optimizer.step();
    const auto parameters = module->named_parameters();
    CHECK(parameters["weight"].allclose(
        torch::tensor({{-3.375f, 1 - 5.0625f, 2 - 6.75f}, {3 - 9.f, 4 - 12.75f, 5 - 16.5f}}) / 8));
    CHECK(parameters["bias"].allclose(torch::tensor({0.5f - 1.6875f / 8, -0.25f - 3.75f / 8})));
  }
}

TEST_CASE("a trained model is saved as a file of the same kind") {
  Loaded loaded;
  auto module = loaded.load(file({{"train", model("aten.mul.Tensor")}, {"eval", model("aten.sub.Tensor")}}));
  module->to(torch::kDouble);
  const torch::NoGradGuard no_grad;
  module->parameters()[0].fill_(3);
  const auto path = loaded.folder / "trained.pt2";
  toy::write_text(path, "something else");
  module->save_exported(path);
  auto again = etude::load_exported(path);
  CHECK((again->parameters()[0].scalar_type() == torch::kFloat));
  CHECK(at_five(again) == 25);  // 5 * 3 + 10
  again->eval();
  CHECK(at_five(again) == 12);
  CHECK(again->files() == etude::ModelFiles{{"config.json", "{}"}});
  const etude::ZipArchive before(loaded.folder / "m.pt2"), after(path);
  CHECK(before.entries().size() == after.entries().size());
  for (const auto& each : before.entries()) {
    const auto& name = each.first;
    const auto& entry = each.second;
    CAPTURE(name);
    REQUIRE(after.find(name));
    CHECK(after.find(name)->size == after.find(name)->compressed_size);
    CHECK((after.read(*after.find(name)) == before.read(entry)) == (name != "m/data/weights/weight_0"));
  }
  // A clone knows the file too, and may replace it.
  const auto copy = std::dynamic_pointer_cast<etude::ExportedModuleImpl>(again->clone());
  copy->parameters()[0].fill_(4);
  copy->save_exported(path);
  CHECK(at_five(etude::load_exported(path)) == 30);

  CHECK(contains(fault_of([&] { module->save_exported(loaded.folder / "none/m.pt2"); }),
                 "none/m.pt2: can't be written: "));
  auto pickled =
      etude::load_exported(std::filesystem::path(__FILE__).parent_path() / "linear_by_torch_2_8.pt2");
  CHECK(contains(fault_of([&] { pickled->save_exported(path); }),
                 "linear_by_torch_2_8.pt2: its tensors are pickled, as torch 2.8 wrote them"));
}

}  // namespace model_load_exported_test
