#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "etude/io/file_system.hpp"

namespace etude::inline v0 {

/// Collects slices of time in memory, and writes them to a file in Chrome's trace format. Names must outlive
/// this.
class ActivityTrace {
 public:
  using Clock = std::chrono::steady_clock;

  /// The maximum number of slices, about 100 MB of text; later ones are left out.
  static constexpr std::size_t most_slices = 1'000'000;

  explicit ActivityTrace(std::size_t most = most_slices) : most_(most) {}

  /// A negative `number` means that there is none.
  void add(std::string_view name, std::string_view category, std::int64_t number, Clock::time_point begin);

  /// The number of slices beyond the limit.
  std::int64_t left_out() const { return left_out_; }

  /// Writes the file atomically. Throws CheckpointError if it can't be written.
  void save(FileSystem& files, const std::filesystem::path& path, std::int64_t rank) const;

 private:
  struct Slice {
    std::string_view name, category;
    std::int64_t number;
    Clock::time_point begin, end;
  };

  std::size_t most_;
  std::int64_t left_out_ = 0;
  Clock::time_point start_ = Clock::now();
  std::vector<Slice> slices_;
};

}  // namespace etude::inline v0
