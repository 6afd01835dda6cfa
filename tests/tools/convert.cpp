#include <doctest/doctest.h>
#include <torch/torch.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "common/pickle_bytes.hpp"
#include "common/zip_bytes.hpp"
#include "etude/formats/safetensors.hpp"
#include "tools/program.hpp"
#include "tools/trained.hpp"

namespace tools_convert_test {

using namespace std::string_literals;
namespace fs = std::filesystem;
namespace pickled = toy::pickled;
using toy::contains;
using Named = std::map<std::string, torch::Tensor>;

// A file with tensors of several kinds, and the way to convert it.
struct Files {
  toy::Folder folder;
  std::string in = folder / "in.safetensors", out = folder / "out.safetensors";
  Named tensors;

  Files() {
    torch::manual_seed(1);
    tensors = {{"encoder.0.weight", torch::randn({3, 4})},
               {"encoder.0.bias", torch::randn({4}, torch::kDouble)},
               {"encoder.1.weight", torch::randn({2}).to(torch::kBFloat16)},
               {"head.weight", torch::randn({5, 2})},
               {"steps", torch::tensor({7, 8})},
               {"mask", torch::tensor({true, false})}};
    etude::save_safetensors(in, {tensors.begin(), tensors.end()}, {{"format", "pt"}, {"author", "me"}});
  }

  template <class... Words>
  toy::Ran convert(const Words&... words) const {
    return toy::etude_program("convert", words..., in, out);
  }

  Named written() const {
    const auto file = etude::load_safetensors(out);
    return {file.tensors.begin(), file.tensors.end()};
  }

  std::vector<std::string> names() const {
    std::vector<std::string> result;
    if (fs::exists(out))
      for (const auto& [name, tensor] : written()) result.push_back(name);
    return result;
  }
};

bool same(const torch::Tensor& a, const torch::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.equal(b);
}

TEST_CASE("without options, tensors and metadata stay as they are") {
  const Files files;
  const auto ran = files.convert("--json");
  CHECK(ran.end == "exit 0");
  CHECK(ran.json()["tensors"].size() == 6);
  const auto written = files.written();
  REQUIRE(written.size() == files.tensors.size());
  for (const auto& [name, tensor] : files.tensors) CHECK(same(written.at(name), tensor));
  CHECK(etude::load_safetensors(files.out).metadata ==
        std::map<std::string, std::string>{{"format", "pt"}, {"author", "me"}});
}

TEST_CASE("floating-point tensors are converted as torch converts them") {
  for (const auto& [name, dtype] :
       {std::pair("float16", torch::kHalf), std::pair("bfloat16", torch::kBFloat16),
        std::pair("float32", torch::kFloat)}) {
    const Files files;
    CHECK(files.convert("--dtype", name).end == "exit 0");
    for (const auto& [key, tensor] : files.written()) {
      CAPTURE(key);
      const auto& before = files.tensors.at(key);
      CHECK(same(tensor, key == "steps" || key == "mask" ? before : before.to(dtype)));
    }
  }
}

TEST_CASE("numbers that become infinite are reported") {
  const toy::Folder folder;
  const std::string in = folder / "in.safetensors", out = folder / "out.safetensors";
  const auto infinity = std::numeric_limits<float>::infinity();
  etude::save_safetensors(
      in, {{"w", torch::tensor({65504.f, 70000.f, -1e9f, infinity})}, {"b", torch::ones({1})}});
  const auto ran = toy::etude_program("convert", in, out, "--dtype", "float16");
  CHECK(ran.end == "exit 0");
  CHECK(ran.err == "etude: 'w': 2 numbers too large for float16 and become infinite\n");
}

TEST_CASE("names are mapped, replaced in order, kept and left out") {
  const Files files;
  SUBCASE("by regular expressions") {
    CHECK(files.convert("--rename", "^encoder\\.(\\d)=layers.$1", "--rename=weight$=w").end == "exit 0");
    CHECK(files.names() ==
          std::vector<std::string>{"head.w", "layers.0.bias", "layers.0.w", "layers.1.w", "mask", "steps"});
    CHECK(same(files.written().at("layers.0.w"), files.tensors.at("encoder.0.weight")));
  }
  SUBCASE("by a file, whose names the patterns don't change") {
    const auto map = files.folder / "map.json";
    toy::write_text(map, R"({"head.weight": "classifier.weight"})");
    CHECK(files.convert("--map", map.string(), "--rename", "weight=w").end == "exit 0");
    CHECK(files.names() == std::vector<std::string>{"classifier.weight", "encoder.0.bias", "encoder.0.w",
                                                    "encoder.1.w", "mask", "steps"});
  }
  SUBCASE("only some of them") {
    const auto ran = files.convert("--only", "^encoder", "--only", "head", "--drop", "\\.1\\.", "--json");
    CHECK(files.names() == std::vector<std::string>{"encoder.0.bias", "encoder.0.weight", "head.weight"});
    CHECK(ran.json()["tensors"].size() == 3);
  }
}

TEST_CASE("a mistake changes no file") {
  const Files files;
  toy::write_text(files.out, "old");
  const auto refused = [&](const toy::Ran& ran, const std::string& why) {
    CAPTURE(ran.err);
    CHECK(ran.end == "exit 2");
    CHECK(contains(ran.err, why));
    CHECK(ran.out == "");
    CHECK(toy::read_text(files.out) == "old");
    CHECK(toy::names_in(std::string(files.folder)) == toy::Names{"in.safetensors", "out.safetensors"});
  };
  refused(files.convert(), "which exists: --force overwrites it");
  refused(files.convert("--force", "--rename", "encoder\\.\\d\\.weight=w"),
          "'encoder.0.weight' and 'encoder.1.weight' both become 'w'");
  refused(files.convert("--force", "--rename", "encodr=x"),
          "--rename is 'encodr=x': matches none of the 6 names");
  refused(files.convert("--force", "--rename", "encoder"),
          "--rename is 'encoder': must be REGEX=REPLACEMENT");
  refused(files.convert("--force", "--only", "("), "--only is '(': must be a regular expression");
  refused(files.convert("--force", "--drop", "."), "no tensor is left");
  refused(files.convert("--force", "--rename", "^steps$="), "'steps' becomes ''");
  refused(files.convert("--force", "--dtype", "float64"), "--dtype");
  refused(files.convert("--force", "--key", "model"), "--key is 'model': must be given with a .pt file only");
  refused(toy::etude_program("convert", files.in, std::string(files.folder / "out.pt")),
          "must end in .safetensors, the only format that is written");
  refused(toy::etude_program("convert", files.in, std::string(files.folder), "--force"),
          "must end in .safetensors");
}

TEST_CASE("a map that doesn't fit is refused") {
  const Files files;
  const auto map = files.folder / "map.json";
  const auto refusal = [&](const std::string& text) {
    toy::write_text(map, text);
    const auto ran = files.convert("--map", map.string());
    CHECK(ran.end == "exit 2");
    return ran.err;
  };
  CHECK(contains(refusal(R"({"head.weigth": "w"})"),
                 "--map has 'head.weigth', which is no tensor; did you mean 'head.weight'?"));
  CHECK(contains(refusal(R"({"steps": 3})"), "steps"));
  CHECK(contains(refusal("[]"), "must be a JSON object of old and new names"));
  CHECK(!fs::exists(files.out));
}

TEST_CASE("an unreadable file leaves the old one in place") {
  const Files files;
  toy::write_text(files.out, "old");
  toy::write_text(files.in, "damaged");
  const auto ran = files.convert("--force");
  CHECK(ran.end == "exit 3");
  CHECK(contains(ran.err, files.in));
  CHECK(toy::read_text(files.out) == "old");
  const auto nowhere = files.folder / "nowhere" / "x.safetensors";
  const auto lost = toy::etude_program("convert", files.in, nowhere.string());
  CHECK(lost.end == "exit 3");
  CHECK(contains(lost.err, nowhere.string() + " can't be written: " + (files.folder / "nowhere").string()));
}

TEST_CASE("a file can be replaced by its conversion") {
  const Files files;
  CHECK(toy::etude_program("convert", files.in, files.in, "--dtype", "float16", "--force").end == "exit 0");
  CHECK(etude::load_safetensors(files.in).tensors.size() == 6);
}

TEST_CASE("tied weights stay tied, by their new names") {
  const toy::Folder folder;
  const auto w = pickled::tensor();
  const auto model = pickled::dict({{"embed.weight", w},
                                    {"head.weight", w},
                                    {"t", pickled::tensor({.strides = {1, 2}})},
                                    {"epoch", "K\1"}});
  // The floats 1, 2, 3, 4.
  toy::write_text(folder / "x.pt",
                  toy::zip_bytes({{"m/data.pkl", pickled::file(pickled::dict({{"model", model}}))},
                                  {"m/data/0", "\0\0\x80\x3f\0\0\0\x40\0\0\x40\x40\0\0\x80\x40"s}}));
  const std::string out = folder / "out.safetensors", again = folder / "again.safetensors";
  const auto ran = toy::etude_program("convert", (folder / "x.pt").string(), out, "--rename",
                                      "head=classifier", "--dtype", "bfloat16", "--json");
  REQUIRE(ran.end == "exit 0");
  CHECK(ran.err == "etude: skipped, not a tensor: epoch\n");
  CHECK(ran.json()["tied"] == nlohmann::ordered_json{{"embed.weight", "classifier.weight"}});
  const auto check = [](const std::string& path) {
    const auto file = etude::load_safetensors(path);
    CHECK(file.metadata ==
          std::map<std::string, std::string>{{"format", "pt"}, {"embed.weight", "classifier.weight"}});
    const Named tensors(file.tensors.begin(), file.tensors.end());
    REQUIRE(tensors.size() == 2);
    CHECK(
        same(tensors.at("classifier.weight"), torch::tensor({{1.f, 2.f}, {3.f, 4.f}}).to(torch::kBFloat16)));
    CHECK(same(tensors.at("t"), torch::tensor({{1.f, 3.f}, {2.f, 4.f}}).to(torch::kBFloat16)));
  };
  check(out);
  CHECK(toy::etude_program("convert", out, again).end == "exit 0");
  check(again);
}

TEST_CASE(
    "the weights of a checkpoint and of a run's newest one are converted, and none is written into one") {
  const toy::TrainedRun run;
  const toy::Folder folder;
  const std::string out = folder / "out.safetensors";
  const auto newest = toy::etude_program("convert", run.path, out, "--json");
  REQUIRE(newest.end == "exit 0");
  CHECK(newest.json()["from"] == run.checkpoint(8).string());
  const auto file = etude::load_safetensors(out);
  const Named tensors(file.tensors.begin(), file.tensors.end());
  CHECK(tensors.at("weight").item<float>() == run.weight);
  CHECK(tensors.at("bias").item<float>() == run.bias);

  CHECK(toy::etude_program("convert", run.checkpoint(2).string(), out, "--force").end == "exit 0");
  CHECK(etude::load_safetensors(out).tensors[1].second.item<float>() != run.weight);

  const auto refused = toy::etude_program("convert", out, (run.checkpoint(8) / "more.safetensors").string());
  CHECK(refused.end == "exit 2");
  CHECK(contains(refused.err, "must not lie in a checkpoint"));
  CHECK(!fs::exists(run.checkpoint(8) / "more.safetensors"));
}

TEST_CASE("a name that is too long for a pattern is refused, and none ends the program") {
  const toy::Folder folder;
  const std::string in = folder / "in.safetensors", out = folder / "out.safetensors";
  etude::save_safetensors(in, {{std::string(1'000'000, 'a'), torch::ones({1})}});
  const auto ran = toy::etude_program("convert", in, out, "--only", "(a|b)*");
  CHECK(ran.end == "exit 2");
  CHECK(contains(ran.err, "has 1000000 characters"));
  CHECK(toy::etude_program("convert", in, out).end == "exit 0");
}

}  // namespace tools_convert_test
