#include "etude/integrations/shared/tracked_run.hpp"

#include <doctest/doctest.h>

#include "etude/integrations/shared/environment.hpp"

namespace integrations_shared_tracked_run_test {

using etude::detail::tracked_name;
using Json = nlohmann::ordered_json;

TEST_CASE("metrics have Hugging Face's names in trackers that group them") {
  CHECK(tracked_name("eval_loss") == "eval/loss");
  CHECK(tracked_name("test_accuracy") == "test/accuracy");
  CHECK(tracked_name("loss") == "train/loss");
  CHECK(tracked_name("train_loss") == "train/train_loss");
  CHECK(tracked_name("epoch") == "train/epoch");
  CHECK(tracked_name("evaluation") == "train/evaluation");
  CHECK(tracked_name("eval_") == "eval/");
}

TEST_CASE("parameters are the user's and the arguments, and the arguments win") {
  const auto parameters = etude::detail::run_parameters({.learning_rate = 0.5, .seed = 7},
                                                        {{"hidden", {{"size", 8}}}, {"seed", 1}});
  CHECK(parameters.at("hidden") == Json{{"size", 8}});
  CHECK(parameters.at("seed") == 7);
  CHECK(parameters.at("learning_rate") == 0.5);
  CHECK(parameters.at("optim") == "adamw_torch_fused");
  CHECK(etude::detail::run_parameters({}, {1, 2}).at("config") == Json{1, 2});
}

TEST_CASE("a trial's hyperparameters come first, and win over the user's") {
  const auto parameters = etude::detail::run_parameters({.seed = 7}, {{"depth", 1}, {"width", 8}},
                                                        nlohmann::json{{"seed", 1}, {"width", 4}});
  CHECK(parameters.at("width") == 4);
  CHECK(parameters.at("depth") == 1);
  CHECK(parameters.at("seed") == 7);
  auto parameter = parameters.begin();
  CHECK(parameter.key() == "seed");
  CHECK((++parameter).key() == "width");
  CHECK((++parameter).key() == "depth");
}

TEST_CASE("nested parameters are flattened under the names that lead to them") {
  const auto flat = etude::detail::flattened(
      {{"a", {{"b", 1}, {"c", {{"d", nullptr}}}}}, {"e", {1, 2}}, {"f", Json::object()}});
  REQUIRE(flat.size() == 4);
  CHECK(flat[0] == std::pair<std::string, Json>{"a.b", 1});
  CHECK(flat[1] == std::pair<std::string, Json>{"a.c.d", nullptr});
  CHECK(flat[2] == std::pair<std::string, Json>{"e", {1, 2}});
  CHECK(flat[3] == std::pair<std::string, Json>{"f", Json::object()});
}

TEST_CASE("parameters are spelled as Python's clients spell them") {
  using etude::detail::parameter_text;
  CHECK(parameter_text("a b") == "a b");
  CHECK(parameter_text(nullptr) == "None");
  CHECK(parameter_text(true) == "True");
  CHECK(parameter_text(5e-5) == "5e-05");
  CHECK(parameter_text({1, 2}) == "[1,2]");
}

TEST_CASE("true has the same spellings as in Hugging Face's integrations") {
  for (const char* yes : {"1", "on", "Yes", "TRUE", "t"}) CHECK(etude::detail::means_yes(yes));
  for (const char* no : {"", "0", "off", "F", "no", "2"}) CHECK(!etude::detail::means_yes(no));
}

}  // namespace integrations_shared_tracked_run_test
