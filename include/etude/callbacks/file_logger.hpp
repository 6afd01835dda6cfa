#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "etude/events.hpp"
#include "etude/reflect/struct.hpp"

namespace etude {

/// Writes every log to a CSV file, a row each and a column for each name, quoted as in RFC 4180:
/// Lightning's CSVLogger, whose file name it has, and that of Keras, whose `append` it has. Keras' drops
/// what it didn't meet in its first row; here a name that is new gets its column, and the file is written
/// anew, at once, so that nobody sees half of it. A row stands on the disk before training goes on, and
/// nothing of it is kept in memory.
///
/// A training that begins makes the file anew, or goes on behind what is there with `append`. One that is
/// resumed first brings the file to what `state.log_history` has, so that steps which are done again aren't
/// in it twice, and a file that was lost is there again. Evaluations outside of training add their rows,
/// too. The first column is `step`; NaN and infinities are `nan`, `inf` and `-inf`. Speaks in the first
/// process only.
///
/// Throws ArgumentError at TrainBegin where the file can't be written.
struct CSVLoggerCallback {
  using this_callback = CSVLoggerCallback;
  ETUDE_STRUCT(CSVLoggerCallback, (std::string, path, "the file, from output_dir on", "metrics.csv"),
               (bool, append, "keep the rows of the trainings before", false),
               (std::int64_t, rows_before, "rows of the file that are of trainings before", 0));

  void on(const TrainBegin& e);
  void on(const Log& e);

  std::vector<std::string> columns = {};  ///< of the file, as far as it is known
};

/// Writes every log to a file of JSON lines, an object each: `{"step":10,"loss":0.5,"epoch":1.0}`. A line
/// stands on the disk before training goes on. NaN and infinities, which JSON doesn't have, are the texts
/// "NaN", "Infinity" and "-Infinity", as in `trainer_state.json`.
///
/// A training that begins makes the file anew, or goes on behind what is there with `append`. One that is
/// resumed first brings the file to what `state.log_history` has, so that steps which are done again aren't
/// in it twice, and a file that was lost is there again. Evaluations outside of training add their lines,
/// too. Speaks in the first process only.
///
/// Throws ArgumentError at TrainBegin where the file can't be written.
struct JSONLinesLoggerCallback {
  using this_callback = JSONLinesLoggerCallback;
  ETUDE_STRUCT(JSONLinesLoggerCallback, (std::string, path, "the file, from output_dir on", "metrics.jsonl"),
               (bool, append, "keep the lines of the trainings before", false),
               (std::int64_t, lines_before, "lines of the file that are of trainings before", 0));

  void on(const TrainBegin& e);
  void on(const Log& e);
};

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/callbacks/impl/file_logger.ipp"
#endif
