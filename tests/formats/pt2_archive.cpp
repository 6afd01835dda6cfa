#include "etude/formats/pt2_archive.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <string>
#include <utility>
#include <vector>

#include "common/fault_of.hpp"
#include "common/folder.hpp"
#include "common/zip_bytes.hpp"
#include "etude/base/error.hpp"

namespace formats_pt2_archive_test {

using toy::contains;
using namespace std::string_literals;
using toy::ZipEntry;

struct Tensor {
  std::string name;
  std::string path = "weight_0";
  std::vector<std::string> sizes = {"2"}, strides = {"1"};
  std::string offset = "0", dtype = "7", pickled = "false";
};

std::string config(const std::vector<Tensor>& tensors) {
  const auto integers = [](const std::vector<std::string>& list) {
    std::vector<std::string> texts;
    for (const auto& each : list) texts.push_back("{\"as_int\": " + each + "}");
    return fmt::format("[{}]", fmt::join(texts, ", "));
  };
  std::vector<std::string> texts;
  for (const auto& t : tensors)
    texts.push_back(fmt::format(
        R"("{}": {{"path_name": "{}", "is_param": true, "use_pickle": {}, "tensor_meta": {{"dtype": {}, "sizes": {}, "strides": {}, "storage_offset": {{"as_int": {}}}, "requires_grad": true, "layout": 7}}}})",
        t.name, t.path, t.pickled, t.dtype, integers(t.sizes), integers(t.strides), t.offset));
  return fmt::format(R"({{"config": {{{}}}}})", fmt::join(texts, ", "));
}

const std::string one_two = "\0\0\x80\x3f\0\0\0\x40"s;

// A file with the weights of one graph, which are in weight_0.
std::vector<ZipEntry> file(const std::vector<Tensor>& tensors, const std::string& bytes = one_two) {
  return {{"m/archive_format", "pt2"},
          {"m/archive_version", "0"},
          {"m/byteorder", "little"},
          {"m/models/model.json", "{}"},
          {"m/data/weights/model_weights_config.json", config(tensors)},
          {"m/data/weights/weight_0", bytes},
          {"m/data/constants/model_constants_config.json", config({})}};
}

std::string fault_of(const std::vector<ZipEntry>& entries) {
  const auto bytes = toy::zip_bytes(entries);
  const auto fault = toy::fault_of<etude::CheckpointError>([&] {
    const etude::Pt2Archive archive(bytes, "x.pt2");
    for (const auto& model : archive.models()) {
      archive.weights(model);
      archive.constants(model);
    }
    archive.extra_files();
  });
  CHECK((fault == "nothing was thrown" || fault.starts_with("x.pt2: ")));
  return fault;
}
std::string fault_of_tensor(const Tensor& tensor, const std::string& bytes = one_two) {
  return fault_of(file({tensor}, bytes));
}

std::vector<ZipEntry> with(std::vector<ZipEntry> entries, ZipEntry more) {
  for (auto& each : entries)
    if (each.name == more.name) {
      each = std::move(more);
      return entries;
    }
  entries.push_back(std::move(more));
  return entries;
}

TEST_CASE("graphs, tensors and extra files are read") {
  const auto bytes = toy::zip_bytes(with(with(file({{.name = "w"}}), {"m/extra/config.json", "{\"a\": 1}"}),
                                         {"m/models/eval.json", "{\"b\": 2}"}));
  const etude::Pt2Archive archive(bytes, "x.pt2");
  CHECK(archive.name() == "x.pt2");
  CHECK(archive.models() == std::vector<std::string>{"eval", "model"});
  CHECK(archive.graph("eval") == "{\"b\": 2}");
  CHECK(archive.weights("model").at("w").equal(torch::tensor({1.f, 2.f})));
  CHECK(archive.constants("model").empty());
  CHECK(archive.extra_files() == std::map<std::string, std::string>{{"config.json", "{\"a\": 1}"}});

  const toy::Folder folder;
  toy::write_text(folder / "m.pt2", bytes);
  CHECK(etude::Pt2Archive(folder / "m.pt2").weights("model").size() == 1);
}

TEST_CASE("tensors have their sizes, strides, offsets and dtypes") {
  const auto six = one_two + one_two + one_two;
  const auto bytes = toy::zip_bytes(file({{.name = "transposed", .sizes = {"2", "3"}, .strides = {"1", "2"}},
                                          {.name = "second", .sizes = {"2"}, .strides = {"2"}, .offset = "1"},
                                          {.name = "integers", .sizes = {"3"}, .dtype = "5"},
                                          {.name = "scalar", .sizes = {}, .strides = {}, .offset = "5"},
                                          {.name = "expanded", .sizes = {"4", "1"}, .strides = {"0", "1"}},
                                          {.name = "empty", .sizes = {"0", "5"}, .strides = {"5", "1"}}},
                                         six));
  const auto tensors = etude::Pt2Archive(bytes, "x.pt2").weights("model");
  CHECK(tensors.at("transposed").equal(torch::tensor({{1.f, 1.f, 1.f}, {2.f, 2.f, 2.f}})));
  CHECK(tensors.at("second").equal(torch::tensor({2.f, 2.f})));
  CHECK((tensors.at("integers").scalar_type() == torch::kLong));
  CHECK(tensors.at("integers")[0].item<std::int64_t>() == 0x400000003f800000);
  CHECK(tensors.at("scalar").item<float>() == 2);
  CHECK(tensors.at("expanded").equal(torch::ones({4, 1})));
  CHECK(tensors.at("empty").sizes() == torch::IntArrayRef({0, 5}));
  CHECK(tensors.at("transposed").data_ptr() == tensors.at("expanded").data_ptr());
}

TEST_CASE("names of one tensor share it; other views of its memory don't") {
  const auto bytes =
      toy::zip_bytes(file({{.name = "wte"}, {.name = "lm_head"}, {.name = "first", .sizes = {"1"}}}));
  const auto tensors = etude::Pt2Archive(bytes, "x.pt2").weights("model");
  CHECK(tensors.at("wte").is_same(tensors.at("lm_head")));
  CHECK_FALSE(tensors.at("wte").is_same(tensors.at("first")));
}

TEST_CASE("a tensor beyond its bytes is refused") {
  const std::string past = "tensor 'w': it goes past its 8 bytes";
  CHECK(contains(fault_of_tensor({.name = "w", .sizes = {"3"}}), past));
  CHECK(contains(fault_of_tensor({.name = "w", .sizes = {"2"}, .strides = {"2"}}), past));
  CHECK(contains(fault_of_tensor({.name = "w", .sizes = {"1"}, .offset = "2"}), past));
  CHECK(contains(fault_of_tensor({.name = "w", .sizes = {}, .strides = {}, .offset = "2"}), past));
  CHECK(contains(fault_of_tensor({.name = "w", .dtype = "5"}), past));
  CHECK(contains(fault_of_tensor({.name = "w", .sizes = {"0"}, .offset = "3"}), past));
  for (const std::string huge : {"9223372036854775807", "4611686018427387905"}) {
    CAPTURE(huge);
    CHECK(contains(fault_of_tensor({.name = "w", .sizes = {huge}}), past));
    CHECK(contains(fault_of_tensor({.name = "w", .strides = {huge}}), past));
    CHECK(contains(fault_of_tensor({.name = "w", .offset = huge}), past));
    CHECK(contains(fault_of_tensor({.name = "w", .sizes = {huge, huge}, .strides = {"0", "0"}}), past));
    CHECK(contains(fault_of_tensor({.name = "w", .sizes = {"0", huge, huge}, .strides = {"1", "0", "0"}}),
                   past));
  }
}

TEST_CASE("sizes that aren't sizes are refused") {
  CHECK(contains(fault_of_tensor({.name = "w", .sizes = {"-1"}}),
                 "tensor 'w': a size, stride or offset is -1"));
  CHECK(contains(fault_of_tensor({.name = "w", .strides = {"-1"}}),
                 "tensor 'w': a size, stride or offset is -1"));
  CHECK(
      contains(fault_of_tensor({.name = "w", .offset = "-1"}), "tensor 'w': a size, stride or offset is -1"));
  CHECK(contains(fault_of_tensor({.name = "w", .sizes = {"1.5"}}), "it isn't an integer of 64 bits"));
  CHECK(contains(fault_of_tensor({.name = "w", .sizes = {"9223372036854775808"}}),
                 "it isn't an integer of 64 bits"));
  CHECK(contains(fault_of_tensor({.name = "w", .sizes = {"1", "1"}}),
                 "its numbers of sizes and strides differ"));
  const std::vector<std::string> many(65, "1");
  CHECK(contains(fault_of_tensor({.name = "w", .sizes = many, .strides = many}), "more than 64 dimensions"));
  CHECK(contains(fault_of_tensor({.name = "w", .dtype = "99"}), "99 isn't the number of a dtype"));
  CHECK(contains(fault_of_tensor({.name = "w", .sizes = {"1"}, .dtype = "12"}, "\2"),
                 "tensor 'w': a bool must be 0 or 1"));
}

TEST_CASE("expanded tensors don't make a small file a large model") {
  std::vector<Tensor> tensors;
  for (int i = 0; i < 3; ++i)
    tensors.push_back({.name = fmt::format("w{}", i),
                       .sizes = {"10000000"},
                       .strides = {"0"},
                       .offset = i == 2 ? "1" : "0"});
  tensors[1].sizes = {"9000000"};
  CHECK(contains(fault_of(file(tensors)), "tensor 'w1': its tensors have more than "));
  CHECK(fault_of(file({tensors[0], {.name = "again", .sizes = {"10000000"}, .strides = {"0"}}})) ==
        "nothing was thrown");
}

TEST_CASE("what is pickled isn't read") {
  CHECK(contains(fault_of_tensor({.name = "w", .pickled = "true"}),
                 "tensor 'w': it is pickled, which isn't read"));
  CHECK(contains(fault_of_tensor({.name = "w", .pickled = "null"}), "tensor 'w': it is pickled"));
  // torch 2.8 wrote tensors as pickles, but these bytes aren't one.
  auto entries = file({});
  entries[4] = {"m/data/weights/model.pt", "not an archive"};
  CHECK(contains(fault_of(entries), "data/weights/model.pt: it isn't a whole zip archive"));
  // Sample inputs aren't read, whatever they contain.
  CHECK(fault_of(with(file({{.name = "w"}}), {"m/data/sample_inputs/model.pt", "\x80\x02."})) ==
        "nothing was thrown");
}

TEST_CASE("missing parts are named") {
  CHECK(contains(fault_of_tensor({.name = "w", .path = "weight_9"}), "it has no 'data/weights/weight_9'"));
  CHECK(contains(fault_of_tensor({.name = "w", .path = "../../archive_format"}),
                 "it has no 'data/weights/../../archive_format'"));
  auto entries = file({});
  entries.erase(entries.begin() + 4);
  CHECK(contains(fault_of(entries), "it has no 'data/weights/model.pt'"));
  const auto bytes = toy::zip_bytes(file({}));
  const etude::Pt2Archive archive(bytes, "x.pt2");
  CHECK_THROWS_WITH_AS(archive.graph("other"), "x.pt2: it has no 'models/other.json'",
                       etude::CheckpointError);
}

TEST_CASE("archives of other kinds are refused") {
  CHECK(contains(fault_of({{"a", "b"}}), "torch.export.save of torch 2.8 or later didn't write it"));
  CHECK(contains(fault_of(with(file({}), {"m/archive_format", "pt1"})), "it has no archive_format 'pt2'"));
  CHECK(contains(fault_of(with(file({}), {"m/archive_version", "1"})), "only version 0 can be read"));
  CHECK(contains(fault_of(with(file({}), {"m/byteorder", "big"})), "only 'little' can be read"));
  CHECK(contains(fault_of(with(file({}), {"n/archive_format", "pt2"})),
                 "'n/archive_format': it is a second archive in one file"));
  try {
    const etude::Pt2Archive archive("not a zip", "x.pt2");
    FAIL("nothing was thrown");
  } catch (const etude::CheckpointError& error) {
    CHECK(contains(error.what(), "x.pt2: it isn't a whole zip archive"));
  }
}

TEST_CASE("compressed entries are refused, since they may be larger than the file") {
  const auto deflated = [](const std::string& name) {
    // Five bytes of deflate: an empty stored block. The sizes differ.
    return ZipEntry{.name = name,
                    .data = std::string("\1\0\0\xff\xff", 5),
                    .size = 0,
                    .compressed_size = 5,
                    .checksum = 0,
                    .method = 8};
  };
  CHECK(contains(fault_of(with(file({{.name = "w"}}), deflated("m/data/weights/weight_0"))),
                 "tensor 'w': its bytes are compressed"));
  CHECK(contains(fault_of(with(file({}), deflated("m/data/weights/model_weights_config.json"))),
                 "it is compressed"));
  CHECK(contains(fault_of(with(file({}), deflated("m/archive_version"))), "it is compressed"));
  CHECK(contains(fault_of(with(file({}), deflated("m/extra/config.json"))), "it is compressed"));
}

TEST_CASE("extra files can't lie anywhere else, nor be taken for a checkpoint's own") {
  for (const std::string& name :
       {"../config.json"s, "a/b.json"s, "trainer_state.json"s, "training_args.json"s, "model.safetensors"s,
        "model.safetensors.index.json"s, "other.safetensors"s, "optimizer.pt"s, "scheduler.json"s,
        "etude_manifest.json"s, "all_results.json"s, "eval_results.json"s, ".."s, ""s, "\xff.json"s,
        std::string(256, 'a')}) {
    CAPTURE(name);
    const auto fault = fault_of(with(file({}), {"m/extra/" + name, "text"}));
    CHECK((contains(fault, "it isn't the name of a file that may lie beside the weights of a checkpoint") ||
           contains(fault, "its name leads out of the archive")));
  }
  for (const std::string& name :
       {"config.json"s, "vocab.txt"s, "generation_config.json"s, std::string(255, 'a')})
    CHECK(fault_of(with(file({}), {"m/extra/" + name, "text"})) == "nothing was thrown");
}

TEST_CASE("configurations of other forms are refused") {
  for (const std::string text :
       {"", "[]", "{}", R"({"config": []})", R"({"config": {"w": 1}})", R"({"config": {"w": {}}})",
        R"({"config": {"w": {"use_pickle": false}}})", "{\"config\": \"\xff\"}"}) {
    CAPTURE(text);
    CHECK(contains(fault_of(with(file({}), {"m/data/weights/model_weights_config.json", text})),
                   "x.pt2: data/weights/model_weights_config.json: "));
  }
  std::string deep;
  for (int i = 0; i < 200; ++i) deep += "[";
  CHECK(contains(fault_of(with(file({}), {"m/data/weights/model_weights_config.json", deep})),
                 "nested deeper than 100 levels"));
}

}  // namespace formats_pt2_archive_test
