#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace etude::detail {

/// GPUs that can be asked what they use.
class Gpus {
 public:
  Gpus() = default;
  Gpus(const Gpus&) = delete;
  Gpus& operator=(const Gpus&) = delete;
  virtual ~Gpus() = default;

  virtual std::size_t count() const = 0;
  virtual std::string name(std::size_t gpu) const = 0;
  virtual std::string uuid(std::size_t gpu) const = 0;
  virtual std::optional<double> joules(std::size_t gpu) const = 0;       ///< Since the driver was loaded.
  virtual std::optional<double> watts(std::size_t gpu) const = 0;        ///< Now.
  virtual std::optional<double> utilization(std::size_t gpu) const = 0;  ///< In per cent.
};

/// NVIDIA's, by the driver's library (libnvidia-ml.so.1); null where there is none, or no GPU.
std::unique_ptr<Gpus> open_nvml();

/// What chosen GPUs use: by their counters of energy, or by the mean of their power where they have none or
/// it can't be read.
class GpuMeter {
 public:
  /// `ids` are numbers, or beginnings of UUIDs, with commas between them; all of them where nothing is given.
  GpuMeter(std::unique_ptr<Gpus> gpus, const std::optional<std::string>& ids);

  bool empty() const { return chosen_.empty(); }
  std::size_t count() const { return chosen_.size(); }
  /// How many of each kind: "2 x NVIDIA A100".
  std::string model() const;

  /// To be called about once a second: looks at the power of those whose energy isn't counted.
  void sample();
  /// The kWh since it was last called, `seconds` ago.
  double take_kwh(double seconds);
  /// The mean of theirs in per cent, 0 if nobody says.
  double utilization() const;

  /// What has gone wrong since this was last asked, in words, each thing once.
  std::vector<std::string> take_faults();

 private:
  struct Chosen {
    std::size_t index = 0;
    std::optional<double> last = {};  // joules
    // What was counted by power since the counter was last read, and so has been counted when it comes back.
    double ahead = 0;
    bool by_power = false, told = false;
    double power_sum = 0, power_count = 0;
  };

  double take_by_power(Chosen& gpu, double seconds);
  double take_one(Chosen& gpu, double seconds);

  std::unique_ptr<Gpus> gpus_;
  std::vector<Chosen> chosen_;
  std::vector<std::string> faults_;
};

}  // namespace etude::detail

#ifndef ETUDE_COMPILED
#include "etude/integrations/codecarbon/impl/gpus.ipp"
#endif
