#include "etude/reflect/nearest.hpp"

#include <doctest/doctest.h>

#include <string_view>
#include <vector>

namespace reflect_nearest_test {

TEST_CASE("edit distance counts insertions, deletions, changes and swaps of neighbours") {
  CHECK(etude::edit_distance("", "") == 0);
  CHECK(etude::edit_distance("", "abc") == 3);
  CHECK(etude::edit_distance("abc", "") == 3);
  CHECK(etude::edit_distance("kitten", "sitting") == 3);
  CHECK(etude::edit_distance("adam", "adma") == 1);
  CHECK(etude::edit_distance("ca", "abc") == 3);
}

TEST_CASE("the nearest name is suggested if it is near enough") {
  const std::vector<std::string_view> names{"learning_rate", "seed", "save_steps", "eval_steps"};
  CHECK(etude::nearest("learning_rat", names) == "learning_rate");
  CHECK(etude::nearest("sede", names) == "seed");
  CHECK(etude::nearest("saev_step", names) == "save_steps");
  CHECK(etude::nearest("momentum", names) == "");
  CHECK(etude::nearest("x", names) == "");
  CHECK(etude::nearest("x", std::vector<std::string_view>{}) == "");
}

TEST_CASE("the beginning of a name is completed rather than changed into another name") {
  const std::vector<std::string_view> names{"adam", "adamw_torch", "adamw_torch_fused",
                                            "cosine_with_restarts"};
  CHECK(etude::nearest("adamw", names) == "adamw_torch");
  CHECK(etude::nearest("adma", names) == "adam");
  CHECK(etude::nearest("cos", names) == "cosine_with_restarts");
  CHECK(etude::nearest("co", names) == "");
}

TEST_CASE("suggestions ignore case") {
  const std::vector<std::string_view> names{"adamw_torch", "sgd", "cosine", "eval_F1"};
  CHECK(etude::nearest("AdamW", names) == "adamw_torch");
  CHECK(etude::nearest("SGD", names) == "sgd");
  CHECK(etude::nearest("CosineSchedule", names) == "");
  CHECK(etude::nearest("f1", std::vector<std::string_view>{"F1"}) == "F1");
  CHECK(etude::nearest("eval_f1", names) == "eval_F1");
}

TEST_CASE("some words of a name suggest the first name that has them") {
  const std::vector<std::string_view> names{"per_device_train_batch_size", "per_device_eval_batch_size",
                                            "num_train_epochs"};
  CHECK(etude::nearest("batch_size", names) == "per_device_train_batch_size");
  CHECK(etude::nearest("epochs", names) == "num_train_epochs");
  CHECK(etude::nearest("train", names) == "per_device_train_batch_size");
  CHECK(etude::nearest("rain", names) == "");
}

TEST_CASE("the suggestion is a whole phrase or empty") {
  const std::vector<std::string_view> names{"seed"};
  CHECK(etude::did_you_mean("sed", names) == "; did you mean 'seed'?");
  CHECK(etude::did_you_mean("sed", names, "--") == "; did you mean '--seed'?");
  CHECK(etude::did_you_mean("completely", names) == "");
}

}  // namespace reflect_nearest_test
