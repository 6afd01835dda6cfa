#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace etude::inline v0::detail {

/// kWh per joule, rounded as CodeCarbon rounds it.
inline constexpr double kwh_per_joule = 2.77778e-7;

/// The energy counters of Intel's and AMD's processors: RAPL, as Linux exposes it under /sys/class/powercap.
/// Counts each package once, even if two interfaces show it, or else the whole platform (psys) if there are
/// no packages or on request. On request, also counts memory domains outside the packages. Domains within a
/// package are never counted separately.
class Rapl {
 public:
  struct Options {
    bool include_dram = false, prefer_psys = false;
  };

  Rapl(const std::filesystem::path& directory, Options options);

  /// Whether there is something to count, and all of it can be read.
  explicit operator bool() const { return !domains_.empty() && fault_.empty(); }
  /// The counter that can't be read; empty if there are no counters at all.
  const std::string& fault() const { return fault_; }
  /// The names of the counted domains.
  std::vector<std::string> names() const;

  /// The kWh since the previous call or construction; nullopt if a counter can't be read now or couldn't be
  /// read then. A counter wraps around to 0 at its maximum.
  std::optional<double> take_kwh();

 private:
  struct Domain {
    std::string name;
    std::filesystem::path folder;
    bool is_mmio = false, is_dram = false;
    std::int64_t range = 0;                   // where it wraps around
    std::optional<std::int64_t> last = {};    // in microjoules
    std::optional<std::size_t> mirrors = {};  // the domain that it seems to duplicate
    bool is_settled = false;                  // whether that is certain
  };

  void find(const std::filesystem::path& directory, Options options);
  void settle_mirrors(const std::vector<std::optional<std::int64_t>>& deltas);

  std::vector<Domain> domains_;
  std::string fault_;
};

}  // namespace etude::inline v0::detail
