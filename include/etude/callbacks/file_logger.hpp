#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "etude/events.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

/// Writes every log to a CSV file, with a row for each log and a column for each name, quoted as in RFC 4180.
/// The file has the name that Lightning's CSVLogger uses, and `append` works as in Keras' CSVLogger. Keras
/// drops names that are missing in the first row; here a new name adds a column, and the file is replaced
/// atomically. Each row is written to disk before training continues, and isn't kept in memory.
///
/// A new training creates the file, or appends to it with `append`. A resumed one first restores the file
/// from `state.log_history`, so that repeated steps don't appear twice, and a lost file is created again.
/// Evaluations outside of training also add rows. The first column is `step`; NaN and infinities are `nan`,
/// `inf` and `-inf`. Writes in the first process only.
///
/// Throws ArgumentError at TrainBegin if the file can't be written.
struct CSVLoggerCallback {
  ETUDE_STRUCT(CSVLoggerCallback, (std::string, path, "the file, relative to output_dir", "metrics.csv"),
               (bool, append, "keep the rows of earlier trainings", false));

  struct State {
    ETUDE_STRUCT(State, (std::int64_t, rows_before, "rows of earlier trainings in the file", 0));
  };
  State state = {};

  void on(const TrainBegin& e);
  void on(const Log& e);

  std::vector<std::string> columns = {};  ///< the file's columns, as far as known
};

/// Writes every log to a file of JSON lines, with an object for each log:
/// `{"step":10,"loss":0.5,"epoch":1.0}`. Each line is written to disk before training continues. NaN and
/// infinities, which JSON lacks, are the strings "NaN", "Infinity" and "-Infinity", as in
/// `trainer_state.json`.
///
/// A new training creates the file, or appends to it with `append`. A resumed one first restores the file
/// from `state.log_history`, so that repeated steps don't appear twice, and a lost file is created again.
/// Evaluations outside of training also add lines. Writes in the first process only.
///
/// Throws ArgumentError at TrainBegin if the file can't be written.
struct JSONLinesLoggerCallback {
  ETUDE_STRUCT(JSONLinesLoggerCallback,
               (std::string, path, "the file, relative to output_dir", "metrics.jsonl"),
               (bool, append, "keep the lines of earlier trainings", false));

  struct State {
    ETUDE_STRUCT(State, (std::int64_t, lines_before, "lines of earlier trainings in the file", 0));
  };
  State state = {};

  void on(const TrainBegin& e);
  void on(const Log& e);
};

}  // namespace etude::inline v0
