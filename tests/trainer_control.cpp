#include "etude/trainer_control.hpp"

#include <doctest/doctest.h>

#include <string_view>
#include <vector>

#include "etude/reflect/json.hpp"

namespace trainer_control_test {

using etude::TrainerControl;

TEST_CASE("a new control has no requests") {
  const TrainerControl control;
  etude::for_each_field(control, [](std::string_view, std::string_view, bool flag) { CHECK_FALSE(flag); });
  CHECK(control.stop_reason.empty());
}

TEST_CASE("the five flags are the fields") {
  CHECK(etude::field_names<TrainerControl>() ==
        std::vector<std::string_view>{"should_training_stop", "should_epoch_stop", "should_save",
                                      "should_evaluate", "should_log"});
  CHECK(etude::to_json_value(TrainerControl{.should_save = true}).dump() ==
        R"({"should_training_stop":false,"should_epoch_stop":false,"should_save":true,)"
        R"("should_evaluate":false,"should_log":false})");
}

TEST_CASE("the first reason for a stop is kept") {
  TrainerControl control;
  control.request_stop("patience is over");
  CHECK(control.should_training_stop);
  CHECK(control.stop_reason == "patience is over");
  control.request_stop("out of time");
  CHECK(control.stop_reason == "patience is over");
}

TEST_CASE("a stop without a reason can still get one") {
  TrainerControl control{.should_training_stop = true};
  control.request_stop("out of time");
  CHECK(control.stop_reason == "out of time");
}

}  // namespace trainer_control_test
