#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/integrations/shared/append_file.hpp"
#include "etude/model/model.hpp"

namespace etude {

/// How a training ended, for TensorBoard's HPARAMS page.
enum class SessionStatus { unknown = 0, success = 1, failure = 2, running = 3 };

/// Writes an event file for TensorBoard, as PyTorch's `torch.utils.tensorboard.SummaryWriter` does, without a
/// callback or a training. What was added is in the file when the call returns, whole, also when the process
/// is killed then; what can't be written, because the disk is full, is lost and counted.
///
///     etude::SummaryWriter writer("runs/mine");
///     writer.add_scalar("accuracy", 0.5, step);
class SummaryWriter {
 public:
  /// Makes the folder, and a new file in it. Throws ArgumentError where it can't.
  explicit SummaryWriter(const std::filesystem::path& log_dir);

  /// Numbers are floats in these files.
  void add_scalar(std::string_view tag, double value, std::int64_t global_step = 0);
  /// The same of several, all of them or none.
  void add_scalars(const std::vector<std::pair<std::string, double>>& values, std::int64_t global_step = 0);
  /// The text is shown as Markdown.
  void add_text(std::string_view tag, std::string_view text, std::int64_t global_step = 0);
  /// How the numbers of a tensor are distributed. Those that aren't finite are left out, and it returns how
  /// many they are; of a tensor without any other nothing is written.
  std::int64_t add_histogram(std::string_view tag, const at::Tensor& values, std::int64_t global_step = 0);
  /// The operations of a TorchScript model, or the layers of another one.
  void add_graph(const Model& model);

  /// What a training is made of, and when it began in Unix seconds, for the page that compares it with
  /// others by the last values of the scalars in this folder; so it wants a folder of its own. Numbers, bools
  /// and texts; null is left out, and what is nested becomes a text.
  void add_hparams(const std::vector<std::pair<std::string, nlohmann::ordered_json>>& hparams,
                   double started);
  /// That it has ended.
  void add_session_end(SessionStatus status);

  /// Hides what earlier files of the folder have of this step and later ones.
  void add_session_start(std::int64_t global_step);
  /// Adds a record of another event file as it is.
  void add_record(std::string_view record);

  /// Waits until everything is on the disk.
  void flush() { file_.sync(); }

  const std::filesystem::path& log_dir() const { return log_dir_; }
  const std::filesystem::path& path() const { return path_; }  ///< The file.
  std::int64_t written() const { return file_.written(); }     ///< Events, the file's first one included.
  std::int64_t lost() const { return file_.lost(); }           ///< Events.
  int error() const { return file_.error(); }                  ///< Why the last of them was lost, as errno.
  double last_time() const { return last_time_; }              ///< Of the last event, in Unix seconds.

 private:
  template <class Fill>
  void add_event(std::int64_t global_step, Fill fill);

  std::filesystem::path log_dir_, path_;
  detail::AppendFile file_;
  double last_time_ = 0;
};

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/integrations/tensorboard/impl/summary_writer.ipp"
#endif
