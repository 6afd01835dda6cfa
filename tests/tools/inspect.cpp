#include <doctest/doctest.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "common/pickle_bytes.hpp"
#include "common/zip_bytes.hpp"
#include "tools/program.hpp"
#include "tools/trained.hpp"

namespace tools_inspect_test {

using namespace std::string_literals;
namespace fs = std::filesystem;
namespace pickled = toy::pickled;
using Json = nlohmann::ordered_json;
using toy::contains;

const toy::TrainedRun& trained() {
  static const toy::TrainedRun run;
  return run;
}

TEST_CASE("a checkpoint's state, arguments and files are shown") {
  const auto& run = trained();
  const auto ran = toy::etude_program("inspect", run.checkpoint(8).string() + "/", "--tensors", "--json");
  REQUIRE(ran.end == "exit 0");
  CHECK(ran.err == "");
  const auto json = ran.json();
  CHECK(json["kind"] == "checkpoint");
  CHECK(json["path"] == run.checkpoint(8).string());
  CHECK(json["global_step"] == 8);
  CHECK(json["max_steps"] == 8);
  CHECK(json["epoch"] == 2.0);
  CHECK(json["best_metric"] == *run.state.best_metric);
  CHECK(json["best_metric_name"] == "eval_loss");
  CHECK(json["best_global_step"] == *run.state.best_global_step);
  CHECK(json["loop"]["stage"].is_string());
  REQUIRE(json["callbacks"].size() == 1);
  CHECK(json["callbacks"].contains("EarlyStoppingCallback"));
  CHECK(json["manifest"]["reason"] == "periodic");

  // Exactly the arguments that were passed to the training.
  std::set<std::string> names;
  for (const auto& [name, value] : json["arguments"].items()) names.insert(name);
  CHECK(names == std::set<std::string>{
                     "output_dir", "per_device_train_batch_size", "per_device_eval_batch_size",
                     "num_train_epochs", "learning_rate", "lr_scheduler_type", "eval_strategy", "eval_steps",
                     "save_steps", "logging_steps", "log_level", "disable_tqdm", "metric_for_best_model"});
  CHECK(json["arguments"]["learning_rate"] == 0.1);

  REQUIRE(json["optimizers"].size() == 1);
  CHECK(json["optimizers"][0]["options"]["lr"] == 0.1);

  std::map<std::string, std::uint64_t> listed, there;
  for (const auto& file : json["files"]) listed.emplace(file["name"], file["size"]);
  for (const auto& entry : fs::directory_iterator(run.checkpoint(8)))
    there.emplace(entry.path().filename(), entry.file_size());
  there.erase("etude_manifest.json");
  CHECK(listed == there);

  for (const auto& file : json["files"])
    if (file["name"] == "model.safetensors")
      CHECK(file["tensors"] == Json::parse(R"({"count": 2, "elements": 2, "bytes": 8, "tensors": [
              {"name": "bias", "dtype": "float32", "shape": [1], "bytes": 4},
              {"name": "weight", "dtype": "float32", "shape": [1], "bytes": 4}], "tied": {}})"));
}

TEST_CASE("the text for people has the same") {
  const auto ran = toy::etude_program("inspect", trained().checkpoint(6).string(), "--tensors");
  REQUIRE(ran.end == "exit 0");
  for (const auto* part :
       {"6 of 8, epoch 1.50 of 2", "after a step", "eval_loss ", "EarlyStoppingCallback", "learning_rate",
        "model.safetensors", "2 tensors, 2 elements", "weight", "float32", "[1]"}) {
    CAPTURE(part);
    CHECK(contains(ran.out, part));
  }
  CHECK(toy::is_plain(ran.out));
}

TEST_CASE("the best value has the name of its metric, the loss if no other was chosen") {
  const toy::Folder folder;
  fs::copy(trained().checkpoint(8), folder / "checkpoint-8", fs::copy_options::recursive);
  const auto file = folder / "checkpoint-8" / "training_args.json";
  auto arguments = Json::parse(toy::read_text(file));
  arguments["metric_for_best_model"] = nullptr;
  toy::write_text(file, arguments.dump());
  const auto ran = toy::etude_program("inspect", (folder / "checkpoint-8").string());
  CHECK(ran.end == "exit 0");
  CHECK(contains(ran.out, "eval_loss "));
}

TEST_CASE("a run is shown by its newest checkpoint, and damaged ones are listed") {
  const toy::Folder folder;
  fs::copy(trained().path, folder / "run", fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  const auto run = folder / "run";
  auto json = toy::etude_program("inspect", run.string(), "--json").json();
  CHECK(json["kind"] == "run");
  CHECK(json["checkpoints"].size() == 4);
  CHECK(json["newest"]["global_step"] == 8);

  toy::write_text(run / "checkpoint-8" / "etude_manifest.json", "{}");
  const auto ran = toy::etude_program("inspect", run.string(), "--json");
  CHECK(ran.end == "exit 0");
  json = ran.json();
  CHECK(json["newest"]["global_step"] == 6);
  CHECK(contains(json["checkpoints"][3]["fault"].get<std::string>(), "no checksum at the end"));
  CHECK(contains(ran.err, "skipping " + (run / "checkpoint-8").string()));
}

TEST_CASE("a safetensors file's tensors, totals, ties and metadata are shown") {
  const toy::Folder folder;
  const std::string header = R"({"__metadata__":{"format":"pt","head":"body","note":"n"},)"
                             R"("body":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},)"
                             R"("steps":{"dtype":"I64","shape":[],"data_offsets":[12,20]}})";
  toy::write_text(folder / "x.safetensors", toy::safetensors_bytes(header, std::string(20, '\0')));
  const auto json =
      toy::etude_program("inspect", (folder / "x.safetensors").string(), "--tensors", "--json").json();
  CHECK(json["tensors"] == Json::parse(R"({"count": 2, "elements": 7, "bytes": 20, "tensors": [
          {"name": "body", "dtype": "bfloat16", "shape": [2, 3], "bytes": 12},
          {"name": "steps", "dtype": "int64", "shape": [], "bytes": 8}], "tied": {"head": "body"}})"));
  CHECK(json["metadata"] == Json::parse(R"({"format": "pt", "note": "n"})"));
  const auto text = toy::etude_program("inspect", (folder / "x.safetensors").string()).out;
  CHECK(contains(text, "2 tensors, 7 elements, 20 B"));
  CHECK(!contains(text, "steps"));
}

TEST_CASE("the tensors of a .pt file are shown, or those of one of its dicts") {
  const toy::Folder folder;
  const auto w = pickled::tensor();
  const auto model = pickled::dict({{"w", w}, {"again", w}, {"epoch", "K\1"}});
  const auto both = pickled::dict({{"model", model}, {"ema", pickled::dict({{"w", w}})}});
  toy::write_text(folder / "x.pt",
                  toy::zip_bytes({{"m/data.pkl", pickled::file(both)}, {"m/data/0", std::string(16, '\0')}}));
  const std::string path = folder / "x.pt";
  const auto all = toy::etude_program("inspect", path, "--tensors", "--json").json();
  CHECK(all["tensors"]["tensors"][0]["name"] == "model.w");
  CHECK(all["tensors"]["tied"] == Json{{"ema.w", "model.w"}, {"model.again", "model.w"}});
  CHECK(toy::etude_program("verify", path).end == "exit 0");
  const auto json = toy::etude_program("inspect", path, "--key", "model", "--tensors", "--json").json();
  CHECK(json["tensors"] == Json::parse(R"({"count": 1, "elements": 4, "bytes": 16, "tensors": [
          {"name": "w", "dtype": "float32", "shape": [2, 2], "bytes": 16}], "tied": {"again": "w"}})"));
  CHECK(json["skipped"] == Json::parse(R"(["epoch"])"));
}

TEST_CASE("text in a file can't control the terminal") {
  const toy::Folder folder;
  const std::string header =
      R"({"__metadata__":{"a\u001b[31m":"\u009b2J\u202e"},"\u001b]0;title\u0007\nw":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  toy::write_text(folder / "x.safetensors", toy::safetensors_bytes(header, "x"));
  for (const auto* form : {"--tensors", "--json"}) {
    const auto ran = toy::etude_program("inspect", (folder / "x.safetensors").string(), "--tensors", form);
    CAPTURE(ran.out);
    CHECK(ran.end == "exit 0");
    CHECK(toy::is_plain(ran.out));
    CHECK(!contains(ran.out, "\xC2\x9B"));
    CHECK(!contains(ran.out, "\xE2\x80\xAE"));
    CHECK(contains(ran.out, "title"));
  }
  const auto missing = toy::etude_program("inspect", "/nowhere/\x1b[31m");
  CHECK(toy::is_plain(missing.err));
}

TEST_CASE("what isn't a checkpoint is refused by its path and kind") {
  const toy::Folder folder;
  toy::write_text(folder / "notes.txt", "hello");
  toy::write_text(folder / "short.safetensors", "hello");
  fs::create_directory(folder / "empty");
  const auto refused = [&](const std::string& path, const std::string& why) {
    const auto ran = toy::etude_program("inspect", path);
    CAPTURE(ran.err);
    CHECK(ran.end == "exit 3");
    CHECK(ran.out == "");
    CHECK(contains(ran.err, path));
    CHECK(contains(ran.err, why));
  };
  refused(folder / "nothing", "No such file or directory");
  refused(folder / "notes.txt", "must be a .safetensors file, a .pt file");
  refused(folder / "short.safetensors", "too few for a safetensors file");
  refused(folder / "empty", "neither a checkpoint nor the folder of a run");
  const auto ran = toy::etude_program("inspect", (folder / "short.safetensors").string(), "--key", "model");
  CHECK(ran.end == "exit 2");
  CHECK(contains(ran.err, "--key is 'model': must be given with a .pt file only"));
}

}  // namespace tools_inspect_test
