#include <doctest/doctest.h>
#include <etude.h>
#include <torch/types.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/folder.hpp"
#include "etude/etude.hpp"
#include "etude/formats/safetensors.hpp"
#include "etude/model/load_exported.hpp"
#include "etude/model/named_loss.hpp"
#include "tools/program.hpp"

namespace c_beside_test {

namespace fs = std::filesystem;

/// y = x W^T + b, with inputs [N, 3] and outputs [N, 2].
const std::string model = MODELS "/linear_by_torch_2_13.pt2";

struct Examples {
  torch::Tensor x = torch::linspace(-1, 1, 36).view({12, 3}).sin(),
                y = torch::linspace(0, 3, 24).view({12, 2}).cos();
};

void ok(etude_status status) { REQUIRE_MESSAGE(status == ETUDE_OK, std::string(etude_last_error())); }

std::array<etude_tensor, 2> described(torch::Tensor& x, torch::Tensor& y) {
  std::array<etude_tensor, 2> result{};
  for (std::size_t i = 0; i < 2; ++i) {
    auto& tensor = i == 0 ? x : y;
    result[i].name = i == 0 ? "input" : "labels";
    result[i].data = tensor.data_ptr();
    result[i].shape = tensor.sizes().data();
    result[i].strides = tensor.strides().data();
    result[i].rank = 2;
  }
  return result;
}

/// The arguments of the trainings, by name.
const std::vector<std::pair<std::string, std::string>> arguments{{"optim", "adamw_torch"},
                                                                 {"learning_rate", "0.05"},
                                                                 {"max_grad_norm", "0.5"},
                                                                 {"weight_decay", "0.1"},
                                                                 {"logging_steps", "1"},
                                                                 {"save_strategy", "no"},
                                                                 {"num_train_epochs", "2"},
                                                                 {"lr_scheduler_type", "cosine"},
                                                                 {"per_device_train_batch_size", "4"},
                                                                 {"train_sampling_strategy", "sequential"},
                                                                 {"seed", "7"}};

/// Owns a trainer of the C interface.
struct InC {
  explicit InC(const std::string& folder, const etude_dataset* dataset = nullptr,
               const char* steps = nullptr) {
    etude_options* options = nullptr;
    ok(etude_options_create(&options));
    for (const auto& [name, value] : arguments) ok(etude_options_set(options, name.c_str(), value.c_str()));
    ok(etude_options_set(options, "loss", "mse"));
    ok(etude_options_set(options, "output_dir", folder.c_str()));
    if (steps) ok(etude_options_set(options, "max_steps", steps));
    if (dataset) ok(etude_options_set_train_dataset(options, dataset));
    ok(etude_trainer_create(model.c_str(), options, &trainer));
    etude_options_destroy(options);
  }
  ~InC() { etude_trainer_destroy(trainer); }
  InC(const InC&) = delete;
  InC& operator=(const InC&) = delete;

  torch::Tensor parameter(const char* name, bool gradient = false) const {
    etude_tensor tensor;
    ok(gradient ? etude_trainer_gradient(trainer, name, &tensor)
                : etude_trainer_parameter(trainer, name, &tensor));
    REQUIRE(tensor.data);
    const auto rank = static_cast<std::size_t>(tensor.rank);
    return torch::from_blob(tensor.data, torch::IntArrayRef(tensor.shape, rank),
                            torch::IntArrayRef(tensor.strides, rank))
        .clone();
  }
  nlohmann::json history() const {
    const char* text = nullptr;
    ok(etude_trainer_state(trainer, &text));
    return nlohmann::json::parse(text)["log_history"];
  }

  etude_trainer* trainer = nullptr;
};

/// The logged values of a training that don't depend on its speed.
std::vector<std::vector<double>> values(const nlohmann::json& history) {
  std::vector<std::vector<double>> result;
  for (const auto& line : history)
    if (line.contains("loss"))
      result.push_back(
          {line["loss"].get<double>(), line["grad_norm"].get<double>(), line["learning_rate"].get<double>()});
  return result;
}

etude::TrainingArguments arguments_of(const std::string& folder, std::int64_t steps) {
  std::vector<std::string> words{"--output_dir", folder, "--max_steps", std::to_string(steps)};
  for (const auto& [name, value] : arguments) words.insert(words.end(), {"--" + name, value});
  return etude::parse_arguments<etude::TrainingArguments>(words);
}

TEST_CASE("steps through C are those of the trainer in C++, bit for bit, and so are gradients") {
  const toy::Folder folder;
  Examples all;
  for (const bool by_halves : {false, true}) {
    CAPTURE(by_halves);
    const InC in_c(folder / "c", nullptr, "9");
    ok(etude_trainer_begin(in_c.trainer, nullptr));
    etude::Trainer<etude::Quiet, etude::RuntimeCallbacks> in_cpp(
        {.model = etude::load_exported(model),
         .args = arguments_of(folder / "cpp", 9),
         .loss = etude::named_loss(etude::LossName::mse)});
    in_cpp.begin();
    for (std::int64_t step = 0; step < 9; ++step) {
      auto x = all.x.narrow(0, step % 3 * 4, 4), y = all.y.narrow(0, step % 3 * 4, 4);
      const auto tensors = described(x, y);
      if (by_halves) {
        ok(etude_trainer_backward(in_c.trainer, tensors.data(), 2));
        in_cpp.backward(etude::make_batch(x, y));
        for (const auto& [name, parameter] : in_cpp.model().named_parameters())
          CHECK(torch::equal(in_c.parameter(name.c_str(), /*gradient=*/true), parameter.grad()));
        ok(etude_trainer_update(in_c.trainer, nullptr));
        in_cpp.update();
      } else {
        ok(etude_trainer_step(in_c.trainer, tensors.data(), 2, nullptr));
        in_cpp.step(x, y);
      }
    }
    ok(etude_trainer_finish(in_c.trainer));
    in_cpp.finish();
    for (const auto& [name, parameter] : in_cpp.model().named_parameters())
      CHECK(torch::equal(in_c.parameter(name.c_str()), parameter));
    const auto losses = values(in_c.history());
    CHECK(losses.size() == 9);
    CHECK(losses == values(nlohmann::json(etude::to_json_value(in_cpp.state().log_history))));
  }
}

TEST_CASE("a dataset trains through C as it does by `etude train`, with the same losses") {
  const toy::Folder folder;
  Examples all;
  etude::save_safetensors(folder / "train.safetensors", {{"input", all.x}, {"labels", all.y}});
  std::vector<std::string> words{"train",
                                 "--model",
                                 model,
                                 "--loss",
                                 "mse",
                                 "--output_dir",
                                 folder / "by_program",
                                 "--train_dataset",
                                 folder / "train.safetensors",
                                 "--report",
                                 "quiet"};
  for (const auto& [name, value] : arguments) words.insert(words.end(), {"--" + name, value});
  const auto ran = toy::run_program(ETUDE_TOOL, words);
  CHECK(ran.err == "");
  REQUIRE(ran.end == "exit 0");

  const auto tensors = described(all.x, all.y);
  etude_dataset* dataset = nullptr;
  ok(etude_dataset_create(tensors.data(), 2, &dataset));
  const InC in_c(folder / "c", dataset);
  etude_dataset_destroy(dataset);
  ok(etude_trainer_train(in_c.trainer, nullptr));
  const auto by_program =
      nlohmann::json::parse(toy::read_text(folder / "by_program" / "trainer_state.json"))["log_history"];
  CHECK(values(in_c.history()).size() == 6);
  CHECK(values(in_c.history()) == values(by_program));
  const auto weights = etude::load_safetensors(folder / "by_program" / "model.safetensors");
  for (const auto& [name, tensor] : weights.tensors)
    CHECK(torch::equal(in_c.parameter(name.c_str()), tensor));
}

}  // namespace c_beside_test
