#pragma once

#ifndef ETUDE_PICTURES
#error "etude/callbacks/samples_to_folder.hpp needs a library: link etude::png"
#endif

#include <string>

#include "etude/callbacks/log_file.hpp"
#include "etude/events.hpp"
#include "etude/io/file_system.hpp"
#include "etude/metrics/sample_file.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

/// Writes the samples that are logged (`log_text`, `log_image`, `log_audio`, EvaluationSamplesCallback) to
/// files, for training without a tracker: texts as `.txt`, images as `.png`, audio as `.wav`, in
/// `output_dir/samples/step-STEP/NAME.png`. A caption is written next to its file, as `NAME.caption.txt`.
/// Each file is written atomically, and replaces an earlier one with the same step and name. Writes in the
/// first process only.
///
/// Needs libpng and the CMake target `etude::png`; etude.hpp doesn't include it. Throws CheckpointError if a
/// file can't be written.
struct SamplesToFolderCallback {
  ETUDE_STRUCT(SamplesToFolderCallback,
               (std::string, folder, "the folder, relative to output_dir", "samples"));

  void on(const LogSamples& e);
};

}  // namespace etude::inline v0
