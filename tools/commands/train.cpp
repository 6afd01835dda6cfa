#include "train.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <etude/callbacks/named_callbacks.hpp>
#include <etude/checkpoint/load_weights.hpp>
#include <etude/etude.hpp>
#include <etude/formats/npy.hpp>
#include <etude/formats/safetensors.hpp>
#include <etude/integrations/report_to.hpp>
#include <etude/metrics/named_metrics.hpp>
#include <etude/model/load_exported.hpp>
#include <etude/model/named_loss.hpp>
#include <etude/parallel/distributed_data_parallel.hpp>
#include <etude/tune/hyperparameter_search.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include "arguments.hpp"
#include "datasets.hpp"
#include "output.hpp"

namespace tool {
namespace {

namespace fs = std::filesystem;
using etude::TrainingArguments;

std::vector<std::string> not_given(const char* field, const std::vector<std::string>& paths) {
  if (!paths.empty()) return {};
  return {fmt::format("{} is not given: must be files of examples", field)};
}

}  // namespace

std::vector<std::string> faults(const ModelArguments& args) {
  if (args.model.empty()) return {"model is not given: must be the .pt2 file of a model"};
  return {};
}

std::vector<std::string> faults(const TrainFiles& files) {
  auto lines = not_given("train_dataset", files.train_dataset);
  if (!files.hp_space.empty() && files.hyperparameter_search.empty())
    lines.push_back("hp_space is given: hyperparameter_search must be, too, such as n_trials=20");
  return lines;
}
std::vector<std::string> faults(const EvaluateFiles& files) {
  return not_given("eval_dataset", files.eval_dataset);
}
std::vector<std::string> faults(const PredictFiles& files) {
  auto lines = not_given("dataset", files.dataset);
  if (const auto kind = fs::path(files.output).extension(); kind != ".safetensors" && kind != ".npy")
    lines.push_back(fmt::format("output is '{}': must end in .safetensors or .npy", files.output));
  if (const auto folder = fs::path(files.output).parent_path(); !folder.empty() && !fs::is_directory(folder))
    lines.push_back(fmt::format("output is '{}': there is no folder {}", files.output, folder.string()));
  return lines;
}

namespace {

/// The class names, saved next to the weights.
struct ClassNames {
  void save(const fs::path& folder) const {
    std::ofstream file(folder / class_file, std::ios::binary);
    file << nlohmann::json(names).dump(1) << '\n';
    if (!file.flush())
      throw etude::CheckpointError(fmt::format("{} can't be written", (folder / class_file).string()));
  }
  std::vector<std::string> names;
};

/// A trainer with the callbacks that the arguments name.
struct NamedTrainer final
    : etude::TrainerBase<NamedTrainer, etude::DistributedDataParallel, etude::RuntimeCallbacks> {
  NamedTrainer(etude::TrainerOptions options, const std::vector<std::string>& callbacks)
      : TrainerBase(std::move(options)) {
    etude::add_named_callbacks(*this, callbacks);
    etude::add_trackers(*this);
  }

  void on(const etude::TrainBegin& e) {
    if (e.state.global_step > 0 && e.state.is_world_process_zero && e.args.report != etude::ReportMode::quiet)
      etude::print("resumed after step {} of {}\n", e.state.global_step, e.state.max_steps);
  }
};

etude::ExportedModule loaded(const ModelArguments& args, const etude::LoadExportedOptions& how) {
  auto model = etude::load_exported(args.model, how);
  if (!args.weights.empty()) {
    const auto report = etude::load_weights(*model, args.weights);
    if (!report.is_complete()) etude::print(stderr, "etude: {}: {}\n", args.weights, report.text());
  }
  return model;
}

/// The model and its data, as the arguments name them.
class Task {
 public:
  Task(TrainingArguments args, const ModelArguments& model, const DataArguments& data,
       const etude::LoadExportedOptions& how = {})
      : args_(std::move(args)),
        model_args_(model),
        how_(how),
        model_(loaded(model, how)),
        reader_(reader_for(data)) {}

  const TrainingArguments& args() const { return args_; }
  const etude::ExportedModule& model() const { return model_; }
  DatasetReader& reader() { return reader_; }

  /// Sets up a training that begins with a new copy of the model, `anew`.
  etude::TrainerOptions options(const TrainingArguments& args, bool anew = false) const {
    etude::TrainerOptions options{.args = args, .loss = etude::named_loss(model_args_.loss)};
    if (anew)
      options.model_init = [model = model_args_, how = how_] { return etude::Model(loaded(model, how)); };
    else
      options.model = model_;
    options.compute_metrics = etude::named_metrics(model_args_.compute_metrics,
                                                   model_->loss_items() == etude::LossItems::shifted_labels);
    if (!reader_.class_names().empty()) options.processing_class = ClassNames{reader_.class_names()};
    return options;
  }

 private:
  DatasetReader reader_for(const DataArguments& data) {
    std::vector<std::string> labels;
    auto kind = model_args_.loss == etude::LossName::model ? LabelKind::unused
                : etude::takes_numbers(model_args_.loss)   ? LabelKind::numbers
                                                           : LabelKind::classes;
    for (const auto& input : model_->inputs()) {
      if (!input.is_label) continue;
      labels.push_back(input.name);
      if (model_args_.loss == etude::LossName::model)
        kind = at::isFloatingType(input.dtype) ? LabelKind::numbers : LabelKind::classes;
    }
    if (!args_.label_names) args_.label_names = labels.empty() ? std::vector<std::string>{"labels"} : labels;
    return {model_, data, *args_.label_names, kind, saved_class_names(model_args_.weights)};
  }

  TrainingArguments args_;
  ModelArguments model_args_;
  etude::LoadExportedOptions how_;
  etude::ExportedModule model_;
  DatasetReader reader_;
};

/// Throws ArgumentError if nothing computes the loss.
void check_loss(const ModelArguments& args, const etude::ExportedModule& model) {
  etude::check_loss(args.loss, model->input_names(),
                    std::ranges::any_of(model->inputs(), [](const auto& input) { return input.is_label; }));
}

/// Parses a range or a list of choices from `hp_space`.
etude::Distribution distribution_named(const std::string& name, const nlohmann::json& json) {
  if (json.is_array()) return etude::Choices{{json.begin(), json.end()}};
  const auto is_number = [&](const char* key) {
    return json.is_object() && json.contains(key) && json.at(key).is_number();
  };
  if (!is_number("low") || !is_number("high"))
    throw etude::ArgumentError(
        fmt::format("hp_space.{} is {}: must be a list of values, or {{\"low\": NUMBER, \"high\": NUMBER}} "
                    "with \"log\": true or \"step\": NUMBER",
                    name, json.dump()));
  for (const auto& [key, value] : json.items())
    if (key == "log"    ? !value.is_boolean()
        : key == "step" ? !value.is_number()
                        : key != "low" && key != "high")
      throw etude::ArgumentError(
          fmt::format("hp_space.{} has {}: {}: must be low, high, log (true or false) or step (a number)",
                      name, key, value.dump()));
  const bool log = json.value("log", false);
  if (json.at("low").is_number_integer() && json.at("high").is_number_integer())
    return etude::IntRange{.low = json.at("low"),
                           .high = json.at("high"),
                           .log = log,
                           .step = json.value("step", std::int64_t{1})};
  etude::FloatRange range{.low = json.at("low"), .high = json.at("high"), .log = log};
  if (json.contains("step")) range.step = json.at("step").get<double>();
  return range;
}

/// Converts "n_trials=20,pruner=median" to command-line options.
etude::HyperparameterSearchOptions search_options(const TrainFiles& files) {
  std::vector<std::string> words;
  std::istringstream text(files.hyperparameter_search);
  for (std::string word; std::getline(text, word, ',');) {
    word.erase(0, word.find_first_not_of(' '));
    if (word.find('=') == word.npos)
      throw etude::ArgumentError(fmt::format(
          "hyperparameter_search has '{}': must be name=value,name=value, such as n_trials=20", word));
    words.push_back("--" + word);
  }
  auto options = [&] {
    try {
      return etude::parse_arguments<etude::HyperparameterSearchOptions>(words);
    } catch (const etude::ArgumentError& error) {
      throw etude::ArgumentError(fmt::format("hyperparameter_search: {}", error.what()));
    }
  }();
  std::vector<etude::SearchSpace::Entry> space;
  for (const auto& [name, json] : files.hp_space.items()) {
    space.push_back({name, distribution_named(name, json)});
    etude::check_distribution(name, space.back().distribution);
  }
  if (!space.empty()) options.hp_space = std::move(space);
  return options;
}

etude::TrainOptions resume_options(const std::string& from) {
  if (from == "newest") return {.resume_from_checkpoint = etude::if_any};
  if (from == "none") return {};
  return {.resume_from_checkpoint = from};
}

void run_training(const TrainingArguments& given, const ModelArguments& model, const DataArguments& data,
                  const TrainFiles& files) {
  if (given.compiled_graph == etude::CompiledGraphMode::required && !files.run_compiled_code)
    throw etude::ArgumentError(
        "compiled_graph is required: run_compiled_code must be true, which runs native code from the model's "
        "file");
  Task task(given, model, data, {.run_compiled_code = files.run_compiled_code});
  check_loss(model, task.model());
  const auto train_set =
      task.reader().read(files.train_dataset, {files.random_resized_crop, files.random_flip});
  const auto eval_set = task.reader().read_named(files.eval_dataset);
  const auto options = [&](const TrainingArguments& args, bool anew) {
    auto all = task.options(args, anew);
    all.train_dataset = train_set;
    all.eval_dataset = eval_set;
    return all;
  };

  if (!files.hyperparameter_search.empty()) {
    const auto result = etude::hyperparameter_search(
        [&](const TrainingArguments& args) { return NamedTrainer(options(args, true), files.callback); },
        search_options(files), task.args());
    etude::print("{}", result.table());
    for (const auto& best : result.best_runs) etude::print("best: {}\n", best.config.string());
    return;
  }

  NamedTrainer trainer(options(task.args(), false), files.callback);
  const auto trained = trainer.train(resume_options(files.resume_from_checkpoint));
  const auto folder = trainer.args().output_dir;
  trainer.save_model(folder);
  trainer.save_state();
  trainer.save_metrics("train", trained.metrics);
  if (!eval_set.empty()) {
    const auto metrics = trainer.evaluate();
    if (trainer.args().report != etude::ReportMode::quiet) trainer.log_metrics("eval", metrics);
    trainer.save_metrics("eval", metrics);
  }
}

/// Adapts arguments, which may be a training's, to a command that doesn't train.
TrainingArguments without_training(TrainingArguments args) {
  args.eval_strategy = etude::IntervalStrategy::no;
  args.save_strategy = etude::SaveStrategy::no;
  args.load_best_model_at_end = false;
  args.report_to.clear();
  return args;
}

void run_evaluation(const TrainingArguments& given, const ModelArguments& model, const DataArguments& data,
                    const EvaluateFiles& files) {
  Task task(without_training(given), model, data);
  check_loss(model, task.model());
  auto eval_set = task.reader().read_named(files.eval_dataset);
  auto options = task.options(task.args());
  options.eval_dataset = std::move(eval_set);
  NamedTrainer trainer(std::move(options), {});
  auto metrics = trainer.evaluate();
  metrics.erase("epoch");  // it belongs to a training
  if (!trainer.state().is_world_process_zero) return;
  if (files.json) {
    Json json = Json::object();
    for (const auto& [name, value] : metrics) json[name] = etude::to_json_value(value);
    print_json(json);
  } else {
    trainer.log_metrics("eval", metrics);
  }
}

void run_prediction(const TrainingArguments& given, const ModelArguments& model, const DataArguments& data,
                    const PredictFiles& files) {
  Task task(without_training(given), model, data);
  task.reader().allow_missing_labels();
  const auto dataset = task.reader().read(files.dataset);
  NamedTrainer trainer(task.options(task.args()), {});
  const auto predicted = trainer.predict(dataset);
  if (!trainer.state().is_world_process_zero) return;
  std::vector<std::pair<std::string, torch::Tensor>> tensors;
  for (std::size_t i = 0; i < predicted.predictions.size(); ++i) {
    const auto& names = predicted.predictions.names();
    tensors.emplace_back(!names.empty() ? names[i]
                         : i == 0       ? "predictions"
                                        : fmt::format("predictions_{}", i),
                         predicted.predictions[i].contiguous());
  }
  if (fs::path(files.output).extension() == ".npy") {
    if (tensors.size() != 1)
      throw etude::ArgumentError(
          fmt::format("output is '{}': must end in .safetensors, since the model has {} outputs",
                      files.output, tensors.size()));
    etude::save_npy(files.output, tensors.front().second);
  } else {
    for (std::size_t i = 0; i < predicted.label_ids.size(); ++i) {
      const auto& names = predicted.label_ids.names();
      tensors.emplace_back(names.empty() ? "labels" : names[i], predicted.label_ids[i].contiguous());
    }
    etude::save_safetensors(files.output, tensors);
  }
  std::vector<std::string> lines;
  for (const auto& [name, tensor] : tensors)
    lines.push_back(fmt::format("{} {}", name, etude::describe(tensor)));
  etude::print("{}: {}\n", files.output, fmt::join(lines, ", "));
}

/// `main` of a subcommand.
template <class... Parts>
int run(const char* program, const std::vector<std::string>& words, Parts... parts) {
  std::vector<const char*> argv{program};
  for (const auto& word : words) argv.push_back(word.c_str());
  return etude::run(static_cast<int>(argv.size()), argv.data(), std::move(parts)...);
}

}  // namespace

int train(const std::vector<std::string>& words) {
  return run("etude train", words, TrainingArguments(), ModelArguments(), DataArguments(), TrainFiles(),
             run_training);
}

int evaluate(const std::vector<std::string>& words) {
  return run("etude evaluate", words, TrainingArguments(), ModelArguments(), DataArguments(), EvaluateFiles(),
             run_evaluation);
}

int predict(const std::vector<std::string>& words) {
  return run("etude predict", words, TrainingArguments(), ModelArguments(), DataArguments(), PredictFiles(),
             run_prediction);
}

}  // namespace tool
