#include "etude/data/parallel_streams.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/data/tensors.hpp"

namespace etude::inline v0 {
namespace detail {

namespace {

/// Example i is window i / streams of stream i % streams.
class ParallelStreams final : public DatasetSource {
 public:
  ParallelStreams(std::shared_ptr<DatasetSource> windows, std::int64_t streams)
      : windows_(std::move(windows)), streams_(streams) {}

  std::optional<std::int64_t> size() const override { return windows_per_stream() * streams_; }
  std::optional<std::int64_t> streams() const override { return streams_; }
  bool is_indexed() const override { return true; }
  bool makes_examples() const override { return windows_->makes_examples(); }
  std::shared_ptr<DatasetSource> copy() const override {
    return std::make_shared<ParallelStreams>(windows_->copy(), streams_);
  }
  std::string fingerprint() const override { return windows_->fingerprint(); }

  Batch fetch(std::span<const std::int64_t> indices, const DataCollator& collator,
              std::uint64_t seed) override {
    std::vector<std::int64_t> windows;
    for (const auto i : indices) windows.push_back(i % streams_ * windows_per_stream() + i / streams_);
    return windows_->fetch(windows, collator, seed);
  }

 private:
  std::int64_t windows_per_stream() const { return *windows_->size() / streams_; }

  std::shared_ptr<DatasetSource> windows_;
  std::int64_t streams_;
};

}  // namespace

/// The windows of each row of `streams`, one row after another.
struct TokenWindows {
  torch::Tensor streams;  // [streams, tokens]
  std::int64_t window;

  std::int64_t per_stream() const { return (streams.size(1) - 2) / window + 1; }
  std::int64_t size() const { return streams.size(0) * per_stream(); }
  std::pair<torch::Tensor, torch::Tensor> get(std::int64_t i) const {
    const auto stream = streams[i / per_stream()];
    const auto first = i % per_stream() * window;
    const auto length = std::min(window, stream.size(0) - 1 - first);
    return {stream.narrow(0, first, length), stream.narrow(0, first + 1, length)};
  }
};

}  // namespace detail

Dataset parallel_streams(Dataset windows, std::int64_t streams) {
  if (streams < 1) throw ArgumentError(fmt::format("streams is {}: must be at least 1", streams));
  if (!windows || !windows.is_indexed() || !windows.size())
    throw DataError("parallel_streams needs a dataset with an index and a size");
  if (*windows.size() < streams)
    throw DataError(fmt::format("there are {} windows: must be at least {}, one for each stream",
                                *windows.size(), streams));
  windows.source_ = std::make_shared<detail::ParallelStreams>(std::move(windows.source_), streams);
  return windows;
}

Dataset token_streams(const torch::Tensor& tokens, std::int64_t streams, std::int64_t window) {
  if (streams < 1) throw ArgumentError(fmt::format("streams is {}: must be at least 1", streams));
  if (window < 1) throw ArgumentError(fmt::format("window is {}: must be at least 1", window));
  if (!tokens.defined() || tokens.dim() != 1)
    throw DataError(fmt::format("tokens are {}: must have one dimension",
                                tokens.defined() ? describe(tokens) : "undefined"));
  const auto length = tokens.size(0) / streams;
  if (length < 2)
    throw DataError(fmt::format("there are {} tokens for {} streams: must be at least 2 for each",
                                tokens.size(0), streams));
  return parallel_streams(
      detail::TokenWindows{tokens.narrow(0, 0, streams * length).reshape({streams, length}), window},
      streams);
}

}  // namespace etude::inline v0
