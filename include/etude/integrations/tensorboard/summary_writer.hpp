#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/integrations/shared/append_file.hpp"
#include "etude/metrics/sample.hpp"
#include "etude/model/model.hpp"

namespace etude::inline v0 {

/// How a training ended, for TensorBoard's HPARAMS page.
enum class SessionStatus { unknown = 0, success = 1, failure = 2, running = 3 };

/// Writes an event file for TensorBoard, as PyTorch's `torch.utils.tensorboard.SummaryWriter` does, without a
/// callback or a training. Each call writes a complete event to the file before it returns, so a killed
/// process loses nothing; events that can't be written, for example because the disk is full, are lost and
/// counted.
///
///     etude::SummaryWriter writer("runs/mine");
///     writer.add_scalar("accuracy", 0.5, step);
class SummaryWriter {
 public:
  /// Creates the folder, and a new file in it. Throws ArgumentError on failure.
  explicit SummaryWriter(const std::filesystem::path& log_dir);

  /// Adds a scalar. Event files store values as floats.
  void add_scalar(std::string_view tag, double value, std::int64_t global_step = 0);
  /// Writes several scalars at once, either all or none.
  void add_scalars(const std::vector<std::pair<std::string, double>>& values, std::int64_t global_step = 0);
  /// Adds a text, which is shown as Markdown.
  void add_text(std::string_view tag, std::string_view text, std::int64_t global_step = 0);
  /// Adds the distribution of a tensor's finite numbers. Returns how many weren't finite; writes nothing if
  /// none is finite.
  std::int64_t add_histogram(std::string_view tag, const at::Tensor& values, std::int64_t global_step = 0);
  /// Adds a text, a picture (PNG) or a sound (WAV) of metrics/sample.hpp under `tag`; a caption becomes a
  /// text under the same tag. Throws DataError for a sound that is too long.
  void add_sample(std::string_view tag, const Sample& sample, std::int64_t global_step = 0);
  /// Adds the operations of a TorchScript model, or the layers of any other.
  void add_graph(const Model& model);

  /// Adds a training's hyperparameters and start time in Unix seconds, for the page that compares trainings
  /// by the last scalars in their folders, so each training needs a separate folder. Values are numbers,
  /// bools and texts; null is left out, and nested values become text.
  void add_hparams(const std::vector<std::pair<std::string, nlohmann::ordered_json>>& hparams,
                   double started);
  /// Records that the session has ended.
  void add_session_end(SessionStatus status);

  /// Hides events of earlier files in the folder from this step on.
  void add_session_start(std::int64_t global_step);
  /// Copies a record of another event file unchanged.
  void add_record(std::string_view record);

  /// Waits until everything is on the disk.
  void flush() { file_.sync(); }

  const std::filesystem::path& log_dir() const { return log_dir_; }
  const std::filesystem::path& path() const { return path_; }  ///< The file.
  std::int64_t written() const { return file_.written(); }     ///< Events, including the file's first one.
  std::int64_t lost() const { return file_.lost(); }           ///< Events.
  int error() const { return file_.error(); }                  ///< The errno of the last loss.
  double last_time() const { return last_time_; }              ///< The last event's time, in Unix seconds.

 private:
  template <class Fill>
  void add_event(std::int64_t global_step, Fill fill);
  template <class Fill>
  void add_value(const std::string& tag, std::int64_t global_step, Fill fill);

  std::filesystem::path log_dir_, path_;
  detail::AppendFile file_;
  double last_time_ = 0;
};

}  // namespace etude::inline v0
