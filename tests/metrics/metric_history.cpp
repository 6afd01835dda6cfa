#include "etude/metrics/metric_history.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "etude/base/error.hpp"

namespace metrics_run_history_test {

using Names = std::vector<std::string>;
using Values = std::vector<double>;

TEST_CASE("values are kept in their order, under names in the order of their first values") {
  etude::InMemoryRunHistory history;
  history.update_metric("loss", 3);
  history.update_metric("accuracy", .5);
  history.update_metric("loss", 2);
  CHECK(history.get_metric_names() == Names{"loss", "accuracy"});
  CHECK(history.get_metric_values("loss") == Values{3, 2});
  CHECK(history.get_latest_metric("loss") == 2);
  CHECK(history.get_latest_metric("accuracy") == .5);
}

TEST_CASE("looking up a missing metric lists the existing ones, and creates nothing") {
  etude::InMemoryRunHistory history;
  CHECK_THROWS_WITH_AS(static_cast<void>(history.get_latest_metric("loss")),
                       "no values have been recorded for the metric 'loss'; known: none", etude::MetricError);
  history.update_metric("a", 1);
  history.update_metric("b", 1);
  const auto refusal = "no values have been recorded for the metric 'loss'; known: a, b";
  CHECK_THROWS_WITH_AS(static_cast<void>(history.get_latest_metric("loss")), refusal, etude::MetricError);
  CHECK_THROWS_WITH_AS(static_cast<void>(history.get_metric_values("loss")), refusal, etude::MetricError);
  CHECK_THROWS_WITH_AS(history.delete_metric("loss"), refusal, etude::MetricError);
  CHECK(history.get_metric_names() == Names{"a", "b"});
}

TEST_CASE("a deleted metric no longer exists, and may be recorded again") {
  etude::InMemoryRunHistory history;
  for (const char* name : {"a", "b", "c"}) history.update_metric(name, 1);
  history.delete_metric("b");
  CHECK(history.get_metric_names() == Names{"a", "c"});
  history.update_metric("b", 2);
  CHECK(history.get_metric_values("b") == Values{2});
}

TEST_CASE("the prefix is added to names when recording, not when looking up") {
  etude::InMemoryRunHistory history;
  history.update_metric("loss", 1);
  history.set_metric_name_prefix("ema_model_");
  history.update_metric("loss", 2);
  CHECK(history.metric_name_prefix() == "ema_model_");
  CHECK(history.get_latest_metric("loss") == 1);
  CHECK(history.get_latest_metric("ema_model_loss") == 2);
  history.set_metric_name_prefix("");
  history.update_metric("loss", 3);
  CHECK(history.get_metric_values("loss") == Values{1, 3});
}

TEST_CASE("a reset forgets metrics and epoch, and keeps the prefix") {
  etude::InMemoryRunHistory history;
  CHECK(history.current_epoch() == 1);
  history.set_epoch(4);
  history.set_metric_name_prefix("p_");
  history.update_metric("loss", 1);
  history.reset();
  CHECK(history.current_epoch() == 1);
  CHECK(history.get_metric_names().empty());
  CHECK(history.metric_name_prefix() == "p_");
}

TEST_CASE("its whole state round-trips through JSON, non-finite numbers too") {
  etude::InMemoryRunHistory history, other;
  history.set_epoch(3);
  history.set_metric_name_prefix("p_");
  history.update_metric("loss", 0.1);
  history.update_metric("loss", std::numeric_limits<double>::quiet_NaN());
  history.update_metric("loss", -std::numeric_limits<double>::infinity());
  other.update_metric("gone", 1);
  other.load_state(nlohmann::ordered_json::parse(history.state().dump()));
  CHECK(other.state() == history.state());
  CHECK(other.current_epoch() == 3);
  const auto values = other.get_metric_values("p_loss");
  REQUIRE(values.size() == 3);
  CHECK(values[0] == 0.1);
  CHECK(std::isnan(values[1]));
  CHECK(values[2] == -std::numeric_limits<double>::infinity());
}

}  // namespace metrics_run_history_test
