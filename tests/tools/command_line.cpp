#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>
#include <vector>

#include "etude/io/manifest.hpp"
#include "tools/program.hpp"

namespace tools_command_line_test {

using toy::contains;

TEST_CASE("help and the version are printed") {
  const auto help = toy::etude_program("--help");
  CHECK(help.end == "exit 0");
  CHECK(help.err == "");
  CHECK(toy::is_plain(help.out));
  for (const auto* name :
       {"train", "evaluate", "predict", "inspect", "verify", "convert", "compare", "report", "describe"}) {
    CHECK(contains(help.out, fmt::format("\n  {} ", name)));
    const auto more = toy::etude_program(name, "--help");
    CHECK(more.end == "exit 0");
    CHECK(contains(more.out, fmt::format("Usage: etude {} ", name)));
    CHECK(toy::is_plain(more.out));
  }
  const auto version = toy::etude_program("--version");
  CHECK(version.end == "exit 0");
  CHECK(version.out.starts_with("etude " + etude::version_text() + " (LibTorch "));
}

TEST_CASE("wrong words are exit 2 and name what is right") {
  const auto answer = [](std::vector<std::string> words) {
    const auto ran = toy::run_program(ETUDE_TOOL, std::move(words));
    CHECK(ran.end == "exit 2");
    CHECK(ran.out == "");
    CHECK(contains(ran.err, "etude: "));
    return ran.err;
  };
  CHECK(contains(answer({}), "etude --help"));
  CHECK(contains(answer({"--versoin"}), "did you mean '--version'?"));
  CHECK(contains(answer({"inspekt", "x"}), "did you mean 'inspect'?"));
  CHECK(contains(answer({"inspect", "x", "--tensor"}), "did you mean '--tensors'?"));
  CHECK(contains(answer({"inspect", "--tensor", "x"}), "etude: see etude inspect --help\n"));
  CHECK(contains(answer({"inspect"}), "PATH is not given"));
  CHECK(
      contains(answer({"inspect", "x", "y"}), "unexpected argument 'y': the words without a flag are PATH"));
  CHECK(contains(answer({"verify"}), "PATHS is not given"));
  CHECK(contains(answer({"convert", "x"}), "OUT is not given"));
  CHECK(contains(answer({"convert", "a", "b.safetensors", "--dtype", "half"}),
                 "must be one of bfloat16, float16, float32"));
  CHECK(contains(answer({"report", "x"}), "output is not given"));
  CHECK(contains(answer({"report", "x", "-o", "page.html"}), "unknown flag -o; did you mean '--output'?"));
  CHECK(contains(answer({"inspect", "x", "--config", "y"}), "unknown flag --config"));
  CHECK(toy::is_plain(answer({"\x1b[31m"})));
  CHECK(toy::is_plain(answer({"inspect", "x", "\x1b[31m"})));
}

TEST_CASE("output that can't be written is an error") {
  const auto ran = toy::run_program("/bin/sh", {"-c", "\"$0\" describe >/dev/full", ETUDE_TOOL});
  CHECK(ran.end == "exit 3");
  CHECK(contains(ran.err, "stdout can't be written to"));
}

}  // namespace tools_command_line_test
