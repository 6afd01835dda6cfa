#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "etude/events.hpp"
#include "etude/reflect/struct.hpp"

namespace etude {

/// One layer of a model.
struct LayerSummary {
  std::string name;    ///< in the model; empty for the model itself
  std::string type;    ///< its class, without namespaces
  std::string shapes;  ///< of its own parameters: "weight [8, 3], bias [8]"
  std::int64_t parameters = 0;
  std::int64_t trainable = 0;
};

/// What a model consists of.
struct ModelSummary {
  std::vector<LayerSummary> layers;
  std::int64_t parameters = 0;  ///< A tensor that stands at several places counts once.
  std::int64_t trainable = 0;
  std::int64_t parameter_bytes = 0;
  std::int64_t buffer_bytes = 0;

  /// A table of the layers, and the totals below it.
  std::string table() const;
};

/// The layers that have parameters, and those without layers of their own. Those that lie deeper than
/// `max_depth` (1: the children of the model; below 0: all) count with the layer that they lie in.
ModelSummary summary(const Model& model, std::int64_t max_depth = -1);

/// Prints a table of the model's layers, with their classes, shapes and numbers of parameters, when
/// training begins: Lightning's ModelSummary, whose default depth this is, with shapes. Speaks in the first
/// process only.
struct ModelSummaryCallback {
  using this_callback = ModelSummaryCallback;
  ETUDE_STRUCT(ModelSummaryCallback,
               (std::int64_t, max_depth, "how deep to look: 1 is the model's children, -1 everything", 1));
  std::function<void(std::string_view)> print = {};  ///< takes the table instead of standard output

  void on(const TrainBegin& e);
};

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/callbacks/impl/model_summary.ipp"
#endif
