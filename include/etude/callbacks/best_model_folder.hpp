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

/// A folder with the weights of the best model so far, in the form of a pretrained model, the processing
/// class's files, and `best_model.json`; replaced as a whole, so that they always match.
class BestModelFolder {
 public:
  explicit BestModelFolder(const std::filesystem::path& folder);

  const std::filesystem::path& path() const { return path_; }

  /// Throws ArgumentError, beginning with the folder's `option`, if it contains anything else.
  void check(const std::string& option) const;

  /// Throws CheckpointError; the previous contents then stay.
  void write(const Context& e, const std::vector<NamedTensor>& state, const BestModelInfo& info) const;

  /// Unset if missing or unreadable.
  std::optional<BestModelInfo> info() const;

  /// Throws CheckpointError.
  std::vector<NamedTensor> weights() const;

 private:
  std::filesystem::path path_;
};

}  // namespace etude::inline v0
