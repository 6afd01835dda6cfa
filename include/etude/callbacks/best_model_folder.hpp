#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "etude/events.hpp"
#include "etude/model/model.hpp"
#include "etude/reflect/struct.hpp"

namespace etude {

/// What `best_model.json`, beside the weights of a best model, says of them.
struct BestModelFacts {
  ETUDE_STRUCT(BestModelFacts, (std::string, metric, "by which it is the best"),
               (std::optional<double>, value, "of that metric; unset where nothing was compared"),
               (std::int64_t, global_step, "update steps done"), (double, epoch, "epochs done"));

  friend bool operator==(const BestModelFacts&, const BestModelFacts&) = default;
};

/// A folder with the weights of the best model so far, in the form of a pretrained model, what the processing
/// class adds, and `best_model.json`; replaced as a whole, so that they always belong together.
class BestModelFolder {
 public:
  explicit BestModelFolder(const std::filesystem::path& folder);

  const std::filesystem::path& path() const { return path_; }

  /// Throws ArgumentError, beginning with the `option` that names the folder, where there is something else.
  void check(const std::string& option) const;

  /// Throws CheckpointError; what was there is then still there.
  void write(const Context& e, const std::vector<NamedTensor>& state, const BestModelFacts& facts) const;

  /// Nothing where there is none, or one that can't be read.
  std::optional<BestModelFacts> facts() const;

  /// Throws CheckpointError.
  std::vector<NamedTensor> weights() const;

 private:
  std::filesystem::path path_;
};

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/callbacks/impl/best_model_folder.ipp"
#endif
