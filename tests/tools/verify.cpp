#include <doctest/doctest.h>

#include <filesystem>
#include <functional>
#include <string>

#include "common/pickle_bytes.hpp"
#include "common/zip_bytes.hpp"
#include "etude/io/folder.hpp"
#include "tools/program.hpp"
#include "tools/trained.hpp"

namespace tools_verify_test {

namespace fs = std::filesystem;
namespace pickled = toy::pickled;
using toy::contains;

const toy::TrainedRun& trained() {
  static const toy::TrainedRun run;
  return run;
}

// A copy of a checkpoint that a test may damage.
struct Copy {
  toy::Folder folder;
  fs::path path = folder / "checkpoint-8";

  Copy() { fs::copy(trained().checkpoint(8), path, fs::copy_options::recursive); }

  // Replaces a file's contents, and updates the manifest to match.
  void rewrite(const std::string& file, const std::string& text) const {
    etude::FolderReader reader(path);
    toy::QuickFiles files;
    etude::FolderWriter writer(files, path, path.string() + ".partial");
    for (const auto& [name, info] : reader.manifest()->files)
      writer.write_text(name, name == file ? std::string_view(text) : reader.text(name));
    writer.commit(*reader.manifest());
  }
};

// The only fault and the file that has it.
void check_fault(const Copy& copy, const std::string& file, const std::string& text) {
  const auto ran = toy::etude_program("verify", copy.path.string(), "--json");
  CAPTURE(ran.out);
  CHECK(ran.end == "exit 1");
  CHECK(ran.err == "");
  const auto json = ran.json();
  CHECK(json["ok"] == false);
  const auto& faults = json["verified"][0]["faults"];
  REQUIRE(faults.size() == 1);
  CHECK(faults[0]["file"] == file);
  CHECK(contains(faults[0]["fault"].get<std::string>(), text));
}

TEST_CASE("a whole run is ok") {
  const auto ran = toy::etude_program("verify", trained().path);
  CHECK(ran.end == "exit 0");
  for (const int step : {2, 4, 6, 8})
    CHECK(contains(ran.out, trained().checkpoint(step).string() + ": ok, "));
  CHECK(contains(ran.out, "trainer_state.json: ok"));
  const auto json = toy::etude_program("verify", trained().checkpoint(8).string(), "--json").json();
  CHECK(json["ok"] == true);
  CHECK(json["verified"][0]["has_checksums"] == true);
}

TEST_CASE("damage is named") {
  const Copy copy;
  const auto optimizer = toy::read_text(copy.path / "optimizer.safetensors");
  SUBCASE("a truncated file") {
    toy::write_text(copy.path / "optimizer.safetensors", optimizer.substr(0, optimizer.size() - 3));
    check_fault(
        copy, "optimizer.safetensors",
        fmt::format("it has {} bytes, but the manifest lists {}", optimizer.size() - 3, optimizer.size()));
  }
  SUBCASE("a flipped bit") {
    auto text = optimizer;
    text.back() = static_cast<char>(text.back() ^ 4);
    toy::write_text(copy.path / "optimizer.safetensors", text);
    check_fault(copy, "optimizer.safetensors", "is damaged: its checksum is");
  }
  SUBCASE("a missing file") {
    fs::remove(copy.path / "scheduler.json");
    check_fault(copy, "scheduler.json", "scheduler.json can't be read: No such file or directory");
  }
  SUBCASE("a changed manifest") {
    auto text = toy::read_text(copy.path / "etude_manifest.json");
    text[text.find("periodic")] = 'P';
    toy::write_text(copy.path / "etude_manifest.json", text);
    check_fault(copy, "etude_manifest.json", "it is damaged");
  }
  SUBCASE("a missing manifest") {
    fs::remove(copy.path / "etude_manifest.json");
    check_fault(copy, "etude_manifest.json", "etude_manifest.json is missing");
  }
  SUBCASE("a header that leads outside of the file") {
    copy.rewrite(
        "model.safetensors",
        toy::safetensors_bytes(R"({"weight":{"dtype":"F32","shape":[1],"data_offsets":[0,400]}})", "1234"));
    check_fault(copy, "model.safetensors",
                "tensor 'weight': data_offsets: [0,400] isn't a range of the 4 bytes");
  }
  SUBCASE("JSON that isn't") {
    copy.rewrite("optimizer.json", "{\"type\": ");
    check_fault(copy, "optimizer.json", "optimizer.json: ");
  }
  SUBCASE("a state that no training has") {
    auto text = toy::read_text(copy.path / "trainer_state.json");
    const std::string step = "\"global_step\": 8";
    text.replace(text.find(step), step.size(), "\"global_step\": -8");
    copy.rewrite("trainer_state.json", text);
    check_fault(copy, "", "global_step must be from 0 to 1e15");
  }
}

TEST_CASE("each fault is listed, in text too") {
  const Copy copy;
  fs::remove(copy.path / "scheduler.json");
  toy::write_text(copy.path / "optimizer.json", "{}");
  const auto ran = toy::etude_program("verify", copy.path.string());
  CHECK(ran.end == "exit 1");
  CHECK(contains(ran.out, ": 2 faults\n"));
  CHECK(contains(ran.out, "optimizer.json is damaged"));
  CHECK(contains(ran.out, "scheduler.json can't be read"));
}

TEST_CASE("a file that the manifest doesn't list is a fault, unless it is allowed") {
  const Copy copy;
  fs::create_directory(copy.path / "more");
  toy::write_text(copy.path / "more" / "notes\x1b.txt", "");
  check_fault(copy, "more/notes\x1b.txt", "is not in the manifest");
  CHECK(toy::is_plain(toy::etude_program("verify", copy.path.string()).out));
  CHECK(toy::etude_program("verify", copy.path.string(), "--allow-extra").end == "exit 0");
}

TEST_CASE("the checkpoint of another program is verified without checksums") {
  const toy::Folder folder;
  fs::copy(trained().checkpoint(8) / "model.safetensors", folder / "model.safetensors");
  toy::write_text(folder / "trainer_state.json", R"({"global_step": 3, "epoch": 1.0, "loss": NaN})");
  const auto good = toy::etude_program("verify", std::string(folder));
  CHECK(good.end == "exit 0");
  CHECK(contains(good.out, "without a manifest: checksums are unknown"));
  toy::write_text(folder / "trainer_state.json", R"({"global_step": "three"})");
  const auto bad = toy::etude_program("verify", std::string(folder));
  CHECK(bad.end == "exit 1");
  CHECK(contains(bad.out, "trainer_state.json: global_step"));
}

TEST_CASE("a folder that only has a checkpoint's name is a fault") {
  const toy::Folder folder;
  fs::create_directory(folder / "checkpoint-3");
  const auto ran = toy::etude_program("verify", std::string(folder));
  CHECK(ran.end == "exit 1");
  CHECK(contains(ran.out,
                 "checkpoint-3 has no model: neither model.safetensors nor model.safetensors.index.json"));
  CHECK(toy::etude_program("inspect", std::string(folder)).end == "exit 3");
}

TEST_CASE("files of tensors are verified whole") {
  const toy::Folder folder;
  const std::string bools = folder / "bools.safetensors", pt = folder / "x.pt";
  toy::write_text(
      bools, toy::safetensors_bytes(R"({"b":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}})", "\1\1"));
  const std::string pickle = pickled::file(pickled::dict({{"w", pickled::tensor()}}));
  toy::write_text(pt, toy::zip_bytes({{"m/data.pkl", pickle}, {"m/data/0", std::string(16, '\0')}}));
  CHECK(toy::etude_program("verify", bools, pt).end == "exit 0");

  toy::write_text(
      bools, toy::safetensors_bytes(R"({"b":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}})", "\1\2"));
  toy::write_text(pt, toy::zip_bytes({{"m/data.pkl", pickle},
                                      {.name = "m/data/0", .data = std::string(16, '\0'), .checksum = 1}}));
  const auto ran = toy::etude_program("verify", bools, pt);
  CHECK(ran.end == "exit 1");
  CHECK(contains(ran.out, "tensor 'b': a BOOL must be 0 or 1"));
  CHECK(contains(ran.out, pt + ": 1 fault\n"));
}

TEST_CASE("a path that can't be read is exit 3, and the others are verified all the same") {
  const auto ran = toy::etude_program("verify", "/nowhere", trained().checkpoint(2).string());
  CHECK(ran.end == "exit 3");
  CHECK(contains(ran.err, "/nowhere can't be read: No such file or directory"));
  CHECK(contains(ran.out, ": ok, "));
}

}  // namespace tools_verify_test
