#include "etude/integrations/codecarbon/gpus.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <set>
#include <type_traits>
#include <utility>

#include "etude/integrations/codecarbon/rapl.hpp"
#include "etude/integrations/shared/text.hpp"
#include "etude/reflect/read_text.hpp"

namespace etude::inline v0::detail {

namespace {

// The few functions of NVIDIA's documented interface that are needed, declared here instead of in its header.
class Nvml final : public Gpus {
 public:
  static std::unique_ptr<Gpus> open() {
    auto nvml = std::make_unique<Nvml>();
    if (!nvml->load() || nvml->count() == 0) return nullptr;
    return nvml;
  }
  ~Nvml() override {
    // The library stays loaded: the driver's threads may be running in it.
    if (is_open_) shut_down_();
  }

  std::size_t count() const override { return devices_.size(); }
  std::string name(std::size_t gpu) const override { return text(get_name_, gpu, "Unknown GPU"); }
  std::string uuid(std::size_t gpu) const override { return text(get_uuid_, gpu, ""); }
  std::optional<double> joules(std::size_t gpu) const override {
    unsigned long long millijoules = 0;
    if (get_energy_ == nullptr || get_energy_(devices_[gpu], &millijoules) != 0) return std::nullopt;
    return static_cast<double>(millijoules) * 1e-3;
  }
  std::optional<double> watts(std::size_t gpu) const override {
    unsigned milliwatts = 0;
    if (get_power_ == nullptr || get_power_(devices_[gpu], &milliwatts) != 0) return std::nullopt;
    return static_cast<double>(milliwatts) * 1e-3;
  }
  std::optional<double> utilization(std::size_t gpu) const override {
    Utilization rates{};
    if (get_utilization_ == nullptr || get_utilization_(devices_[gpu], &rates) != 0) return std::nullopt;
    return static_cast<double>(rates.gpu);
  }

 private:
  using Device = void*;
  struct Utilization {
    unsigned gpu = 0, memory = 0;
  };
  using GetText = int (*)(Device, char*, unsigned);

  bool load() {
    void* library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return false;
    const auto find = [&](auto& function, const char* symbol) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, symbol));
      return function != nullptr;
    };
    int (*init)() = nullptr;
    int (*get_count)(unsigned*) = nullptr;
    int (*get_device)(unsigned, Device*) = nullptr;
    if (!find(init, "nvmlInit_v2") || !find(shut_down_, "nvmlShutdown") ||
        !find(get_count, "nvmlDeviceGetCount_v2") || !find(get_device, "nvmlDeviceGetHandleByIndex_v2"))
      return false;
    find(get_name_, "nvmlDeviceGetName");
    find(get_uuid_, "nvmlDeviceGetUUID");
    find(get_energy_, "nvmlDeviceGetTotalEnergyConsumption");
    find(get_power_, "nvmlDeviceGetPowerUsage");
    find(get_utilization_, "nvmlDeviceGetUtilizationRates");
    if (init() != 0) return false;
    is_open_ = true;
    unsigned count = 0;
    if (get_count(&count) != 0) return false;
    for (unsigned i = 0; i < count; ++i)
      if (Device device = nullptr; get_device(i, &device) == 0) devices_.push_back(device);
    return true;
  }

  std::string text(GetText get, std::size_t gpu, const char* otherwise) const {
    std::array<char, 97> buffer{};
    if (get == nullptr || get(devices_[gpu], buffer.data(), static_cast<unsigned>(buffer.size() - 1)) != 0)
      return otherwise;
    return buffer.data();
  }

  std::vector<Device> devices_;
  bool is_open_ = false;
  int (*shut_down_)() = nullptr;
  GetText get_name_ = nullptr, get_uuid_ = nullptr;
  int (*get_energy_)(Device, unsigned long long*) = nullptr;
  int (*get_power_)(Device, unsigned*) = nullptr;
  int (*get_utilization_)(Device, Utilization*) = nullptr;
};

}  // namespace

std::unique_ptr<Gpus> open_nvml() { return Nvml::open(); }

GpuMeter::GpuMeter(std::unique_ptr<Gpus> gpus, const std::optional<std::string>& ids)
    : gpus_(std::move(gpus)) {
  if (!gpus_) return;
  std::set<std::size_t> indices;
  if (!ids)
    for (std::size_t i = 0; i < gpus_->count(); ++i) indices.insert(i);
  std::string plain;
  for (const char c : ids.value_or(""))
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == ',') plain += c;
  for (const auto& id : comma_separated(plain)) {
    std::optional<std::size_t> found;
    if (const auto number = read_number<std::size_t>(id)) {
      if (*number < gpus_->count()) found = *number;
    } else {
      const auto wanted = id.starts_with("MIG-") ? id.substr(4) : id;
      for (std::size_t i = 0; i < gpus_->count() && !found; ++i)
        if (gpus_->uuid(i).starts_with(wanted)) found = i;
    }
    if (found)
      indices.insert(*found);
    else
      faults_.push_back(fmt::format("GPU {} doesn't exist and isn't measured", id));
  }
  for (const auto i : indices) {
    Chosen gpu{.index = i, .last = gpus_->joules(i)};
    gpu.by_power = !gpu.last;
    chosen_.push_back(gpu);
  }
}

std::string GpuMeter::model() const {
  std::vector<std::pair<std::string, int>> kinds;
  for (const auto& gpu : chosen_) {
    const auto name = gpus_->name(gpu.index);
    const auto found = std::ranges::find(kinds, name, &std::pair<std::string, int>::first);
    if (found == kinds.end())
      kinds.emplace_back(name, 1);
    else
      ++found->second;
  }
  std::string text;
  for (const auto& [name, count] : kinds)
    text += fmt::format("{}{} x {}", text.empty() ? "" : ", ", count, name);
  return text;
}

void GpuMeter::sample() {
  for (auto& gpu : chosen_) {
    if (!gpu.by_power) continue;
    if (const auto watts = gpus_->watts(gpu.index)) {
      gpu.power_sum += *watts;
      gpu.power_count += 1;
    }
  }
}

double GpuMeter::take_by_power(Chosen& gpu, double seconds) {
  if (!std::exchange(gpu.reported, true))
    faults_.push_back(
        fmt::format("GPU {} has no readable energy counter: its power is sampled once a second", gpu.index));
  if (gpu.power_count == 0) {
    const auto watts = gpus_->watts(gpu.index);
    gpu.power_sum = watts.value_or(0);
    gpu.power_count = 1;
    if (!watts)
      faults_.push_back(
          fmt::format("neither energy nor power of GPU {} can be read: it counts as 0", gpu.index));
  }
  gpu.by_power = true;
  const double watts = std::exchange(gpu.power_sum, 0) / std::exchange(gpu.power_count, 0);
  const double kwh = watts / 1000 * seconds / 3600;
  gpu.ahead += kwh;
  return kwh;
}

double GpuMeter::take_one(Chosen& gpu, double seconds) {
  const auto now = gpus_->joules(gpu.index);
  if (!now) return take_by_power(gpu, seconds);
  const auto last = std::exchange(gpu.last, now);
  if (!last || *now < *last) {  // no starting value, or the driver was reloaded
    const double kwh = take_by_power(gpu, seconds);
    gpu.ahead = 0;
    gpu.by_power = false;
    return kwh;
  }
  gpu.by_power = false;
  gpu.power_sum = gpu.power_count = 0;
  const double left = (*now - *last) * kwh_per_joule - gpu.ahead;
  gpu.ahead = std::max(-left, 0.0);
  return std::max(left, 0.0);
}

double GpuMeter::take_kwh(double seconds) {
  double kwh = 0;
  for (auto& gpu : chosen_) kwh += take_one(gpu, seconds);
  return kwh;
}

double GpuMeter::utilization() const {
  double sum = 0;
  for (const auto& gpu : chosen_) sum += gpus_->utilization(gpu.index).value_or(0);
  return chosen_.empty() ? 0 : sum / static_cast<double>(chosen_.size());
}

std::vector<std::string> GpuMeter::take_faults() { return std::exchange(faults_, {}); }

}  // namespace etude::inline v0::detail
