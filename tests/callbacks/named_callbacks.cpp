#include "etude/callbacks/named_callbacks.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "common/fault_of.hpp"
#include "etude/base/error.hpp"

namespace callbacks_named_callbacks_test {

/// Keeps what is added, as a trainer does.
struct Added {
  std::vector<std::string> names;
  std::int64_t patience = 0;
  double threshold = 0;

  template <class Callback>
  void add_callback(const Callback& callback) {
    names.emplace_back(etude::short_type_name<Callback>());
    if constexpr (std::same_as<Callback, etude::EarlyStoppingCallback>) {
      patience = callback.early_stopping_patience;
      threshold = callback.early_stopping_threshold;
    }
  }
};

Added added(const std::vector<std::string>& texts) {
  Added result;
  etude::add_named_callbacks(result, texts);
  return result;
}

TEST_CASE("callbacks are added by name, with their options, in their order") {
  const auto two = added({"LearningRateMonitor",
                          "EarlyStoppingCallback: early_stopping_patience=3, early_stopping_threshold=0.5"});
  CHECK(two.names == std::vector<std::string>{"LearningRateMonitor", "EarlyStoppingCallback"});
  CHECK(two.patience == 3);
  CHECK(two.threshold == 0.5);
}

TEST_CASE("a text that was split at its commas means the same") {
  const auto two = added({"EarlyStoppingCallback:early_stopping_patience=4", "early_stopping_threshold=0.25",
                          "TerminateOnNaNCallback"});
  CHECK(two.names == std::vector<std::string>{"EarlyStoppingCallback", "TerminateOnNaNCallback"});
  CHECK(two.patience == 4);
  CHECK(two.threshold == 0.25);
}

TEST_CASE("unknown callbacks, options and values are named") {
  const auto fault = [](const std::string& text) {
    return toy::fault_of<etude::ArgumentError>([&] { added({text}); });
  };
  CHECK(
      toy::contains(fault("EarlyStoping"), "callback is 'EarlyStoping': must be one of CSVLoggerCallback, "));
  CHECK(toy::contains(fault("EarlyStopingCallback"), "did you mean 'EarlyStoppingCallback'?"));
  CHECK(fault("EarlyStoppingCallback: early_stopping_patienc=3") ==
        "callback EarlyStoppingCallback: there is no option 'early_stopping_patienc'; did you mean "
        "'early_stopping_patience'?");
  CHECK(toy::contains(fault("EarlyStoppingCallback: early_stopping_patience=0"),
                      "callback EarlyStoppingCallback: early_stopping_patience is 0"));
  CHECK(toy::contains(fault("EarlyStoppingCallback: early_stopping_patience"),
                      "callback is 'EarlyStoppingCallback:"));
}

}  // namespace callbacks_named_callbacks_test
