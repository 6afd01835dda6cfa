#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace etude::inline v0::detail {

/// GPUs whose energy use can be queried.
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
  virtual std::optional<double> watts(std::size_t gpu) const = 0;        ///< The current power.
  virtual std::optional<double> utilization(std::size_t gpu) const = 0;  ///< In percent.
};

/// NVIDIA's GPUs, through the driver's library (libnvidia-ml.so.1); null without the library or a GPU.
std::unique_ptr<Gpus> open_nvml();

/// Measures the energy of selected GPUs: from their energy counters, or from their mean power if there is no
/// counter or it can't be read.
class GpuMeter {
 public:
  /// `ids` are comma-separated numbers or UUID prefixes; unset selects all GPUs.
  GpuMeter(std::unique_ptr<Gpus> gpus, const std::optional<std::string>& ids);

  bool empty() const { return chosen_.empty(); }
  std::size_t count() const { return chosen_.size(); }
  /// Counts and names: "2 x NVIDIA A100".
  std::string model() const;

  /// Samples the power of GPUs without an energy counter; call it about once a second.
  void sample();
  /// The kWh used since the previous call, `seconds` ago.
  double take_kwh(double seconds);
  /// The mean utilization in percent; 0 if unknown.
  double utilization() const;

  /// Errors since the previous call, as text, each once.
  std::vector<std::string> take_faults();

 private:
  struct Chosen {
    std::size_t index = 0;
    std::optional<double> last = {};  // joules
    // In kWh, estimated from power while the counter couldn't be read; subtracted when it can be read again.
    double ahead = 0;
    bool by_power = false, reported = false;
    double power_sum = 0, power_count = 0;
  };

  double take_by_power(Chosen& gpu, double seconds);
  double take_one(Chosen& gpu, double seconds);

  std::unique_ptr<Gpus> gpus_;
  std::vector<Chosen> chosen_;
  std::vector<std::string> faults_;
};

}  // namespace etude::inline v0::detail
