#include "etude/formats/stored_tensors.hpp"

#include <doctest/doctest.h>
#include <torch/types.h>

#include "common/fault_of.hpp"
#include "common/folder.hpp"
#include "etude/base/error.hpp"
#include "etude/data/data_loader.hpp"
#include "etude/formats/safetensors.hpp"

namespace formats_stored_tensors_test {

using Names = std::vector<std::string>;

struct File {
  toy::Folder folder;
  std::filesystem::path path = folder / "train.safetensors";
  File() {
    etude::save_safetensors(path, {{"pixels", torch::arange(6).to(torch::kFloat).reshape({3, 2})},
                                   {"digit", torch::tensor({7, 8, 9}, torch::kLong)},
                                   {"weight", torch::ones({3})}});
  }
};

TEST_CASE("tensors are selected by name, in the given order, and are views of the file") {
  const File file;
  const auto inputs = etude::stored_tensors(file.path, {"weight", "pixels"});
  CHECK(inputs.names() == Names{"weight", "pixels"});
  CHECK(inputs.at("pixels").equal(torch::arange(6).to(torch::kFloat).reshape({3, 2})));
  inputs.at("pixels").zero_();
  CHECK(!etude::stored_tensors(file.path).at("pixels").equal(inputs.at("pixels")));
}

TEST_CASE("a loader's batches come from the file, the labels by name") {
  const File file;
  etude::DataLoader loader(etude::stored_tensors(file.path),
                           {.batch_size = 2, .num_workers = 4, .label_names = {"digit"}});
  auto stream = loader.begin_epoch(0);
  stream.next();
  const auto last = stream.next();
  CHECK(last->inputs.at("pixels").equal(torch::tensor({4.f, 5.f}).reshape({1, 2})));
  CHECK(last->labels.at("digit").equal(torch::tensor({9}, torch::kLong)));
}

TEST_CASE("errors name a missing tensor and an unreadable file") {
  const File file;
  const auto fault = toy::fault_of<etude::DataError>([&] { etude::stored_tensors(file.path, {"digits"}); });
  CHECK(toy::contains(fault, file.path.string() + ": no tensor is named 'digits'; there are: "));
  CHECK(toy::contains(toy::fault_of([&] { etude::stored_tensors(file.folder / "x"); }), "can't be read"));
}

}  // namespace formats_stored_tensors_test
