#include "etude/loop/missing_labels.hpp"

#include <doctest/doctest.h>

#include <string>

#include "common/printed.hpp"
#include "etude/training_arguments.hpp"

namespace loop_missing_labels_test {

TEST_CASE("one evaluation without labels is named, and no other") {
  const etude::TrainingArguments args;
  etude::MissingLabels labels(args);
  const auto warning = [&](const char* prefix) {
    return toy::printed([&] { labels.warn(prefix); }, STDERR_FILENO);
  };
  CHECK(warning("eval_news").find("the dataset of the evaluation 'eval_news' has no labels") !=
        std::string::npos);
  CHECK(warning("eval_mail").empty());
}

TEST_CASE("a loss that asked for labels is remembered") {
  const etude::TrainingArguments args;
  etude::MissingLabels labels(args);
  CHECK_FALSE(labels.loss_needs_them());
  labels.note_loss_needs_them();
  CHECK(labels.loss_needs_them());
}

}  // namespace loop_missing_labels_test
