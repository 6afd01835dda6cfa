#include "etude/checkpoint/model_files.hpp"

#include <doctest/doctest.h>

#include <set>
#include <string>

#include "common/failing_files.hpp"
#include "common/fault_of.hpp"
#include "common/folder.hpp"
#include "etude/formats/safetensors.hpp"
#include "etude/io/folder.hpp"

namespace checkpoint_model_files_test {

using toy::contains;
using toy::fault_of;
using toy::names_in;

namespace fs = std::filesystem;
using State = etude::StateDict;

const torch::Tensor& at(const State& state, const std::string& name) {
  for (const auto& [key, tensor] : state)
    if (key == name) return tensor;
  throw std::out_of_range(name);
}

void check_equal(const State& loaded, const State& expected) {
  CHECK(loaded.size() == expected.size());
  for (const auto& named : expected) {
    const auto& name = named.first;
    const auto& tensor = named.second;
    CAPTURE(name);
    CHECK(at(loaded, name).equal(tensor));
  }
}

// Four tensors of 40 bytes.
State four() {
  return {{"a", torch::full({10}, 1.f)},
          {"b", torch::full({10}, 2.f)},
          {"c", torch::full({10}, 3.f)},
          {"d", torch::full({10}, 4.f)}};
}

TEST_CASE("a state is one file, whose metadata names PyTorch's format") {
  const toy::Folder folder;
  etude::save_model_files(folder / "model", four());
  CHECK(names_in(folder / "model") == std::set<std::string>{"model.safetensors"});
  check_equal(etude::load_model_files(folder / "model"), four());
  const auto file = etude::load_safetensors(folder / "model/model.safetensors");
  CHECK(file.metadata == std::map<std::string, std::string>{{"format", "pt"}});
}

TEST_CASE("a tensor with several names is written once, under the first of them") {
  const toy::Folder folder;
  const auto tied = torch::arange(6).to(torch::kFloat).reshape({2, 3});
  const State state = {
      {"lm_head.weight", tied}, {"other", torch::ones({1})}, {"embed.weight", tied}, {"z", tied}};
  etude::save_model_files(std::string(folder), state);
  const auto file = etude::load_safetensors(folder / "model.safetensors");
  CHECK(file.tensors.size() == 2);
  CHECK(at(file.tensors, "embed.weight").equal(tied));
  CHECK(file.metadata == std::map<std::string, std::string>{
                             {"format", "pt"}, {"lm_head.weight", "embed.weight"}, {"z", "embed.weight"}});
  const auto loaded = etude::load_model_files(std::string(folder));
  check_equal(loaded, state);
  CHECK(at(loaded, "z").data_ptr() == at(loaded, "embed.weight").data_ptr());
}

TEST_CASE("views that share memory without being the same tensor are written separately") {
  const toy::Folder folder;
  const auto flat = torch::arange(12).to(torch::kFloat);
  const State state = {{"first", flat.slice(0, 0, 6).reshape({2, 3})},
                       {"second", flat.slice(0, 6, 12)},
                       {"overlapping", flat.slice(0, 3, 9)},
                       {"shorter", flat.slice(0, 0, 3)},
                       {"other shape", flat.slice(0, 0, 6)},
                       {"transposed", flat.slice(0, 0, 6).reshape({3, 2}).t()},
                       {"empty", torch::zeros({0})},
                       {"empty too", torch::zeros({0})}};
  etude::save_model_files(std::string(folder), state);
  CHECK(etude::load_safetensors(folder / "model.safetensors").tensors.size() == 8);
  const auto loaded = etude::load_model_files(std::string(folder));
  check_equal(loaded, state);
  std::set<const void*> memory;
  for (const auto& [name, tensor] : loaded)
    if (tensor.numel() > 0) memory.insert(tensor.data_ptr());
  CHECK(memory.size() == 6);
}

TEST_CASE("tensors that are named like metadata keys keep their values") {
  const toy::Folder folder;
  const auto tied = torch::ones({2});
  const State state = {{"format", tied}, {"a", tied}, {"pt", torch::zeros({1})}};
  etude::save_model_files(std::string(folder), state);
  check_equal(etude::load_model_files(std::string(folder)), state);
  etude::save_model_files(std::string(folder), {{"pt", tied}});
  check_equal(etude::load_model_files(std::string(folder)), {{"pt", tied}});
}

TEST_CASE("a large state is cut into shards, in its own order, with an index") {
  const toy::Folder folder;
  auto state = four();
  state.emplace_back("tied", state[1].second);
  etude::save_model_files(std::string(folder), state, 80);
  CHECK(names_in(std::string(folder)) == std::set<std::string>{"model-00001-of-00002.safetensors",
                                                               "model-00002-of-00002.safetensors",
                                                               "model.safetensors.index.json"});
  CHECK(toy::read_text(folder / "model.safetensors.index.json") == R"({
  "metadata": {
    "total_size": 160
  },
  "weight_map": {
    "a": "model-00001-of-00002.safetensors",
    "b": "model-00001-of-00002.safetensors",
    "c": "model-00002-of-00002.safetensors",
    "d": "model-00002-of-00002.safetensors"
  }
}
)");
  const auto first = etude::load_safetensors(folder / "model-00001-of-00002.safetensors");
  CHECK(first.metadata == std::map<std::string, std::string>{{"format", "pt"}, {"tied", "b"}});
  CHECK(etude::load_safetensors(folder / "model-00002-of-00002.safetensors").tensors.size() == 2);
  check_equal(etude::load_model_files(std::string(folder)), state);
}

TEST_CASE("a shard has as many tensors as fit, and a larger one alone") {
  const auto files = [](std::uint64_t most) {
    const toy::Folder folder;
    State state = four();
    state.insert(state.begin() + 1, {"large", torch::zeros({100})});
    etude::save_model_files(std::string(folder), state, most);
    check_equal(etude::load_model_files(std::string(folder)), state);
    return names_in(std::string(folder)).size();
  };
  CHECK(files(560) == 1);
  CHECK(files(559) == 3);  // a, large, b, c; d
  CHECK(files(120) == 4);  // a; large; b, c, d
  CHECK(files(119) == 5);  // a; large; b, c; d
  CHECK(files(1) == 6);
}

TEST_CASE("a state without tensors is a valid file") {
  const toy::Folder folder;
  etude::save_model_files(std::string(folder), {});
  CHECK(etude::load_model_files(std::string(folder)).empty());
}

TEST_CASE("duplicate names are refused") {
  const toy::Folder folder;
  const auto one = torch::ones({1}), two = torch::ones({1});
  for (const auto& state :
       {State{{"a", one}, {"a", two}}, State{{"a", one}, {"a", one}},
        State{{"a", one}, {"b", one}, {"b", one}}, State{{"a", one}, {"b", one}, {"b", two}}})
    CHECK(contains(fault_of([&] { etude::save_model_files(std::string(folder), state); }), "duplicate"));
  CHECK(names_in(std::string(folder)).empty());
}

TEST_CASE("files of the previous model are removed") {
  const toy::Folder folder;
  toy::write_text(folder / "model-notes.txt", "mine");
  const auto save = [&](float value, std::uint64_t most) {
    auto state = four();
    for (auto& [name, tensor] : state) tensor = torch::full({10}, value);
    etude::save_model_files(std::string(folder), state, most);
    check_equal(etude::load_model_files(std::string(folder)), state);
    return names_in(std::string(folder)).size();
  };
  CHECK(save(1, 1000) == 2);
  CHECK(save(2, 40) == 6);
  CHECK(save(3, 80) == 4);
  CHECK(save(4, 80) == 4);
  CHECK(save(5, 1000) == 2);
  CHECK(toy::read_text(folder / "model-notes.txt") == "mine");
}

TEST_CASE("saving over another model leaves one of both, complete, or none, wherever it is interrupted") {
  const auto old_state = [] {
    auto state = four();
    for (auto& [name, tensor] : state) tensor = torch::zeros({10});
    return state;
  }();
  for (const std::uint64_t before : {40u, 80u, 1000u}) {
    for (const std::uint64_t after : {40u, 80u, 1000u}) {
      std::int64_t fail_at = 0;
      for (bool ended = false; !ended;) {
        const toy::Folder folder;
        etude::save_model_files(std::string(folder), old_state, before);
        toy::FailingFiles files(++fail_at, true);
        ended = fault_of([&] { etude::save_model_files(std::string(folder), four(), after, files); }) ==
                "nothing was thrown";
        CAPTURE(before);
        CAPTURE(after);
        CAPTURE(fail_at);
        State loaded;
        const auto fault = fault_of([&] { loaded = etude::load_model_files(std::string(folder)); });
        if (fault != "nothing was thrown") {
          CHECK(contains(fault, "has no model"));
          CHECK((before != 1000 && after != 1000));
        } else {
          const bool is_new = at(loaded, "a").equal(four()[0].second);
          check_equal(loaded, is_new ? four() : old_state);
          CHECK((is_new || !ended));
        }
      }
      CHECK(fail_at > 5);
    }
  }
}

TEST_CASE("a checkpoint's folder isn't written to outside of its manifest") {
  const toy::Folder folder;
  etude::FolderWriter writer(etude::default_file_system(), folder / "a", folder / ".a.partial");
  etude::write_model_files(writer, four());
  writer.commit({});
  CHECK(contains(fault_of([&] { etude::save_model_files(folder / "a", {}); }), "with a manifest"));
  check_equal(etude::load_model_files(folder / "a"), four());
}

TEST_CASE("a checkpoint's model is checked against the manifest") {
  const toy::Folder folder;
  for (const std::uint64_t most : {1000u, 80u}) {
    etude::FolderWriter writer(etude::default_file_system(), folder / "a", folder / ".a.partial");
    etude::write_model_files(writer, four(), most);
    writer.commit({});
    etude::FolderReader reader(folder / "a");
    check_equal(etude::read_model_files(reader), four());
    const auto path = folder / "a" / reader.manifest()->files.begin()->first;
    auto text = toy::read_text(path);
    text.back() ^= 1;
    toy::write_text(path, text);
    CHECK(contains(fault_of([&] { etude::load_model_files(folder / "a"); }),
                   path.string() + " is damaged: its checksum is"));
  }
}

TEST_CASE("a wrong index is refused") {
  const toy::Folder folder;
  etude::save_model_files(std::string(folder), four(), 80);
  const auto path = folder / "model.safetensors.index.json";
  const auto index = [&](const std::string& map) {
    toy::write_text(path, "{\"weight_map\": {" + map + "}}");
    return fault_of([&] { etude::load_model_files(std::string(folder)); });
  };
  const std::string one = "model-00001-of-00002.safetensors", two = "model-00002-of-00002.safetensors";
  const std::string a = "\"a\": \"" + one + "\"", b = "\"b\": \"" + one + "\"", c = "\"c\": \"" + two + "\"",
                    d = "\"d\": \"" + two + "\"";
  CHECK(index(a + "," + b + "," + c + "," + d) == "nothing was thrown");
  CHECK(index(a + "," + b) == "nothing was thrown");
  // 'b' is in the first file.
  CHECK(contains(index(a + ",\"b\": \"" + two + "\"," + c + "," + d),
                 two + ": tensor 'b' is missing, and in model.safetensors.index.json"));
  CHECK(contains(index(a + "," + b + ",\"e\": \"" + one + "\""), "tensor 'e' is missing, and in"));
  CHECK(contains(index(""), "weight_map is empty"));
  CHECK(contains(index("\"a\": \"missing.safetensors\""), "mapped to missing.safetensors, which is missing"));
  CHECK(contains(index("\"a\": 1"), "weight_map.a is 1"));
  for (const std::string climbing : {"../x", "/etc/passwd", "", "..", "sub/x", "a\\u0000"})
    CHECK(contains(index("\"a\": \"" + climbing + "\""), "which isn't a file of this folder"));
  toy::write_text(path, "not JSON");
  CHECK(contains(fault_of([&] { etude::load_model_files(std::string(folder)); }), "not JSON"));
  fs::remove(path);
  CHECK(contains(fault_of([&] { etude::load_model_files(std::string(folder)); }),
                 "has no model: neither model.safetensors nor model.safetensors.index.json exists"));
}

TEST_CASE("tensors that the index doesn't name are dropped, or refused in Etude's checkpoints") {
  const toy::Folder folder;
  const auto four_files = four();
  etude::save_model_files(folder / "theirs", four_files, 80);
  const std::string one = "model-00001-of-00002.safetensors", two = "model-00002-of-00002.safetensors";
  const std::string text = R"({"weight_map": {"a": ")" + one + R"("}})";
  const auto elsewhere = R"({"weight_map": {"a": ")" + one + R"(", "b": ")" + two + R"("}})";
  toy::write_text(folder / "theirs/model.safetensors.index.json", text);
  const auto read = etude::load_model_files(folder / "theirs");
  REQUIRE(read.size() == 1);
  CHECK(read[0].first == "a");

  const auto fault = [&](const std::string& index) {
    etude::FolderWriter writer(etude::default_file_system(), folder / "ours", folder / ".ours.partial");
    etude::write_model_files(writer, four_files, 80);
    writer.write_text("model.safetensors.index.json", index);
    writer.commit({});
    return fault_of([&] { etude::load_model_files(folder / "ours"); });
  };
  CHECK(contains(fault(text), one + ": tensor 'b' is not in model.safetensors.index.json"));
  CHECK(contains(fault(elsewhere), one + ": tensor 'b' is here and in another file in"));
}

}  // namespace checkpoint_model_files_test
