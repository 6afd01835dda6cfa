#include "etude/run.hpp"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <csignal>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "common/child.hpp"
#include "common/written.hpp"
#include "etude/base/error.hpp"
#include "etude/base/interrupt.hpp"
#include "etude/reflect/struct.hpp"
#include "etude/training_arguments.hpp"

namespace run_test {

struct Data {
  ETUDE_STRUCT(Data, (std::int64_t, size, "number of examples", 10));
};

/// The exit status of a program `program` with these words on its command line.
template <class... Parts>
int status_of(std::vector<const char*> words, Parts... parts) {
  words.insert(words.begin(), "/usr/bin/program");
  return etude::run(static_cast<int>(words.size()), words.data(), std::move(parts)...);
}

template <class... Parts>
std::string output_of(int expected, const std::vector<const char*>& words, Parts... parts) {
  return toy::written(0, [&](int) { CHECK(status_of(words, std::move(parts)...) == expected); });
}

TEST_CASE("the function gets the defaults, with what the command line gives") {
  Data data;
  CHECK(status_of({"--size", "3", "--seed=5"}, etude::TrainingArguments{.learning_rate = 0.25},
                  Data{.size = 7}, [&](const etude::TrainingArguments& args, const Data& given) {
                    CHECK(args.learning_rate == 0.25);
                    CHECK(args.seed == 5);
                    data = given;
                  }) == 0);
  CHECK(data.size == 3);
  CHECK(status_of({}, Data{.size = 7}, [&](auto given) { data = given; }) == 0);
  CHECK(data.size == 7);
}

TEST_CASE("without defaults, the parameters of the function say which structs to fill") {
  std::int64_t size = 0;
  CHECK(status_of({"--size", "4"}, [&](const Data& data) { size = data.size; }) == 0);
  CHECK(size == 4);
  CHECK(status_of({"--size", "6", "--seed", "1"},
                  [&](Data data, etude::TrainingArguments args) { size = data.size + args.seed; }) == 0);
  CHECK(size == 7);
  CHECK(status_of({}, [&] { size = 0; }) == 0);
  CHECK(size == 0);
}

TEST_CASE("a status that the function returns is the program's") {
  CHECK(status_of({}, [] { return 3; }) == 3);
}

TEST_CASE("an exception becomes one line with the program's name, and the status 1") {
  CHECK(output_of(1, {}, [] { throw std::runtime_error("no such\nfile\n"); }) == "program: no such file\n");
  CHECK(output_of(1, {}, [] { throw 5; }) == "program: an exception that isn't a std::exception\n");
  const auto torch = output_of(1, {}, [] { torch::ones({2, 3}).matmul(torch::ones({2, 3})); });
  CHECK(torch == "program: mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)\n");
}

TEST_CASE("wrong arguments are listed, and the status is 2, wherever they are found") {
  const auto text = output_of(2, {}, [] { throw etude::ArgumentError("size is 0: must be at least 1"); });
  CHECK(text == "size is 0: must be at least 1\nprogram: --help lists all flags\n");
  CHECK(toy::end_of_child([] { return status_of({"--size", "many"}, [](const Data&) {}); }) == "exit 2");
  CHECK(toy::end_of_child([] { return status_of({"--help"}, [](const Data&) { throw 1; }); }) == "exit 0");
}

TEST_CASE("a training that a signal has interrupted gives the status of a shell") {
  CHECK(status_of({}, [] { throw etude::Interrupted(SIGTERM); }) == 128 + SIGTERM);
}

}  // namespace run_test
