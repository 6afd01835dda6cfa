#include <doctest/doctest.h>
#include <torch/types.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "etude/formats/npy.hpp"
#include "etude/formats/safetensors.hpp"
#include "tools/program.hpp"

namespace tools_train_test {

namespace fs = std::filesystem;
using toy::contains;
using Words = std::vector<std::string>;

/// y = x W^T + b, with W = [[0, 1, 2], [3, 4, 5]] / 8 and b = [0.5, -0.25].
const std::string model =
    fs::path(__FILE__).parent_path().parent_path() / "model" / "linear_by_torch_2_13.pt2";

struct Linear {
  torch::Tensor weight = torch::arange(6.0f).view({2, 3}) / 8, bias = torch::tensor({0.5f, -0.25f});
  torch::Tensor operator()(const torch::Tensor& x) const { return torch::linear(x, weight, bias); }
};

/// Nine examples, in order, in three batches.
struct Examples {
  torch::Tensor x = torch::linspace(-1, 1, 27).view({9, 3}).sin() + torch::arange(9.0f).view({9, 1}) / 9;
  torch::Tensor classes = torch::tensor({1, 0, 0, 1, 1, 0, 1, 0, 1});
};

const Words sgd{"--optim",
                "sgd",
                "--learning_rate",
                "0.5",
                "--lr_scheduler_type",
                "constant",
                "--max_grad_norm",
                "0",
                "--per_device_train_batch_size",
                "3",
                "--num_train_epochs",
                "2",
                "--train_sampling_strategy",
                "sequential",
                "--report",
                "quiet"};

/// Two epochs of a training loop written with torch's operators.
template <class LossOf>
Linear trained_by_hand(LossOf loss_of) {
  Linear linear;
  for (int step = 0; step < 6; ++step) {
    linear.weight.requires_grad_();
    linear.bias.requires_grad_();
    loss_of(linear, 3 * (step % 3)).backward();
    const at::NoGradGuard guard;
    linear.weight = (linear.weight - 0.5 * linear.weight.grad()).detach();
    linear.bias = (linear.bias - 0.5 * linear.bias.grad()).detach();
  }
  return linear;
}

Linear trained_on_classes() {
  return trained_by_hand([all = Examples()](const Linear& linear, std::int64_t begin) {
    return torch::cross_entropy_loss(linear(all.x.narrow(0, begin, 3)), all.classes.narrow(0, begin, 3));
  });
}

void check_weights(const fs::path& folder, const Linear& expected) {
  const auto file = etude::load_safetensors(folder / "model.safetensors");
  REQUIRE(file.tensors.size() == 2);
  for (const auto& [name, tensor] : file.tensors)
    CHECK_MESSAGE(torch::allclose(tensor, name == "weight" ? expected.weight : expected.bias, 1e-6, 1e-7),
                  name);
}

void write(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

/// A table with the columns a, b, c and kind, where the classes 0 and 1 have these names.
std::string table_of(const Examples& all, const std::vector<std::string>& kinds) {
  std::string text = "a,b,c,kind\n";
  for (std::int64_t row = 0; row < 9; ++row) {
    for (std::int64_t column = 0; column < 3; ++column)
      text += fmt::format("{},", all.x[row][column].item<float>());
    text += kinds[static_cast<std::size_t>(all.classes[row].item<std::int64_t>())] + "\n";
  }
  return text;
}

template <class... More>
Words joined(Words words, const More&... more) {
  (words.insert(words.end(), more.begin(), more.end()), ...);
  return words;
}

toy::Ran run(Words words) { return toy::run_program(ETUDE_TOOL, std::move(words)); }

TEST_CASE("a classifier learns the same from a table, from a safetensors file and from arrays") {
  const toy::Folder folder;
  const Examples all;
  write(folder / "train.csv", table_of(all, {"cat", "dog"}));
  etude::save_safetensors(folder / "train.safetensors",
                          {{"input", all.x}, {"label", all.classes.to(torch::kInt)}});
  fs::create_directory(folder / "arrays");
  etude::save_npy(folder / "arrays" / "input.npy", all.x.to(torch::kDouble));  // as NumPy's are
  etude::save_npy(folder / "arrays" / "labels.npy", all.classes);

  const auto expected = trained_on_classes();
  for (const Words& data : {Words{"train.csv", "--label_column", "kind"}, Words{"train.safetensors"},
                            Words{"arrays"}, Words{"arrays/input.npy", "arrays/labels.npy"}}) {
    CAPTURE(data.front());
    auto files = data;
    for (auto& word : files)
      if (fs::exists(folder / word)) word = folder / word;
    const std::string out = folder / ("out" + fs::path(data.front()).filename().string());
    const auto ran = run(
        joined({"train", "--model", model, "--loss", "cross_entropy", "--output_dir", out, "--train_dataset"},
               files, sgd));
    CHECK(ran.err == "");
    REQUIRE(ran.end == "exit 0");
    check_weights(out, expected);
  }
}

TEST_CASE("a regression learns from several files as from one") {
  const toy::Folder folder;
  const Examples all;
  const auto targets = torch::stack({all.x.sum(1), all.x.prod(1)}, 1);
  etude::save_safetensors(folder / "first.safetensors",
                          {{"input", all.x.narrow(0, 0, 4)}, {"labels", targets.narrow(0, 0, 4)}});
  etude::save_safetensors(folder / "second.safetensors",
                          {{"input", all.x.narrow(0, 4, 5)}, {"labels", targets.narrow(0, 4, 5)}});
  const auto ran =
      run(joined({"train", "--model", model, "--loss", "mse", "--output_dir", folder / "out",
                  "--train_dataset", folder / "first.safetensors", folder / "second.safetensors"},
                 sgd));
  REQUIRE(ran.end == "exit 0");
  check_weights(folder / "out", trained_by_hand([&](const Linear& linear, std::int64_t begin) {
                  return torch::mse_loss(linear(all.x.narrow(0, begin, 3)), targets.narrow(0, begin, 3));
                }));
}

TEST_CASE("classes have the numbers of the training wherever its weights are used") {
  const toy::Folder folder;
  const Examples all;
  write(folder / "train.csv", table_of(all, {"cat", "dog"}));
  REQUIRE(run(joined({"train", "--model", model, "--loss", "cross_entropy", "--output_dir", folder / "out",
                      "--train_dataset", folder / "train.csv", "--label_column", "kind"},
                     sgd))
              .end == "exit 0");
  CHECK(toy::read_text(folder / "out" / "classes.json") == "[\n \"cat\",\n \"dog\"\n]\n");

  // Only dogs, whose class would be 0 in a folder without cats.
  write(
      folder / "dogs.csv", "a,b,c,kind\n" + [&] {
        std::string rows;
        for (const auto row : {0, 3, 4})
          rows += fmt::format("{},{},{},dog\n", all.x[row][0].item<float>(), all.x[row][1].item<float>(),
                              all.x[row][2].item<float>());
        return rows;
      }());
  const auto ran = run({"evaluate", "--model", model, "--weights", folder / "out", "--loss", "cross_entropy",
                        "--eval_dataset", folder / "dogs.csv", "--label_column", "kind", "--compute_metrics",
                        "accuracy", "--json", "--report", "quiet"});
  REQUIRE(ran.end == "exit 0");
  const auto scores = trained_on_classes()(all.x.index_select(0, torch::tensor({0, 3, 4})));
  const auto json = ran.json();
  CHECK(json["eval_accuracy"].get<double>() ==
        doctest::Approx(scores.argmax(1).to(torch::kDouble).mean().item<double>()));
  CHECK(json["eval_loss"].get<double>() ==
        doctest::Approx(torch::cross_entropy_loss(scores, torch::ones({3}, torch::kLong)).item<double>())
            .epsilon(1e-5));

  write(folder / "birds.csv", "a,b,c,kind\n1,2,3,bird\n");
  const auto other = run({"evaluate", "--model", model, "--weights", folder / "out", "--loss",
                          "cross_entropy", "--eval_dataset", folder / "birds.csv", "--label_column", "kind"});
  CHECK(other.end == "exit 1");
  CHECK(contains(other.err, "'bird'"));
}

TEST_CASE("predictions are written in the order of the examples") {
  const toy::Folder folder;
  const Examples all;
  etude::save_npy(folder / "input.npy", all.x);
  const auto expected = Linear()(all.x);
  REQUIRE(run({"predict", "--model", model, "--dataset", folder / "input.npy", "--output", folder / "y.npy",
               "--report", "quiet"})
              .end == "exit 0");
  CHECK(torch::allclose(etude::load_npy(folder / "y.npy"), expected));
  auto unlabelled = table_of(all, {"", ""});
  for (auto comma = unlabelled.find(",\n"); comma != unlabelled.npos; comma = unlabelled.find(",\n"))
    unlabelled.erase(comma, 1);
  unlabelled.erase(unlabelled.find(",kind"), 5);
  write(folder / "new.csv", unlabelled);
  REQUIRE(run({"predict", "--model", model, "--loss", "cross_entropy", "--dataset", folder / "new.csv",
               "--label_column", "kind", "--output", folder / "new.npy"})
              .end == "exit 0");
  CHECK(torch::allclose(etude::load_npy(folder / "new.npy"), expected));
  REQUIRE(run({"predict", "--model", model, "--dataset", folder / "input.npy", "--output",
               folder / "y.safetensors"})
              .end == "exit 0");
  const auto file = etude::load_safetensors(folder / "y.safetensors");
  REQUIRE(file.tensors.size() == 1);
  CHECK(file.tensors[0].first == "predictions");
  CHECK(torch::allclose(file.tensors[0].second, expected));
}

TEST_CASE("the same command goes on with a training that was interrupted") {
  const toy::Folder folder;
  const Examples all;
  etude::save_safetensors(folder / "train.safetensors", {{"input", all.x}, {"labels", all.classes}});
  const auto command =
      joined({"train", "--model", model, "--loss", "cross_entropy", "--output_dir", folder / "out",
              "--save_steps", "2", "--train_dataset", folder / "train.safetensors"},
             sgd);
  REQUIRE(run(command).end == "exit 0");
  for (const auto* name : {"checkpoint-4", "checkpoint-6"}) fs::remove_all(folder / "out" / name);
  fs::remove(folder / "out" / "model.safetensors");
  REQUIRE(run(command).end == "exit 0");
  check_weights(folder / "out", trained_on_classes());

  // The first step is the third, since the training resumes.
  CHECK(toy::names_in(folder / "out").contains("checkpoint-2"));
  fs::remove_all(folder / "out" / "checkpoint-6");
  REQUIRE(run(joined(command, Words{"--resume_from_checkpoint", "none", "--max_steps", "1"})).end ==
          "exit 0");
  CHECK(nlohmann::json::parse(toy::read_text(folder / "out" / "trainer_state.json"))["global_step"] == 1);
}

TEST_CASE("a configuration file has what the command line has, callbacks with their options included") {
  const toy::Folder folder;
  const Examples all;
  etude::save_safetensors(folder / "train.safetensors", {{"input", all.x}, {"labels", all.classes}});
  const nlohmann::json config{
      {"model", model},
      {"loss", "cross_entropy"},
      {"train_dataset", {folder / "train.safetensors"}},
      {"eval_dataset", {folder / "train.safetensors"}},
      {"compute_metrics", {"accuracy", "f1"}},
      {"eval_strategy", "epoch"},
      {"learning_rate", 0},
      {"num_train_epochs", 9},
      {"report", "quiet"},
      {"output_dir", folder / "out"},
      {"callback",
       {"EarlyStoppingCallback: early_stopping_patience=2", "JSONLinesLoggerCallback:path=logs.jsonl"}}};
  write(folder / "config.json", config.dump());
  REQUIRE(run({"train", "--config", folder / "config.json"}).end == "exit 0");
  const auto state = nlohmann::json::parse(toy::read_text(folder / "out" / "trainer_state.json"));
  CHECK(state["epoch"] == 3);  // the first evaluation is the best; it stops after two that aren't better
  const auto results = nlohmann::json::parse(toy::read_text(folder / "out" / "eval_results.json"));
  CHECK(results.contains("eval_accuracy"));
  CHECK(results.contains("eval_f1"));
  CHECK(contains(toy::read_text(folder / "out" / "logs.jsonl"), "\"eval_accuracy\""));
}

TEST_CASE("a search trains with each choice of hyperparameters") {
  const toy::Folder folder;
  const Examples all;
  etude::save_safetensors(folder / "train.safetensors", {{"input", all.x}, {"labels", all.classes}});
  const auto ran =
      run(joined({"train", "--model", model, "--loss", "cross_entropy", "--output_dir", folder / "out",
                  "--train_dataset", folder / "train.safetensors", "--eval_dataset",
                  folder / "train.safetensors", "--hyperparameter_search", "n_trials=3, sampler=grid",
                  "--hp_space", R"({"learning_rate": [0.001, 0.5, 0.01]})"},
                 sgd));
  CHECK(ran.err == "");
  REQUIRE(ran.end == "exit 0");
  std::set<double> tried;
  for (const auto* run : {"run-0", "run-1", "run-2"})
    tried.insert(
        nlohmann::json::parse(toy::read_text(folder / "out" / run / "hyperparameters.json"))["learning_rate"]
            .get<double>());
  CHECK(tried == std::set<double>{0.001, 0.01, 0.5});
  CHECK(contains(ran.out, "best: "));
}

TEST_CASE("a mistake is one line that names the argument, the value and what is allowed") {
  const toy::Folder folder;
  const Examples all;
  write(folder / "train.csv", table_of(all, {"cat", "dog"}));
  etude::save_safetensors(folder / "other.safetensors", {{"inputs", all.x}, {"labels", all.classes}});
  const std::string csv = folder / "train.csv", other = folder / "other.safetensors", out = folder / "out";
  struct Case {
    Words words;
    std::string end, said;
  };
  const Words given{"train", "--output_dir", out, "--model", model};
  const Words classes = joined(given, Words{"--loss", "cross_entropy"});
  const Words kind = joined(classes, Words{"--train_dataset", csv, "--label_column", "kind"});
  for (const auto& [words, end, said] : std::vector<Case>{
           {{"train", "--train_dataset", csv},
            "exit 2",
            "model is not given: must be the .pt2 file of a model"},
           {given, "exit 2", "train_dataset is not given: must be files of examples"},
           {joined(given, Words{"--train_dataset", csv}), "exit 2",
            "loss is model, but the model takes no labels (it takes input): must be one of"},
           {{"train", "--model", folder / "no.pt2", "--train_dataset", csv},
            "exit 1",
            "no.pt2: can't be opened"},
           {{"train", "--model", csv, "--train_dataset", csv},
            "exit 1",
            "train.csv: it isn't a whole zip archive"},
           {joined(classes, Words{"--train_dataset", folder / "no.csv"}), "exit 1",
            "no.csv: there is no such file or folder"},
           {joined(classes, Words{"--train_dataset", model}), "exit 1",
            "data must be .safetensors, .npy, .bin"},
           {joined(classes, Words{"--train_dataset", csv}), "exit 1",
            "4 columns besides the label (a, b, c, kind), but the model's input has 3"},
           {joined(classes, Words{"--train_dataset", csv, "--label_column", "knid"}), "exit 1",
            "there is no column 'knid': it has a, b, c, kind; did you mean 'kind'?"},
           {joined(kind, Words{"--columns", "a", "b", "d"}), "exit 1", "there is no column 'd'"},
           {joined(classes, Words{"--train_dataset", other}), "exit 1",
            "'inputs' is no input of the model, which takes input; did you mean 'input'?"},
           {joined(given, Words{"--loss", "mse", "--train_dataset", csv, "--label_column", "kind"}), "exit 1",
            "column 'kind' is 'dog': must be a number"},
           {joined(kind, Words{"--callback", "EarlyStopingCallback"}), "exit 2",
            "did you mean 'EarlyStoppingCallback'?"},
           {joined(kind, Words{"--callback", "EarlyStoppingCallback:patience=3"}), "exit 2",
            "there is no option 'patience'; did you mean 'early_stopping_patience'?"},
           {joined(kind, Words{"--callback", "EarlyStoppingCallback:early_stopping_patience=0"}), "exit 2",
            "early_stopping_patience is 0: must be at least 1"},
           {joined(kind, Words{"--callback", "EarlyStoppingCallback:early_stopping_patience=2,treshold=1"}),
            "exit 2", "there is no option 'treshold'"},
           {joined(kind, Words{"--callback", "TerminateOnNaNCallback:triggered=true"}), "exit 2",
            "callback TerminateOnNaNCallback: there is no option 'triggered'"},
           {joined(kind, Words{"--compiled_graph", "required"}), "exit 2",
            "compiled_graph is required: run_compiled_code must be true, which runs native code"},
           {joined(kind, Words{"--compiled_graph", "required", "--run_compiled_code", "true"}), "exit 2",
            "compiled_graph is required: must be auto or off, since loss is set"},
           {joined(kind, Words{"--compute_metrics", "acuracy"}), "exit 2", "did you mean 'accuracy'?"},
           {joined(kind, Words{"--hp_space", R"({"learning_rate": [1]})"}), "exit 2",
            "hp_space is given: hyperparameter_search must be, too"},
           {joined(kind, Words{"--hyperparameter_search", "trials=3"}), "exit 2",
            "did you mean '--n_trials'?"},
           {joined(kind,
                   Words{"--hyperparameter_search", "n_trials=3", "--hp_space", R"({"learning_rate": 3})"}),
            "exit 2", "hp_space.learning_rate is 3: must be a list of values"},
           {{"predict", "--model", model, "--dataset", csv, "--output", "y.csv"},
            "exit 2",
            "output is 'y.csv': must end in .safetensors or .npy"},
           {{"predict", "--model", model, "--dataset", csv, "--output", folder / "no" / "y.npy"},
            "exit 2",
            "there is no folder"},
       }) {
    CAPTURE(said);
    const auto ran = run(words);
    CHECK(ran.end == end);
    CHECK_MESSAGE(contains(ran.err, said), ran.err);
    CHECK(toy::is_plain(ran.err));
  }
}

TEST_CASE("the help of train lists the training arguments and those of its own") {
  const auto ran = run({"train", "--help"});
  CHECK(ran.end == "exit 0");
  for (const auto* word :
       {"--learning_rate", "--train_dataset", "--compute_metrics", "--callback", "--token_type", "--hp_space",
        "--label_column", "--compiled_graph", "--run_compiled_code"})
    CHECK_MESSAGE(contains(ran.out, word), word);
  CHECK(contains(run({"--help"}).out, "train "));
}

}  // namespace tools_train_test
