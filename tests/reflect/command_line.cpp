#include "etude/reflect/command_line.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/hana/define_struct.hpp>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "common/fault_of.hpp"
#include "etude/base/error.hpp"
#include "etude/training_arguments.hpp"

namespace reflect_command_line_test {

using etude::parse_arguments;
using Words = std::vector<std::string>;

ETUDE_ENUM(Mode, fast, slow, careful);

using Weights = std::map<std::string, double>;

struct Run {
  ETUDE_STRUCT(Run, (double, learning_rate, "size of a step", 0.1), (std::int64_t, seed, "seed of all", 42),
               (bool, verbose, "say more", false), (bool, cache, "keep results", true),
               (std::string, name, "", "run"), (Mode, mode, "how to go", Mode::fast),
               (std::optional<double>, limit, "where to end"), (std::optional<bool>, colours, "use colours"),
               (std::vector<std::int64_t>, sizes, "of layers", {8}),
               (std::optional<std::vector<std::string>>, labels, "names"),
               (nlohmann::json, extra, "more", nlohmann::json::object()), (Weights, weights, "by name"));
};

struct Renamed {
  ETUDE_STRUCT(Renamed, (double, speed, "how fast", 1.0));
};

std::vector<std::pair<std::string_view, std::string_view>> names_elsewhere(const Renamed&) {
  return {{"pace", "speed"}};
}

struct Data {
  ETUDE_STRUCT(Data, (std::string, train_file, "text to train on"),
               (std::int64_t, batch_size, "examples at once", 4));

  void validate() const {
    if (batch_size < 1)
      throw etude::ArgumentError(fmt::format("batch_size is {}: must be at least 1", batch_size));
  }
};

struct Twin {
  ETUDE_STRUCT(Twin, (std::int64_t, seed, ""));
};

struct Reserved {
  ETUDE_STRUCT(Reserved, (std::string, config, ""));
};

struct Member {
  ETUDE_STRUCT(Member, (int, low, "", 1), (int, high, "", 2));
  std::vector<std::string> faults() const {
    return low < high ? Words{} : Words{fmt::format("low is {}: must be below high, {}", low, high)};
  }
};

struct Nested {
  ETUDE_STRUCT(Nested, (Member, range, "from where to where"), (std::vector<Member>, ranges, ""));
};

struct Copy {
  ETUDE_STRUCT(Copy, (Words, sources, "files to copy" | not_empty() | positional()),
               (std::string, target, "where they go" | positional()), (bool, force, "overwrite", false),
               (Words, skip, "a name to leave out" | repeated(), {"tmp"}),
               (std::vector<std::int64_t>, modes, "bits"));
  static constexpr std::string_view about = "Copy files.", notes = "Folders are made.";
};

struct Count {
  ETUDE_STRUCT(Count, (std::int64_t, first, "" | at_least(1) | positional()),
               (std::optional<std::int64_t>, last, "" | positional()));
  static constexpr bool reads_config = false;
};

struct Others {
  ETUDE_STRUCT(Others, (Words, more, "names" | positional()));
};

struct RepeatedWord {
  ETUDE_STRUCT(RepeatedWord, (std::string, word, "" | repeated()));
};

struct Plain {
  BOOST_HANA_DEFINE_STRUCT(Plain, (int, width), (bool, deep));
};

template <class... Structs>
std::string faults_of(const Words& words) {
  return toy::fault_of<etude::ArgumentError>([&] { (void)parse_arguments<Structs...>(words); });
}

std::string help_of(const auto& parse) {
  try {
    parse();
  } catch (const etude::HelpRequested& help) {
    return help.what();
  }
  return "no HelpRequested";
}

/// The exit status of a process that runs `call`, and its output on stdout and stderr.
struct Ending {
  int status;
  std::string out, err;

  explicit Ending(const auto& call) {
    std::FILE *const out_file = std::tmpfile(), *const err_file = std::tmpfile();
    std::fflush(nullptr);
    const auto child = ::fork();
    if (child == 0) {
      ::dup2(::fileno(out_file), 1);
      ::dup2(::fileno(err_file), 2);
      call();
      ::_exit(99);
    }
    ::waitpid(child, &status, 0);
    status = WEXITSTATUS(status);
    out = text_of(out_file);
    err = text_of(err_file);
  }

 private:
  static std::string text_of(std::FILE* file) {
    std::string text(100000, '\0');
    std::rewind(file);
    text.resize(std::fread(text.data(), 1, text.size(), file));
    std::fclose(file);
    return text;
  }
};

struct ConfigFile {
  explicit ConfigFile(const std::string& text) { std::ofstream(path) << text; }
  ~ConfigFile() { std::filesystem::remove(path); }
  std::string path = fmt::format("{}/etude_command_line_{}_{}.json",
                                 std::filesystem::temp_directory_path().string(), ::getpid(), fmt::ptr(this));
};

TEST_CASE("an error in one field doesn't hide one in a field whose name contains its own") {
  try {
    etude::parse_arguments<etude::TrainingArguments>(
        {"--optim", "foo", "--optim_args", "bad", "--seed", "x", "--data_seed", "-1"});
    FAIL("nothing was thrown");
  } catch (const etude::ArgumentError& error) {
    const std::string what = error.what();
    CHECK(what.find("data_seed") != what.npos);
    CHECK(what.find("optim_args") != what.npos);
  }
}

TEST_CASE("without flags every field has its default") {
  const Run run = parse_arguments<Run>(Words{});
  CHECK(run.learning_rate == 0.1);
  CHECK(run.name == "run");
  CHECK(run.sizes == std::vector<std::int64_t>{8});
}

TEST_CASE("a flag and its value may be two words or one, with underscores or dashes") {
  CHECK(parse_arguments<Run>(Words{"--learning_rate", "1e-3"}).learning_rate == 1e-3);
  CHECK(parse_arguments<Run>(Words{"--learning_rate=1e-3"}).learning_rate == 1e-3);
  CHECK(parse_arguments<Run>(Words{"--learning-rate", ".5"}).learning_rate == 0.5);
  CHECK(parse_arguments<Run>(Words{"--learning-rate=+2"}).learning_rate == 2);
  CHECK(parse_arguments<Run>(Words{"--learning_rate", "-1.5"}).learning_rate == -1.5);
  CHECK(std::isinf(parse_arguments<Run>(Words{"--learning_rate", "-inf"}).learning_rate));
}

TEST_CASE("the last of two equal flags wins") {
  CHECK(parse_arguments<Run>(Words{"--seed", "1", "--seed", "2"}).seed == 2);
}

TEST_CASE("strings are taken literally") {
  CHECK(parse_arguments<Run>(Words{"--name", "a b, c=d"}).name == "a b, c=d");
  CHECK(parse_arguments<Run>(Words{"--name", ""}).name == "");
  CHECK(parse_arguments<Run>(Words{"--name="}).name == "");
  CHECK(parse_arguments<Run>(Words{"--name=--x=y"}).name == "--x=y");
  CHECK(parse_arguments<Run>(Words{"--name", "[1]"}).name == "[1]");
}

TEST_CASE("a switch stands alone, has a value or is negated") {
  CHECK(parse_arguments<Run>(Words{"--verbose"}).verbose);
  CHECK(parse_arguments<Run>(Words{"--verbose", "--seed", "1"}).verbose);
  CHECK(parse_arguments<Run>(Words{"--verbose", "true"}).verbose);
  CHECK(parse_arguments<Run>(Words{"--verbose=1"}).verbose);
  CHECK_FALSE(parse_arguments<Run>(Words{"--cache", "false"}).cache);
  CHECK_FALSE(parse_arguments<Run>(Words{"--cache=off"}).cache);
  CHECK_FALSE(parse_arguments<Run>(Words{"--no_cache"}).cache);
  CHECK_FALSE(parse_arguments<Run>(Words{"--no-cache"}).cache);
  CHECK(parse_arguments<Run>(Words{"--colours"}).colours == true);
  CHECK(parse_arguments<Run>(Words{"--no_colours"}).colours == false);
  CHECK(parse_arguments<Run>(Words{"--colours", "none"}).colours == std::nullopt);
}

TEST_CASE("whole numbers may be written as powers of ten") {
  CHECK(parse_arguments<Run>(Words{"--seed", "1e6"}).seed == 1000000);
  CHECK(parse_arguments<Run>(Words{"--seed", "-7"}).seed == -7);
}

TEST_CASE("none unsets an optional value") {
  CHECK(parse_arguments<Run>(Words{"--limit", "2"}).limit == 2);
  CHECK(parse_arguments(Words{"--limit", "none"}, Run{.limit = 3}).limit == std::nullopt);
  CHECK(parse_arguments(Words{"--labels=none"}, Run{.labels = Words{}}).labels == std::nullopt);
}

TEST_CASE("a list is several words, one with commas, or JSON") {
  using Sizes = std::vector<std::int64_t>;
  CHECK(parse_arguments<Run>(Words{"--sizes", "1", "2", "-3", "--seed", "1"}).sizes == Sizes{1, 2, -3});
  CHECK(parse_arguments<Run>(Words{"--sizes=1,2"}).sizes == Sizes{1, 2});
  CHECK(parse_arguments<Run>(Words{"--sizes", "[1, 2]"}).sizes == Sizes{1, 2});
  CHECK(parse_arguments<Run>(Words{"--sizes"}).sizes.empty());
  CHECK(parse_arguments<Run>(Words{"--sizes="}).sizes.empty());
  CHECK(parse_arguments<Run>(Words{"--labels", "a", "b"}).labels == Words{"a", "b"});
  CHECK(parse_arguments<Run>(Words{"--labels", R"(["a,b", "none"])"}).labels == Words{"a,b", "none"});
}

TEST_CASE("JSON and maps may be an object or name=value pairs") {
  CHECK(parse_arguments<Run>(Words{"--extra", "power=2,kind=x"}).extra ==
        nlohmann::json{{"power", 2}, {"kind", "x"}});
  CHECK(parse_arguments<Run>(Words{"--extra", R"({"a": [1]})"}).extra == nlohmann::json{{"a", {1}}});
  CHECK(parse_arguments<Run>(Words{"--weights", "a=1,b=0.5"}).weights == Weights{{"a", 1}, {"b", 0.5}});
  CHECK(parse_arguments<Nested>(Words{"--range", R"({"low": -5})"}).range.low == -5);
}

TEST_CASE("several structs are returned as a tuple, including those of Hana's own macros") {
  const auto [run, data, plain] =
      parse_arguments<Run, Data, Plain>(Words{"--batch_size", "2", "--seed", "3", "--width", "4", "--deep"});
  CHECK(run.seed == 3);
  CHECK(data.batch_size == 2);
  CHECK(plain.width == 4);
  CHECK(plain.deep);
}

TEST_CASE("a program may set its own defaults") {
  const auto [run, data] =
      parse_arguments(Words{"--seed", "1"}, Run{.learning_rate = 3, .seed = 5}, Data{.batch_size = 9});
  CHECK(run.learning_rate == 3);
  CHECK(run.seed == 1);
  CHECK(data.batch_size == 9);
}

TEST_CASE("a positional field takes words without a flag, in the order of the fields") {
  const auto one = parse_arguments<Copy>(Words{"a", "b"});
  CHECK(one.sources == Words{"a"});
  CHECK(one.target == "b");
  CHECK(one.skip == Words{"tmp"});
  const auto several = parse_arguments<Copy>(Words{"--force", "a,b", "[c]", "", "d", "--modes", "1", "2"});
  CHECK(several.sources == Words{"a,b", "[c]", ""});
  CHECK(several.target == "d");
  CHECK(several.force);
  CHECK(several.modes == std::vector<std::int64_t>{1, 2});
}

TEST_CASE("an optional positional field and a list that may be empty may be left out") {
  CHECK(parse_arguments<Count>(Words{"3"}).last == std::nullopt);
  const auto both = parse_arguments<Count>(Words{"3", "-4"});
  CHECK(both.first == 3);
  CHECK(both.last == -4);
  CHECK(parse_arguments<Others>(Words{}).more.empty());
  const auto [count, others] = parse_arguments<Count, Others>(Words{"1", "2", "x", "-"});
  CHECK(count.last == 2);
  CHECK(others.more == Words{"x", "-"});
}

TEST_CASE("after a double dash every word is positional") {
  const auto copy = parse_arguments<Copy>(Words{"--modes", "1", "--", "--force", "-h"});
  CHECK(copy.sources == Words{"--force"});
  CHECK(copy.target == "-h");
  CHECK_FALSE(copy.force);
}

TEST_CASE("beside positional fields a switch has its value after an equals sign only") {
  CHECK(parse_arguments<Copy>(Words{"--force", "true", "b"}).sources == Words{"true"});
  CHECK_FALSE(parse_arguments<Copy>(Words{"a", "b", "--force=false"}).force);
  CHECK_FALSE(parse_arguments(Words{"--no_force", "a", "b"}, Copy{.force = true}).force);
}

TEST_CASE("a repeated flag takes one word each time, as it is") {
  const auto copy = parse_arguments<Copy>(Words{"--skip", "x{1,2}", "a", "--skip=[y]", "b"});
  CHECK(copy.skip == Words{"x{1,2}", "[y]"});
  CHECK(copy.sources == Words{"a"});
  CHECK(copy.target == "b");
  CHECK(faults_of<Copy>({"a", "b", "--skip", "x", "--skip"}) == "--skip has no value: must be a string");
}

TEST_CASE("too few or too many positional words are errors that name the fields") {
  CHECK(faults_of<Copy>({}) ==
        "SOURCES is not given: must be files to copy\nTARGET is not given: must be where they go");
  CHECK(faults_of<Copy>({"b"}) == "SOURCES is not given: must be files to copy");
  CHECK(faults_of<Count>({}) == "FIRST is not given: must be a whole number, at least 1");
  CHECK(faults_of<Count>({"1", "2", "3", "4"}) ==
        "unexpected argument '3': the words without a flag are FIRST [LAST]\n"
        "unexpected argument '4': the words without a flag are FIRST [LAST]");
  CHECK(faults_of<Count>({"x", "y"}) ==
        "FIRST is 'x': must be a whole number, at least 1\nLAST is 'y': must be a whole number, or none");
  CHECK(faults_of<Count>({"0"}) == "first is 0: must be at least 1");
}

TEST_CASE("an unknown flag is not followed by an error about the word that it took") {
  CHECK(faults_of<Count>({"--fist", "1"}) == "unknown flag --fist");
  CHECK(faults_of<Copy>({"-f", "a", "b"}) == "unknown flag -f; did you mean '--force'?");
  CHECK(faults_of<Copy>({"a", "b", "--target", "c"}) == "unknown flag --target");
}

TEST_CASE("the config file may give positional fields, unless there is none") {
  const ConfigFile file(R"({"target": "there", "skip": ["a"]})");
  const auto copy = parse_arguments<Copy>(Words{"x", "y", "--config", file.path, "--skip", "b"});
  CHECK(copy.sources == Words{"x", "y"});
  CHECK(copy.target == "there");
  CHECK(copy.skip == Words{"b"});
  CHECK(faults_of<Count>({"1", "--config", file.path}) == "unknown flag --config");
}

TEST_CASE("a positional field or a repeated flag that can't be one is an error") {
  CHECK(faults_of<RepeatedWord>({}) ==
        "RepeatedWord has a field 'word', which is repeated(): must be a list");
  CHECK(faults_of<Copy, Others>({}) ==
        "Others has a field 'more', which is positional(), and so is 'sources': must be one list only");
}

TEST_CASE("help shows positional fields in the usage line, and what a struct says about itself") {
  CHECK(help_of([] { (void)parse_arguments<Copy>(Words{"--help"}); }) ==
        R"(Usage: program SOURCES ... TARGET [--flag value ...]

Copy files.

  SOURCES ...                   files to copy
  TARGET                        where they go
  --config FILE                 a JSON file with an object whose keys are flags
  --help                        this text
  --force[=BOOL]                overwrite (default: false)
  --skip TEXT                   a name to leave out; may be repeated
                                (default: ["tmp"])
  --modes INT ...               bits (default: [])

Folders are made.
)");
  const auto help = help_of([] { (void)parse_arguments<Count>(Words{"-h"}); });
  CHECK(help.starts_with("Usage: program FIRST [LAST] [--flag value ...]\n"));
  CHECK(help.find("--config") == help.npos);
  CHECK(help.find("LAST                          (default: none)") != help.npos);
}

TEST_CASE("all faults are reported at once") {
  CHECK(faults_of<Run, Data>({"stray",
                              "--learning_rat",
                              "3",
                              "--seed",
                              "1.5",
                              "--mode",
                              "fsat",
                              "--verbose",
                              "maybe",
                              "--sizes",
                              "1",
                              "two",
                              "--no_seed",
                              "--limit",
                              "--batch_size",
                              "0",
                              "--no_cache=1",
                              "--weights",
                              "a=x",
                              "--extra",
                              "oops",
                              "--name",
                              "a",
                              "b"}) ==
        R"(unexpected argument 'stray': write --name value
unexpected argument 'b': write --name value
unknown flag --learning_rat; did you mean '--learning_rate'?
--seed is '1.5': must be a whole number
--mode is 'fsat': must be one of fast, slow, careful; did you mean 'fast'?
--verbose is 'maybe': must be true or false
--sizes is '1 two': must be a list, each a whole number
unknown flag --no_seed
--limit has no value: must be a number, or none
--no_cache takes no value, but has '1'
--weights is 'a=x': must be an object (a is "x": must be a number)
--extra is 'oops': must be JSON ('oops' is not name=value)
batch_size is 0: must be at least 1)");
}

TEST_CASE("a whole number out of range or rounded is refused") {
  for (const auto wrong : {"1.5", "1e30", "9223372036854775808", "", "0x10", "1 2", "nan", "true"}) {
    CAPTURE(wrong);
    CHECK(faults_of<Run>({"--seed", wrong}) == fmt::format("--seed is '{}': must be a whole number", wrong));
  }
  CHECK(faults_of<Plain>({"--width", "3000000000"}) ==
        "--width is '3000000000': must be a whole number from -2147483648 to 2147483647");
}

TEST_CASE("a single dash, a lone double dash and help with a value are errors") {
  CHECK(faults_of<Run>({"-x"}) == "unexpected argument '-x': write --name value");
  CHECK(faults_of<Run>({"--"}) == "unexpected argument '--': write --name value");
  CHECK(faults_of<Run>({"--help=3"}) == "--help takes no value, but has '3'");
}

TEST_CASE("a struct's own validation error is reported, unless a reported fault causes it") {
  CHECK(faults_of<Member>({"--low", "5"}) == "low is 5: must be below high, 2");
  CHECK(faults_of<Member>({"--low", "5", "--high", "x"}) ==
        "--high is 'x': must be a whole number from -2147483648 to 2147483647");
}

TEST_CASE("the same name in two structs is an error that names both") {
  CHECK(faults_of<Run, Twin>({}) ==
        "Twin has a field 'seed', and so does Run: on a command line each name must be unique");
  CHECK(faults_of<Reserved>({}) ==
        "Reserved has a field 'config': must have another name, since --config has its own meaning");
}

TEST_CASE("flags override the config file, which overrides the defaults") {
  const ConfigFile file(R"({"learning_rate": 7, "seed": 8, "batch_size": 3, "limit": null, "mode": "slow"})");
  const auto [run, data] = parse_arguments<Run, Data>(Words{"--seed", "9", "--config", file.path});
  CHECK(run.learning_rate == 7);
  CHECK(run.seed == 9);
  CHECK(run.mode == Mode::slow);
  CHECK(run.name == "run");
  CHECK(data.batch_size == 3);
}

TEST_CASE("faults in the config file are reported with those of the flags") {
  const ConfigFile file(R"({"learning_rat": 7, "seed": "x", "batch_size": 0, "sizes": [1, 2.5]})");
  CHECK(faults_of<Run, Data>({"--config=" + file.path, "--mode", "x"}) ==
        fmt::format("{0}: seed is \"x\": must be a whole number\n"
                    "{0}: sizes[1] is 2.5: must be a whole number\n"
                    "{0}: unknown field 'learning_rat'; did you mean 'learning_rate'?\n"
                    "--mode is 'x': must be one of fast, slow, careful\n"
                    "batch_size is 0: must be at least 1",
                    file.path));
}

TEST_CASE("a struct may declare aliases of its members, for flags and the config file") {
  const ConfigFile file(R"({"pace": 7})");
  CHECK(faults_of<Renamed, Data>({"--config=" + file.path, "--pace", "1"}) ==
        fmt::format("{0}: unknown field 'pace'; did you mean 'speed'?\n"
                    "unknown flag --pace; did you mean '--speed'?",
                    file.path));
}

TEST_CASE("an unknown key inside a field of the config file is an error too") {
  const ConfigFile file(
      R"({"range": {"low": 1, "hihg": 2}, "ranges": [{}, {"lwo": 3}], "range.else": 4, "width": 5})");
  CHECK(faults_of<Nested, Plain>({"--config", file.path}) == fmt::format("{0}: unknown field 'range.else'\n"
                                                                         "{0}: unknown field 'range.hihg'\n"
                                                                         "{0}: unknown field 'ranges[1].lwo'",
                                                                         file.path));
}

TEST_CASE("a config file that can't be read is an error") {
  CHECK(faults_of<Run>({"--config", "/nowhere/at.json"}) ==
        "--config is '/nowhere/at.json': must be a JSON file that can be read");
  CHECK(faults_of<Run>({"--config"}) == "--config has no value: must be a JSON file");
  const ConfigFile list("[1]"), broken("{");
  CHECK(faults_of<Run>({"--config", list.path}) ==
        list.path + ": must hold a JSON object with the names of flags as keys");
  CHECK(faults_of<Run>({"--config", broken.path}).starts_with(broken.path + ": not JSON: "));
  CHECK(faults_of<Run>({"--config", "/"}) == "--config is '/': must be a JSON file that can be read");
}

TEST_CASE("help shows every flag with its documentation, choices and default") {
  const auto help = help_of([] { (void)parse_arguments<Run, Data>(Words{"--seed", "x", "-h"}); });
  CHECK(help.find(R"(
Run:
  --learning_rate NUMBER        size of a step (default: 0.1)
  --seed INT                    seed of all (default: 42)
  --verbose [BOOL]              say more (default: false)
  --cache [BOOL]                keep results (default: true)
  --name TEXT                   (default: run)
  --mode NAME                   how to go; one of fast, slow, careful
                                (default: fast)
  --limit NUMBER                where to end (default: none)
  --colours [BOOL]              use colours (default: none)
  --sizes INT ...               of layers (default: [8])
  --labels TEXT ...             names (default: none)
  --extra JSON                  more (default: {})
  --weights JSON                by name (default: {})

Data:
  --train_file TEXT             text to train on (default: "")
  --batch_size INT              examples at once (default: 4)
)") != help.npos);
  std::size_t longest = 0, start = 0;
  for (std::size_t end; (end = help.find('\n', start)) != help.npos; start = end + 1)
    longest = std::max(longest, end - start);
  CHECK(longest <= 80);
}

TEST_CASE("help shows the defaults of the program") {
  const auto help = help_of([] { (void)parse_arguments(Words{"--help"}, Data{.batch_size = 64}); });
  CHECK(help.find("examples at once (default: 64)") != help.npos);
}

TEST_CASE("main's overload skips the program's name") {
  const char* argv[] = {"/bin/train", "--seed", "5", nullptr};
  CHECK(parse_arguments<Run>(3, argv).seed == 5);
  CHECK(parse_arguments(3, argv, Run{.learning_rate = 4}).learning_rate == 4);
  CHECK(parse_arguments<Run>(0, argv + 3).seed == 42);
}

TEST_CASE("main's overload prints --help to stdout and exits with 0") {
  const char* argv[] = {"/bin/train", "--help"};
  const Ending ending([&] { (void)parse_arguments<Data>(2, argv); });
  CHECK(ending.status == 0);
  CHECK(ending.out.starts_with("Usage: train [--flag value ...]\n"));
  CHECK(ending.err == "");
}

TEST_CASE("main's overload prints faults to stderr and exits with 2") {
  const char* argv[] = {"/bin/train", "--batch_size", "0", "--trian_file=x"};
  const Ending ending([&] { (void)parse_arguments<Data>(4, argv); });
  CHECK(ending.status == 2);
  CHECK(ending.out == "");
  CHECK(ending.err ==
        "unknown flag --trian_file; did you mean '--train_file'?\n"
        "batch_size is 0: must be at least 1\n"
        "train: --help lists all flags\n");
}

}  // namespace reflect_command_line_test
