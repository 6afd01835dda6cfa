#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace etude::detail {

/// CodeCarbon's kWh in a joule, rounded as it rounds it.
inline constexpr double kwh_per_joule = 2.77778e-7;

/// The energy counters of Intel's and AMD's processors: RAPL, as Linux shows it under /sys/class/powercap.
/// Counted are the packages, once each where two interfaces show the same one; the whole platform (psys) if
/// there are no packages, or if asked for; memory domains beside the packages if asked for. What lies within
/// a package is never counted again.
class Rapl {
 public:
  struct Options {
    bool include_dram = false, prefer_psys = false;
  };

  Rapl(const std::filesystem::path& directory, Options options);

  /// Whether there is something to count, and all of it can be read.
  explicit operator bool() const { return !domains_.empty() && fault_.empty(); }
  /// What can't be read; empty where there are no counters at all.
  const std::string& fault() const { return fault_; }
  /// The names of what is counted.
  std::vector<std::string> names() const;

  /// The kWh since it was last called, or since construction; none if one of the counters can't be read now
  /// or couldn't then. A counter that has come to its end begins anew at 0.
  std::optional<double> take_kwh();

 private:
  struct Domain {
    std::string name;
    std::filesystem::path folder;
    bool is_mmio = false, is_dram = false;
    std::int64_t range = 0;                   // where it begins anew
    std::optional<std::int64_t> last = {};    // in microjoules
    std::optional<std::size_t> mirrors = {};  // the domain that it seems to be once more
    bool is_settled = false;                  // whether it is that, for sure
  };

  void find(const std::filesystem::path& directory, Options options);
  void settle_mirrors(const std::vector<std::optional<std::int64_t>>& deltas);

  std::vector<Domain> domains_;
  std::string fault_;
};

}  // namespace etude::detail

#ifndef ETUDE_COMPILED
#include "etude/integrations/codecarbon/impl/rapl.ipp"
#endif
