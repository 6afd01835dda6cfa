#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "etude/events.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

/// One layer of a model.
struct LayerSummary {
  std::string name;    ///< in the model; empty for the model itself
  std::string type;    ///< its class, without namespaces
  std::string shapes;  ///< of its direct parameters: "weight [8, 3], bias [8]"
  std::int64_t parameters = 0;
  std::int64_t trainable = 0;
};

/// The layers of a model and their totals.
struct ModelSummary {
  std::vector<LayerSummary> layers;
  std::int64_t parameters = 0;  ///< A tensor with several names counts once.
  std::int64_t trainable = 0;
  std::int64_t parameter_bytes = 0;
  std::int64_t buffer_bytes = 0;

  /// A table of the layers, with the totals below.
  std::string table() const;
};

/// Lists the layers that have parameters or no children. Layers deeper than `max_depth` are counted in the
/// layer that contains them; 1 lists the model's children, and a negative `max_depth` all layers.
ModelSummary summary(const Model& model, std::int64_t max_depth = -1);

/// Prints a table of the model's layers, with their classes, shapes and numbers of parameters, when training
/// begins. Follows Lightning's ModelSummary, with the same default depth, and adds shapes. Prints in the
/// first process only. With `memory`, it also estimates the training's memory with `estimate_memory`, which
/// runs a few steps and undoes them, and works in one process only.
struct ModelSummaryCallback {
  ETUDE_STRUCT(ModelSummaryCallback,
               (std::int64_t, max_depth,
                "depth of the listed layers: 1 is the model's children, -1 everything", 1),
               (bool, memory, "estimates the memory of the training, by a dry run", false));
  std::function<void(std::string_view)> print = {};  ///< receives the table instead of standard output

  void on(const TrainBegin& e);
};

}  // namespace etude::inline v0
