#include "etude/loop/part_size.hpp"

#include <c10/util/Exception.h>
#include <doctest/doctest.h>

#include <exception>
#include <stdexcept>

#include "common/printed.hpp"
#include "etude/training_arguments.hpp"

namespace loop_part_size_test {

const auto out_of_memory = std::make_exception_ptr(c10::OutOfMemoryError({"f", "file", 1}, "out of memory"));

TEST_CASE("parts halve each time memory runs out, rounded up, and no further than one example") {
  const etude::TrainingArguments args{.auto_microbatching = true, .log_level = etude::LogLevel::error};
  etude::PartSize size(args);
  CHECK(size.of(7) == 7);
  CHECK(size.state() == 0);
  CHECK(size.shrink(out_of_memory, 7));
  CHECK(size.of(7) == 4);
  CHECK(size.shrink(out_of_memory, 3));  // a batch that is smaller than a part
  CHECK(size.of(7) == 2);
  CHECK(size.shrink(out_of_memory, 7));
  CHECK(size.state() == 1);
  CHECK_FALSE(size.shrink(out_of_memory, 7));
}

TEST_CASE("parts shrink only with auto_microbatching and only if memory ran out") {
  etude::TrainingArguments args{.auto_microbatching = true, .log_level = etude::LogLevel::error};
  etude::PartSize size(args);
  CHECK_FALSE(size.shrink(std::make_exception_ptr(std::runtime_error("another")), 7));
  args.auto_microbatching = false;
  CHECK_FALSE(size.shrink(out_of_memory, 7));
  size.load_state(3);
  CHECK(size.of(7) == 7);
  args.auto_microbatching = true;
  size.load_state(3);
  CHECK(size.of(7) == 3);
  size.load_state(0);
  CHECK(size.of(7) == 3);
}

TEST_CASE("a warning names the new size of the parts") {
  const etude::TrainingArguments args{.auto_microbatching = true};
  etude::PartSize size(args);
  const auto text = toy::printed([&] { size.shrink(out_of_memory, 5); }, STDERR_FILENO);
  CHECK(text.find("memory ran out: batches go through the model 3 examples at a time from now on") !=
        text.npos);
}

}  // namespace loop_part_size_test
