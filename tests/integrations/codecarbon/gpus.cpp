#include "etude/integrations/codecarbon/gpus.hpp"

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "common/fault_of.hpp"

namespace integrations_codecarbon_gpus_test {

using doctest::Approx;
using etude::detail::GpuMeter;

constexpr double kwh = 2.77778e-7;  // per joule

struct Gpu {
  std::string name = "Card", uuid = "GPU-1";
  std::optional<double> joules = {}, watts = {}, utilization = {};
};

/// GPUs with readings set by a test.
class FakeGpus final : public etude::detail::Gpus {
 public:
  explicit FakeGpus(std::vector<Gpu>& gpus) : gpus_(gpus) {}
  std::size_t count() const override { return gpus_.size(); }
  std::string name(std::size_t i) const override { return gpus_[i].name; }
  std::string uuid(std::size_t i) const override { return gpus_[i].uuid; }
  std::optional<double> joules(std::size_t i) const override { return gpus_[i].joules; }
  std::optional<double> watts(std::size_t i) const override { return gpus_[i].watts; }
  std::optional<double> utilization(std::size_t i) const override { return gpus_[i].utilization; }

 private:
  std::vector<Gpu>& gpus_;
};

GpuMeter meter_of(std::vector<Gpu>& gpus, const std::optional<std::string>& ids = {}) {
  return GpuMeter(std::make_unique<FakeGpus>(gpus), ids);
}

TEST_CASE("energy is the increase of the counters") {
  std::vector<Gpu> gpus{{.joules = 1000, .watts = 5, .utilization = 40},
                        {.joules = 9000, .watts = 5, .utilization = 60}};
  auto meter = meter_of(gpus);
  CHECK(meter.count() == 2);
  CHECK(meter.model() == "2 x Card");
  CHECK(meter.utilization() == 50);
  gpus[0].joules = 1100;
  gpus[1].joules = 9050;
  meter.sample();
  CHECK(meter.take_kwh(10) == Approx(150 * kwh));
  CHECK(meter.take_kwh(10) == 0);
  CHECK(meter.take_faults().empty());
}

TEST_CASE("for a GPU without a counter, the mean of its sampled power counts") {
  std::vector<Gpu> gpus{{.watts = 100}};
  auto meter = meter_of(gpus);
  meter.sample();
  gpus[0].watts = 300;
  meter.sample();
  CHECK(meter.take_kwh(18) == Approx(200.0 / 1000 * 18 / 3600));
  CHECK(meter.take_kwh(18) == Approx(300.0 / 1000 * 18 / 3600));  // not sampled in between: the current power
  const auto faults = meter.take_faults();
  CHECK(faults.size() == 1);
  CHECK(toy::contains(faults.at(0), "GPU 0 has no readable energy counter"));
}

TEST_CASE("energy counted by power while the counter was unavailable isn't counted again afterwards") {
  std::vector<Gpu> gpus{{.joules = 1000, .watts = 100}};
  auto meter = meter_of(gpus);
  gpus[0].joules = std::nullopt;
  CHECK(meter.take_kwh(10) == Approx(1000.0 / 3.6e6));
  gpus[0].joules = 1000 + 1500;
  CHECK(meter.take_kwh(10) == Approx(1500 * kwh - 1000.0 / 3.6e6));

  gpus[0].joules = std::nullopt;
  CHECK(meter.take_kwh(10) == Approx(1000.0 / 3.6e6));
  gpus[0].joules = 2500 + 400;  // less than estimated from power
  CHECK(meter.take_kwh(10) == 0);
  gpus[0].joules = 2900 + 1000;
  CHECK(meter.take_kwh(10) == Approx(1400 * kwh - 1000.0 / 3.6e6));
}

TEST_CASE("a counter that was reset starts again") {
  std::vector<Gpu> gpus{{.joules = 5000, .watts = 50}};
  auto meter = meter_of(gpus);
  gpus[0].joules = 10;
  CHECK(meter.take_kwh(10) == Approx(500.0 / 3.6e6));
  gpus[0].joules = 30;
  CHECK(meter.take_kwh(10) == Approx(20 * kwh));
}

TEST_CASE("a GPU that reports nothing counts as 0, and that is reported") {
  std::vector<Gpu> gpus{{}};
  auto meter = meter_of(gpus);
  CHECK(meter.take_kwh(10) == 0);
  CHECK(meter.utilization() == 0);
  const auto faults = meter.take_faults();
  CHECK(toy::contains(faults.back(), "it counts as 0"));
}

TEST_CASE("GPUs are selected by number or by the beginning of a UUID, each once") {
  std::vector<Gpu> gpus{{.name = "A", .uuid = "GPU-aa11", .joules = 0},
                        {.name = "B", .uuid = "GPU-bb22", .joules = 0},
                        {.name = "B", .uuid = "GPU-bb33", .joules = 0}};
  CHECK(meter_of(gpus).model() == "1 x A, 2 x B");
  CHECK(meter_of(gpus, "0, 2").model() == "1 x A, 1 x B");
  CHECK(meter_of(gpus, "[1, 2]").model() == "2 x B");
  CHECK(meter_of(gpus, "GPU-bb3").model() == "1 x B");
  CHECK(meter_of(gpus, "MIG-GPU-aa").model() == "1 x A");
  CHECK(meter_of(gpus, "1,GPU-bb22").count() == 1);
  auto none = meter_of(gpus, "7,-1");
  CHECK(none.empty());
  CHECK(none.take_faults() == std::vector<std::string>{"GPU 7 doesn't exist and isn't measured",
                                                       "GPU -1 doesn't exist and isn't measured"});
}

TEST_CASE("a machine without GPUs counts no energy for them") {
  GpuMeter none(nullptr, "0");
  CHECK(none.empty());
  CHECK(none.model().empty());
  none.sample();
  CHECK(none.take_kwh(10) == 0);
  CHECK(none.utilization() == 0);
  CHECK(none.take_faults().empty());
}

}  // namespace integrations_codecarbon_gpus_test
