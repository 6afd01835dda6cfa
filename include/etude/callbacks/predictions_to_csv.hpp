#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "etude/events.hpp"
#include "etude/io/file_system.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

/// Writes the predictions and targets of evaluations and predictions to CSV files, with one row per example,
/// in the order of the dataset, including the examples of other processes. Lightning's BasePredictionWriter
/// and torchtnt's BaseCSVWriter leave this to their users. With one process, rows are written batch by batch
/// and not kept in memory; with several, each process keeps its rows until the end, when the first process
/// writes them all. The file appears only when the evaluation is complete; until then, or if something
/// throws, the previous file stays.
///
/// The columns are `prediction` and `target`, or `prediction_0`, `prediction_1`, ... if an example has
/// several numbers; with several tensors, the tensor's name or index comes in between
/// (`prediction_logits_0`). With `predicted_class`, `prediction` is the index of the largest number. Without
/// labels there are no targets. Each batch is copied to the CPU, which waits for the device.
///
/// Throws DataError if the examples of a later batch have different shapes, and CheckpointError if the file
/// can't be written.
struct PredictionsToCSVCallback {
  ETUDE_STRUCT(
      PredictionsToCSVCallback,
      (std::string, path,
       "the file, relative to output_dir; {prefix} is eval, test or the like, {step} the update steps done",
       "{prefix}_predictions.csv"),
      (bool, predicted_class, "write the index of the largest output instead of all", false));

  void on(const EvaluateBegin& e) { begin(e, e.metric_key_prefix); }
  void on(const PredictBegin& e) { begin(e, e.metric_key_prefix); }
  void on(const PredictionStep& e);
  void on(const Evaluate& e) { finish(e); }
  void on(const Predict& e) { finish(e); }
  void on(const EvaluateEnd& e) { end(e); }
  void on(const PredictEnd& e) { end(e); }

  std::filesystem::path file = {};               ///< the file being written
  std::filesystem::path partial = {};            ///< its temporary name
  std::unique_ptr<OutputFile> output = nullptr;  ///< null between evaluations
  std::vector<std::string> columns = {};         ///< the file's columns, once it has rows
  std::vector<std::string> batches = {};         ///< the rows of each batch, with several processes
  bool is_part = false;                          ///< True if this process evaluates only a part of the data.
  bool is_divided = false;                       ///< True if the program divided the data, not the loader.
  bool is_whole = false;                         ///< True once the evaluation has reached its metrics.

 private:
  void begin(const Context& e, std::string_view prefix);
  void write_header();
  void finish(const Context& e);
  void write_parts(const std::vector<std::string>& all);
  void end(const Context& e);
};

}  // namespace etude::inline v0
