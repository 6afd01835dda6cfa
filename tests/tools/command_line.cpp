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
  for (const auto* name : {"inspect", "verify", "convert", "compare", "report", "describe", "completion"}) {
    CHECK(contains(help.out, name));
    const auto more = toy::etude_program(name, "--help");
    CHECK(more.end == "exit 0");
    CHECK(contains(more.out, fmt::format("etude {}", name)));
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
  CHECK(contains(answer({"inspekt", "x"}), "did you mean 'inspect'?"));
  CHECK(contains(answer({"inspect", "x", "--tensor"}), "did you mean '--tensors'?"));
  CHECK(contains(answer({"inspect"}), "PATH"));
  CHECK(contains(answer({"convert", "x"}), "OUT"));
  CHECK(contains(answer({"convert", "a", "b.safetensors", "--dtype", "half"}), "bfloat16,float16,float32"));
  CHECK(contains(answer({"completion", "tcsh"}), "bash,zsh,fish"));
  CHECK(toy::is_plain(answer({"\x1b[31m"})));
}

TEST_CASE("output that can't be written is an error") {
  const auto ran = toy::run_program("/bin/sh", {"-c", "\"$0\" describe >/dev/full", ETUDE_TOOL});
  CHECK(ran.end == "exit 3");
  CHECK(contains(ran.err, "stdout can't be written to"));
}

// The words that bash offers after these, by the script of the program.
std::string offered(const std::string& words, int place) {
  const auto script = fmt::format(
      "source <(\"$0\" completion bash) && complete -p etude >&2 && COMP_WORDS=({}) COMP_CWORD={} && _etude "
      "&& "
      "echo \"${{COMPREPLY[*]}}\"",
      words, place);
  const auto ran = toy::run_program("bash", {"--norc", "-c", script, ETUDE_TOOL});
  CHECK(ran.end == "exit 0");
  CHECK(contains(ran.err, "-F _etude etude"));
  return ran.out;
}

TEST_CASE("bash completes subcommands, options and values") {
  CHECK(offered("etude co", 1) == "convert compare completion\n");
  CHECK(offered("etude --v", 1) == "--version\n");
  CHECK(offered("etude inspect --", 2) == "--help --tensors --key --json\n");
  CHECK(offered("etude convert a b --dtype b", 5) == "bfloat16\n");
  CHECK(offered("etude convert a b --dtype = float", 6) == "float16 float32\n");
  CHECK(offered("etude describe max_g", 2) == "max_grad_norm max_grad_value\n");
  CHECK(offered("etude completion ''", 2) == "bash zsh fish\n");
  // Left to bash, which completes files.
  CHECK(offered("etude inspect ru", 2) == "\n");
  CHECK(offered("etude report a -o ", 4) == "\n");
  CHECK(offered("etude convert --map m", 3) == "\n");
}

TEST_CASE("zsh and fish take their scripts") {
  for (const auto& [shell, flag] : {std::pair("zsh", "-n"), std::pair("fish", "--no-execute")}) {
    const auto script = toy::etude_program("completion", shell);
    CHECK(script.end == "exit 0");
    CHECK(contains(script.out, "inspect"));
    if (toy::run_program("which", {shell}).end != "exit 0") continue;
    const toy::Folder folder;
    toy::write_text(folder / "script", script.out);
    const auto ran = toy::run_program(shell, {flag, folder / "script"});
    CHECK(ran.err == "");
    CHECK(ran.end == "exit 0");
  }
}

}  // namespace tools_command_line_test
