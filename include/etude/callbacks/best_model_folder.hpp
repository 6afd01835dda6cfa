#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "etude/events.hpp"
#include "etude/model/model.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

/// The contents of `best_model.json`, next to the weights of a best model.
struct BestModelInfo {
  ETUDE_STRUCT(BestModelInfo, (std::string, metric, "the metric for which it is the best"),
               (std::optional<double>, value, "of that metric; unset if nothing was compared"),
               (std::int64_t, global_step, "update steps done"), (double, epoch, "epochs done"));

  friend bool operator==(const BestModelInfo&, const BestModelInfo&) = default;
};

/// A folder with the best model so far, saved like a pretrained model, together with the processing class's
/// files and `best_model.json`. It is replaced as a whole, so its files always match.
class BestModelFolder {
 public:
  explicit BestModelFolder(const std::filesystem::path& folder);

  const std::filesystem::path& path() const { return path_; }

  /// Throws ArgumentError if the folder contains anything else; the message begins with `option`, the name of
  /// the folder's option.
  void check(const std::string& option) const;

  /// Throws CheckpointError if writing fails, and keeps the previous contents.
  void write(const Context& e, const std::vector<NamedTensor>& state, const BestModelInfo& info) const;

  /// Unset if missing or unreadable.
  std::optional<BestModelInfo> info() const;

  /// Throws CheckpointError.
  std::vector<NamedTensor> weights() const;

 private:
  std::filesystem::path path_;
};

}  // namespace etude::inline v0
