#include "etude/study/chart.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace study_chart_test {

using etude::StudyDirection;
using etude::detail::ChartAxis;

std::vector<std::string> labels(const ChartAxis& axis, int most = 5) {
  std::vector<std::string> result;
  for (const auto& [place, label] : axis.ticks(most)) {
    CHECK(place >= 0);
    CHECK(place <= 1);
    result.push_back(label);
  }
  return result;
}

using Labels = std::vector<std::string>;

TEST_CASE("ticks are round numbers, as many as can be told apart") {
  CHECK(labels(ChartAxis(0, 10)) == Labels{"0", "2", "4", "6", "8", "10"});
  CHECK(labels(ChartAxis(-0.3, 0.25)) == Labels{"-0.2", "0", "0.2"});
  CHECK(labels(ChartAxis(1, 4, false, true)) == Labels{"1", "2", "3", "4"});
  CHECK(labels(ChartAxis(1000000.1, 1000000.5)) ==
        Labels{"1000000.1", "1000000.2", "1000000.3", "1000000.4", "1000000.5"});
  CHECK(labels(ChartAxis(3, 3)) == Labels{"3"});
  CHECK(labels(ChartAxis({"a", "b", "c"})) == Labels{"a", "b", "c"});
  CHECK(ChartAxis(0, 10).ticks(5)[1].first == doctest::Approx(0.2));
}

TEST_CASE("ticks of a logarithmic axis are powers of ten, or parts of one") {
  CHECK(labels(ChartAxis(1e-5, 1e-1, true)) == Labels{"1e-05", "0.0001", "0.001", "0.01", "0.1"});
  CHECK(labels(ChartAxis(16, 512, true)) == Labels{"20", "50", "100", "200", "500"});
  CHECK(labels(ChartAxis(1.1, 1.2, true)) == Labels{"1.1", "1.2"});
  CHECK(labels(ChartAxis(1e-300, 1e300, true)).size() <= 6);
  CHECK(ChartAxis(1e-4, 1, true).place(1e-2) == doctest::Approx(0.5));
}

TEST_CASE("an axis of values is logarithmic for sizes that differ much, and cuts off far worse values") {
  CHECK(ChartAxis::of_values({0.001, 0.01, 1}, StudyDirection::minimize).is_log());
  CHECK_FALSE(ChartAxis::of_values({-0.001, 0.01, 1}, StudyDirection::minimize).is_log());
  std::vector<double> values;
  for (int i = 0; i < 100; ++i) values.push_back(i % 10 - 5);
  auto with_bad = values, with_good = values;
  with_bad[0] = 1e9, with_good[1] = -15;
  const auto bad = ChartAxis::of_values(with_bad, StudyDirection::minimize);
  CHECK_FALSE(bad.holds(1e9));
  CHECK(bad.place(1e9) == 1);
  CHECK(bad.place(4) - bad.place(-5) > 0.5);
  CHECK(ChartAxis::of_values(with_bad, StudyDirection::maximize).holds(-5));
  CHECK(ChartAxis::of_values(with_good, StudyDirection::minimize).holds(-15));  // the best stays visible
  CHECK_FALSE(ChartAxis::of_values(with_good, StudyDirection::maximize).place(-15) > 0.1);
}

TEST_CASE("the largest doubles have places too") {
  const double most = std::numeric_limits<double>::max(), infinity = std::numeric_limits<double>::infinity();
  const ChartAxis axis(-most, most);
  CHECK(axis.place(0) == 0.5);
  CHECK(axis.place(infinity) == 1);
  CHECK(axis.place(-infinity) == 0);
  CHECK_FALSE(labels(axis).empty());
  for (const auto direction : {StudyDirection::minimize, StudyDirection::maximize}) {
    const auto values = ChartAxis::of_values({-most, -1, 0, 1, most}, direction);
    CHECK(values.place(-most) < values.place(most));
    CHECK_FALSE(labels(values).empty());
  }
  CHECK(labels(ChartAxis::of_values({}, StudyDirection::minimize)).size() > 1);
  CHECK_FALSE(labels(ChartAxis(5e-324, 1e-323)).empty());
  CHECK_FALSE(labels(ChartAxis(5e-324, most, true)).empty());
}

}  // namespace study_chart_test
