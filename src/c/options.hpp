#pragma once

#include <etude.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dataset.hpp"
#include "etude/metrics/named_metrics.hpp"
#include "etude/model/named_loss.hpp"
#include "etude/reflect/struct.hpp"
#include "etude/training_arguments.hpp"

namespace etude::inline v0::c {

/// The options of a trainer besides a training's arguments, named as those of `etude train`.
struct ModelOptions {
  ETUDE_STRUCT(ModelOptions,
               (std::string, weights,
                "begin with these weights: a folder with model.safetensors, or a .safetensors file", ""),
               (LossName, loss,
                "computed from the model's first output and the labels; model: the model computes it itself",
                LossName::model),
               (std::vector<std::string>, compute_metrics, "metrics of evaluations" | any_of(known_metrics),
                {}),
               (std::vector<std::string>, callback,
                "callbacks by name, with options as NAME:option=value,option=value", {}),
               (bool, run_compiled_code,
                "let compiled_graph use the compiled graphs of the model's file, which are native code",
                false));
};

/// The program's own optimizer.
struct ProgramStep {
  etude_optimizer step = nullptr;
  void* user = nullptr;
};

/// Everything that a trainer is made from, besides the model's file.
struct Options {
  TrainingArguments args;
  ModelOptions model;
  std::shared_ptr<const ProgramTensors> train_dataset;
  std::vector<std::pair<std::string, std::shared_ptr<const ProgramTensors>>> eval_datasets;
  std::vector<std::pair<std::string, std::shared_ptr<const ProgramTensors>>> states;  // one tensor each
  ProgramStep optimizer;

  /// Sets an option from its text on a command line. Throws ArgumentError.
  void set(const std::string& name, const std::string& text);
  /// Sets the options of a JSON object. Throws ArgumentError, and then changes nothing.
  void set_json(const std::string& json);
};

}  // namespace etude::inline v0::c

struct etude_options {
  etude::c::Options content;
};
