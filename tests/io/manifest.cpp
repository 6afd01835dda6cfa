#include "etude/io/manifest.hpp"

#include <doctest/doctest.h>

#include <string>

#include "common/fault_of.hpp"
#include "common/folder.hpp"
#include "etude/base/error.hpp"

namespace io_manifest_test {

using toy::contains;

etude::Manifest example() {
  return {.etude = "0.1.0",
          .libtorch = "2.13.0",
          .run = "a1b2",
          .serial = 3,
          .global_step = 20,
          .reason = "best",
          .files = {{"model.safetensors", {.size = 12, .xxh3_128 = std::string(32, 'a')}},
                    {"tokenizer/vocab.json", {.size = 0, .xxh3_128 = "99aa06d3014798d86001c324468d497f"}}}};
}

std::string sum_of(std::string_view text) { return etude::checksum(std::as_bytes(std::span(text))); }

// Adds a correct checksum, so that reading gets as far as checking the contents.
std::string signed_text(const std::string& body) {
  return body + ",\n  \"checksum\": \"" + sum_of(body) + "\"\n}\n";
}

std::string fault_of(const std::string& text) {
  return toy::fault_of<etude::CheckpointError>([&] { etude::from_manifest_text(text); });
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  return text.replace(text.find(from), from.size(), to);
}

TEST_CASE("a manifest is JSON that ends with the checksum of everything before it") {
  const std::string body = R"({
  "format": 1,
  "etude": "0.1.0",
  "libtorch": "2.13.0",
  "run": "a1b2",
  "serial": 3,
  "global_step": 20,
  "reason": "best",
  "files": {
    "model.safetensors": {
      "size": 12,
      "xxh3_128": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
    },
    "tokenizer/vocab.json": {
      "size": 0,
      "xxh3_128": "99aa06d3014798d86001c324468d497f"
    }
  })";
  // `xxhsum -H2` of the body.
  const std::string expected = body + ",\n  \"checksum\": \"dde464ba50d2fca35ce7f5143b339e1c\"\n}\n";
  CHECK(etude::to_manifest_text(example()) == expected);
  CHECK((etude::from_manifest_text(expected) == example()));
  CHECK(etude::parse_json(expected)["checksum"] == "dde464ba50d2fca35ce7f5143b339e1c");
}

TEST_CASE("a manifest round-trips") {
  CHECK((etude::from_manifest_text(etude::to_manifest_text(etude::Manifest{})) == etude::Manifest{}));
  auto manifest = example();
  manifest.files["naïve \"name\"\n"] = {.size = ~std::uint64_t{0}, .xxh3_128 = std::string(32, '0')};
  manifest.reason = "\",\n  \"checksum\": \"";
  CHECK((etude::from_manifest_text(etude::to_manifest_text(manifest)) == manifest));
  CHECK(etude::Manifest{}.format == 1);
  CHECK(etude::Manifest{}.etude == etude::version_text());
}

TEST_CASE("every flipped bit and every truncation of a manifest is detected") {
  const auto text = etude::to_manifest_text(example());
  for (std::size_t bit = 0; bit < text.size() * 8; ++bit) {
    auto damaged = text;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    CAPTURE(bit);
    CHECK(fault_of(damaged) != "nothing was thrown");
  }
  for (std::size_t size = 0; size < text.size(); ++size)
    CHECK(fault_of(text.substr(0, size)) != "nothing was thrown");
  CHECK(fault_of(text + "\n") == "it has no checksum at the end");
  CHECK(contains(fault_of(replaced(text, "\"global_step\": 20", "\"global_step\": 21")), "it is damaged"));
}

TEST_CASE("the error about a newer manifest format names the supported version") {
  const auto fault = fault_of(signed_text("{\n  \"format\": 2"));
  CHECK(fault == "format is 2: this version of Etude (" + etude::version_text() + ") knows 1 to 1");
  CHECK(contains(fault_of(signed_text("{\n  \"format\": 0")), "format is 0"));
}

TEST_CASE("unknown keys of a manifest are skipped") {
  CHECK(fault_of(signed_text("{\n  \"format\": 1,\n  \"later\": {\"a\": [1]}")) == "nothing was thrown");
}

TEST_CASE("an invalid manifest is refused even if its checksum is right") {
  CHECK(contains(fault_of(signed_text("{\n  \"format\": ")), "not JSON"));
  CHECK(contains(fault_of(signed_text("{\n  \"serial\": \"x\"")), "serial is \"x\""));
  CHECK(contains(fault_of(signed_text("{\n  \"files\": [1]")), "files is [1]"));
  CHECK(contains(fault_of(signed_text(R"({"files": {"a": {"size": -1}})")), "files.a.size is -1"));
  CHECK(contains(fault_of(signed_text(R"({"files": {"a": {"size": 1, "xxh3_128": "AB"}})")), "is 'AB'"));
  CHECK(contains(fault_of(signed_text("{\"files\": " + std::string(100'000, '['))), "nested deeper"));
}

TEST_CASE("names that leave the folder are refused") {
  const auto with_name = [](const std::string& name) {
    return fault_of(signed_text(R"({"files": {")" + name +
                                R"(": {"size": 0, "xxh3_128": "99aa06d3014798d86001c324468d497f"}})"));
  };
  CHECK(with_name("a") == "nothing was thrown");
  CHECK(with_name("a/b..c/.d") == "nothing was thrown");
  CHECK(contains(with_name(""), "it is empty"));
  CHECK(contains(with_name("/etc/passwd"), "it is absolute"));
  for (const auto* name : {"..", ".", "../x", "a/../b", "a/..", "./a", "a//b", "a/", "a/./b"})
    CHECK(contains(with_name(name), std::string("'") + name + "' can't be a file's name: one of its parts"));
  CHECK(contains(with_name("a\\u0000b"), "NUL"));
  CHECK(contains(with_name("etude_manifest.json"), "the manifest's name"));
}

TEST_CASE("a run's name has to be a single part of a path") {
  const auto with_run = [](const std::string& run) {
    return fault_of(signed_text("{\n  \"run\": \"" + run + "\""));
  };
  for (const auto& run : {std::string(), std::string("aZ09-_"), std::string(64, 'x')})
    CHECK(with_run(run) == "nothing was thrown");
  for (const auto& run : std::vector<std::string>{"a/b", "..", "a b", "ü", "a\\u0000", std::string(65, 'x')})
    CHECK(contains(with_run(run), "run must be at most 64 letters, digits, '-' and '_'"));
}

TEST_CASE("a name that isn't UTF-8 can't be written") {
  auto manifest = example();
  manifest.files["\xff"] = {.size = 0, .xxh3_128 = std::string(32, '0')};
  CHECK_THROWS_AS(etude::to_manifest_text(manifest), etude::CheckpointError);
}

TEST_CASE("errors of read_manifest name the file") {
  const toy::Folder folder;
  const auto path = folder / "etude_manifest.json";
  CHECK_THROWS_WITH_AS(etude::read_manifest(std::string(folder)),
                       (path.string() + " can't be read: No such file or directory").c_str(),
                       etude::CheckpointError);
  toy::write_text(path, "{}");
  CHECK_THROWS_WITH_AS(etude::read_manifest(std::string(folder)),
                       (path.string() + ": it has no checksum at the end").c_str(), etude::CheckpointError);
  toy::write_text(path, etude::to_manifest_text(example()));
  CHECK((etude::read_manifest(std::string(folder)) == example()));
  std::filesystem::resize_file(path, (64 << 20) + 1);
  CHECK_THROWS_WITH_AS(etude::read_manifest(std::string(folder)), doctest::Contains("at most 67108864"),
                       etude::CheckpointError);
}

}  // namespace io_manifest_test
