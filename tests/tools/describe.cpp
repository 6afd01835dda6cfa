#include <doctest/doctest.h>

#include <string>

#include "etude/training_arguments.hpp"
#include "tools/program.hpp"

namespace tools_describe_test {

using Json = nlohmann::ordered_json;
using toy::contains;

TEST_CASE("an argument has its type, default, allowed values and help") {
  const auto json =
      toy::etude_program("describe", "adam_beta1", "optim", "eval_accumulation_steps", "--json").json();
  const auto& arguments = json["arguments"];
  REQUIRE(arguments.size() == 3);
  CHECK(arguments[0] ==
        Json::parse(R"({"name": "adam_beta1", "type": "number", "optional": false, "default": 0.9,
    "choices": [], "allowed": "a number, at least 0 and below 1",
    "help": "decay of the mean of the gradients in Adam and similar optimizers"})"));
  CHECK(arguments[1]["choices"][0] == "adamw_torch");
  CHECK(arguments[1]["default"] == "adamw_torch_fused");
  CHECK(arguments[2]["optional"] == true);
  CHECK(arguments[2]["default"] == nullptr);
  CHECK(toy::etude_program("describe", "adam_beta1").out ==
        "adam_beta1 (number, default 0.9)\n  decay of the mean of the gradients in Adam and similar "
        "optimizers\n"
        "  at least 0 and below 1\n");
}

TEST_CASE("without a name, all are described, and a pattern selects") {
  const auto all = toy::etude_program("describe", "--json").json()["arguments"];
  CHECK(all.size() == etude::field_names<etude::TrainingArguments>().size());
  const auto some =
      toy::etude_program("describe", "adam_beta?", "seed", "*seed", "--json").json()["arguments"];
  REQUIRE(some.size() == 4);
  CHECK(some[0]["name"] == "adam_beta1");
  CHECK(some[1]["name"] == "adam_beta2");
  CHECK(some[2]["name"] == "seed");
  CHECK(some[3]["name"] == "data_seed");
}

TEST_CASE("a wrong name is answered with the nearest") {
  const auto answer = [](const std::string& name) {
    const auto ran = toy::etude_program("describe", name);
    CHECK(ran.end == "exit 2");
    CHECK(ran.out == "");
    return ran.err;
  };
  CHECK(answer("learning_rat") ==
        "etude: there is no argument 'learning_rat'; did you mean 'learning_rate'?\n");
  CHECK(answer("lr") == "etude: there is no argument 'lr'; did you mean 'learning_rate'?\n");
  CHECK(answer("max_stepz*") == "etude: no argument matches 'max_stepz*'; did you mean 'max_steps'?\n");
}

}  // namespace tools_describe_test
