#include "etude/formats/npy.hpp"

#include <doctest/doctest.h>
#include <torch/types.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <string>

#include "common/fault_of.hpp"
#include "common/folder.hpp"
#include "etude/base/error.hpp"
#include "etude/data/data_loader.hpp"

namespace formats_npy_test {

using etude::DataError;
using toy::contains;

// A float32 array [2, 3] of 1, 2, 4, 8, 16, 32; `padding` adds spaces to the header, which move its items.
std::string file_of_six(std::size_t padding = 0) {
  const auto header =
      "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }" + std::string(58 + padding, ' ') + "\n";
  const std::array<float, 6> items{1, 2, 4, 8, 16, 32};
  return std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(header.size()) + '\0' + header +
         std::string(reinterpret_cast<const char*>(items.data()), sizeof items);
}

torch::Tensor six() { return torch::tensor({1.f, 2.f, 4.f, 8.f, 16.f, 32.f}).reshape({2, 3}); }

TEST_CASE("an array is a view of the mapped file, which outlives its name") {
  const toy::Folder folder;
  toy::write_text(folder / "x.npy", file_of_six());
  const auto tensor = etude::load_npy(folder / "x.npy");
  std::filesystem::remove(folder / "x.npy");
  CHECK((tensor.scalar_type() == torch::kFloat));
  CHECK(tensor.equal(six()));
  CHECK(reinterpret_cast<std::uintptr_t>(tensor.data_ptr()) % 4096 == 128);
}

TEST_CASE("unaligned items are copied") {
  const toy::Folder folder;
  toy::write_text(folder / "x.npy", file_of_six(3));
  CHECK(etude::load_npy(folder / "x.npy").equal(six()));
}

TEST_CASE("writing into the tensor leaves the file unchanged") {
  const toy::Folder folder;
  toy::write_text(folder / "x.npy", file_of_six());
  auto tensor = etude::load_npy(folder / "x.npy");
  tensor.fill_(7);
  CHECK(toy::read_text(folder / "x.npy") == file_of_six());
  CHECK(etude::load_npy(folder / "x.npy").equal(six()));
}

TEST_CASE("batches of a dataset over a file are copies") {
  const toy::Folder folder;
  toy::write_text(folder / "x.npy", file_of_six());
  const auto tensor = etude::load_npy(folder / "x.npy");
  etude::DataLoader loader(tensor, {.batch_size = 2});
  auto batch = loader.begin_epoch(0).next();
  CHECK(batch->inputs[0].equal(six()));
  batch->inputs[0].zero_();
  CHECK(tensor.equal(six()));
}

TEST_CASE("a tensor of any dtype, shape and strides round-trips") {
  const toy::Folder folder;
  const auto path = folder / "x.npy";
  for (const auto dtype :
       {torch::kBool, torch::kByte, torch::kChar, torch::kShort, torch::kInt, torch::kLong, torch::kHalf,
        torch::kFloat, torch::kDouble, torch::kComplexFloat, torch::kComplexDouble}) {
    for (const auto& tensor : {torch::arange(24).reshape({2, 3, 4}).to(dtype), torch::ones({}, dtype),
                               torch::arange(6).reshape({2, 3}).to(dtype).t(), torch::zeros({3, 0}, dtype)}) {
      etude::save_npy(path, tensor);
      const auto loaded = etude::load_npy(path);
      CHECK((loaded.scalar_type() == dtype));
      CHECK(loaded.sizes() == tensor.sizes());
      CHECK(loaded.equal(tensor));
    }
  }
}

TEST_CASE("a saved file is NumPy's, byte for byte") {
  const toy::Folder folder;
  etude::save_npy(folder / "x.npy", six());
  CHECK(toy::read_text(folder / "x.npy") == file_of_six());
}

TEST_CASE("errors name the file") {
  const toy::Folder folder;
  const auto path = folder / "x.npy";
  const auto fault = [&] { return toy::fault_of<DataError>([&] { etude::load_npy(path); }); };
  CHECK(contains(fault(), path.string() + " can't be read"));
  toy::write_text(path, "");
  CHECK(contains(fault(), path.string() + ": it isn't a .npy file"));
  toy::write_text(path, file_of_six().substr(0, 151));
  CHECK(fault() == path.string() + ": shape (2, 3) of f4 needs 24 bytes, but 23 follow the header");
  const std::string header = "{'descr': '|b1', 'fortran_order': False, 'shape': (2,)}";
  toy::write_text(path, std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(header.size()) + '\0' +
                            header + std::string("\x01\x02", 2));
  CHECK(fault() == path.string() + ": descr is '|b1': each item must be 0 or 1");
}

TEST_CASE("a tensor without a NumPy dtype isn't saved") {
  const toy::Folder folder;
  const auto save = [&](const torch::Tensor& tensor) {
    return toy::fault_of<DataError>([&] { etude::save_npy(folder / "x.npy", tensor); });
  };
  CHECK(contains(save(torch::zeros({2}, torch::kBFloat16)), "bfloat16 [2] can't be saved"));
  CHECK(contains(save({}), "an undefined tensor can't be saved"));
  CHECK(contains(save(torch::ones({2}).to_sparse()), "float32 [2] can't be saved: must be a dense tensor"));
  CHECK(!std::filesystem::exists(folder / "x.npy"));
}

}  // namespace formats_npy_test
