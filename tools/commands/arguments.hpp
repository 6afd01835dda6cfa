#pragma once

#include <etude/formats/token_windows.hpp>
#include <etude/metrics/named_metrics.hpp>
#include <etude/model/named_loss.hpp>
#include <etude/reflect/struct.hpp>
#include <etude/training_arguments.hpp>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

/// The arguments of the subcommands that train and run models, besides a training's arguments.
namespace tool {

/// The model, its loss and its metrics.
struct ModelArguments {
  ETUDE_STRUCT(
      ModelArguments,
      (std::string, model, "the model: a .pt2 file of etude export, or of Python's torch.export.save"),
      (std::string, weights,
       "begin with these weights: a folder with model.safetensors, such as a checkpoint, or a .safetensors "
       "file",
       ""),
      (etude::LossName, loss,
       "computed from the model's first output and the labels; model: the model computes it itself",
       etude::LossName::model),
      (std::vector<std::string>, compute_metrics, "metrics of evaluations" | any_of(etude::known_metrics),
       {}));
};

/// How files of data are read.
struct DataArguments {
  ETUDE_STRUCT(
      DataArguments,
      (std::vector<std::string>, columns,
       "the fields of a file, or the columns of a table, that are used besides the label; all by default"),
      (std::string, label_column,
       "the column of a CSV file that has the labels; by default the first of label_names, or label", ""),
      (std::string, delimiter, "the character between the columns of a CSV file", ","),
      (std::int64_t, context, "tokens in an example of a .bin file" | at_least(1), 128),
      (std::optional<std::int64_t>, stride,
       "tokens from the start of such an example to the next; unset is context" | at_least(1)),
      (etude::TokenType, token_type, "the numbers in a .bin file", etude::TokenType::uint16),
      (std::optional<std::int64_t>, image_size,
       "height and width of images, for a model that takes any" | at_least(1)),
      (std::vector<double>, image_mean,
       "subtracted from each channel of an image, whose values are between 0 and 1; by default that of the "
       "model's preprocessor_config.json, or 0"),
      (std::vector<double>, image_std,
       "what each channel is divided by then; by default that of the same file, or 1"));
};

/// The other arguments of `etude train`.
struct TrainFiles {
  ETUDE_STRUCT(
      TrainFiles,
      (std::vector<std::string>, train_dataset,
       "files of examples, as one dataset: .safetensors, .npy, .bin (tokens), .txt (bytes as tokens), .csv, "
       "or "
       "folders of images by class"),
      (std::vector<std::string>, eval_dataset, "the same for evaluations; NAME=PATH for several by name", {}),
      (bool, random_resized_crop, "train on a random part of each image", false),
      (bool, random_flip, "mirror half of the images of the training", false),
      (std::vector<std::string>, callback,
       "a callback by its name, with options as NAME:option=value,option=value", {}),
      (bool, run_compiled_code,
       "let compiled_graph use the compiled graphs of the model's file, which are native code: only for a "
       "file that you trust",
       false),
      (std::string, resume_from_checkpoint,
       "newest: the newest checkpoint in output_dir, if there is one; none: begin anew; or the folder of a "
       "checkpoint",
       "newest"),
      (std::string, hyperparameter_search,
       "search hyperparameters instead of one training: n_trials=20,sampler=tpe,pruner=median,n_jobs=2, ...",
       ""),
      (nlohmann::json, hp_space,
       "what is searched, as JSON: {\"learning_rate\": {\"low\": 1e-5, \"high\": 1e-2, \"log\": true}, "
       "\"optim\": [\"sgd\", \"adamw_torch\"]}",
       etude::detail::no_options()));
};

/// The other arguments of `etude evaluate`.
struct EvaluateFiles {
  ETUDE_STRUCT(EvaluateFiles,
               (std::vector<std::string>, eval_dataset,
                "files of examples, as one dataset, or NAME=PATH for several by name"),
               (bool, json, "print the metrics as JSON", false));
};

/// The other arguments of `etude predict`.
struct PredictFiles {
  ETUDE_STRUCT(PredictFiles, (std::vector<std::string>, dataset, "files of examples, as one dataset"),
               (std::string, output, "the file of outputs to write, .safetensors or .npy",
                "predictions.safetensors"));
};

/// The mistakes in these arguments, which the command line reports together with its own.
std::vector<std::string> faults(const ModelArguments& args);
std::vector<std::string> faults(const TrainFiles& files);
std::vector<std::string> faults(const EvaluateFiles& files);
std::vector<std::string> faults(const PredictFiles& files);

}  // namespace tool
