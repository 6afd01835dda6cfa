#include "etude/checkpoint/torch_to_safetensors.hpp"

#include <doctest/doctest.h>
#include <torch/types.h>

#include <map>
#include <string>

#include "common/folder.hpp"
#include "common/pickle_bytes.hpp"
#include "common/zip_bytes.hpp"
#include "etude/base/error.hpp"
#include "etude/formats/safetensors.hpp"

namespace checkpoint_torch_to_safetensors_test {

using namespace std::string_literals;
namespace pickled = toy::pickled;

std::string archive(const std::string& pickle) {
  // The floats 1, 2, 3, 4.
  return toy::zip_bytes({{"m/data.pkl", pickled::file(pickle)},
                         {"m/data/0", "\0\0\x80\x3f\0\0\0\x40\0\0\x40\x40\0\0\x80\x40"s}});
}

TEST_CASE("tensors are written with their values, and shared ones once") {
  const toy::Folder folder;
  const auto w = pickled::tensor();
  const auto t = pickled::tensor({.strides = {1, 2}});
  const auto model = pickled::dict({{"w", w}, {"again", w}, {"t", t}, {"steps", "K\1"}});
  toy::write_text(folder / "x.pt", archive(pickled::dict({{"model", model}, {"epoch", "K\3"}})));
  const auto read = etude::torch_to_safetensors(folder / "x.pt", folder / "x.safetensors", "model");
  CHECK(read.tensors.size() == 3);
  CHECK(read.skipped == std::vector<std::string>{"steps"});

  const auto written = etude::load_safetensors(folder / "x.safetensors");
  CHECK(written.metadata == std::map<std::string, std::string>{{"format", "pt"}, {"w", "again"}});
  const std::map<std::string, torch::Tensor> tensors(written.tensors.begin(), written.tensors.end());
  REQUIRE(tensors.size() == 2);
  CHECK(tensors.at("again").equal(torch::tensor({{1.f, 2.f}, {3.f, 4.f}})));
  CHECK(tensors.at("t").equal(torch::tensor({{1.f, 3.f}, {2.f, 4.f}})));
}

TEST_CASE("an unreadable file leaves the old one in place") {
  const toy::Folder folder;
  toy::write_text(folder / "x.safetensors", "old");
  toy::write_text(folder / "x.pt",
                  archive(pickled::call(pickled::global("os", "system"), {pickled::text("true")})));
  CHECK_THROWS_AS(etude::torch_to_safetensors(folder / "x.pt", folder / "x.safetensors"),
                  etude::CheckpointError);
  CHECK(toy::read_text(folder / "x.safetensors") == "old");
}

}  // namespace checkpoint_torch_to_safetensors_test
