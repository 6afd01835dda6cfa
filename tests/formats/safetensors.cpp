#include "etude/formats/safetensors.hpp"

#include <doctest/doctest.h>
#include <torch/types.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <iterator>

#include "common/failing_files.hpp"
#include "common/fault_of.hpp"
#include "common/folder.hpp"
#include "etude/base/error.hpp"

namespace formats_safetensors_test {

using toy::contains;

namespace fs = std::filesystem;
using Named = std::vector<std::pair<std::string, torch::Tensor>>;

// A file that is removed at the end of its test.
struct TempFile {
  toy::Folder folder;
  fs::path path = folder / "model.safetensors";
  std::string text() const { return toy::read_text(path); }
  void write(const std::string& text) const { toy::write_text(path, text); }
  // Nothing else is in the folder.
  bool is_alone() const {
    return std::distance(fs::directory_iterator(std::string(folder)), fs::directory_iterator()) == 1;
  }
};

std::string with_length(std::uint64_t length, const std::string& rest) {
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + rest;
}

std::string fault_of(const std::string& content) {
  const TempFile file;
  file.write(content);
  const auto fault = toy::fault_of<etude::CheckpointError>([&] { etude::load_safetensors(file.path); });
  CHECK((fault == "nothing was thrown" || fault.starts_with(file.path.string() + ": ")));
  return fault;
}

const torch::Tensor& at(const etude::SafeTensors& file, const std::string& name) {
  for (const auto& [key, tensor] : file.tensors) {
    if (key == name) return tensor;
  }
  throw std::out_of_range(name);
}

TEST_CASE("a file follows the format, byte for byte") {
  const TempFile file;
  etude::save_safetensors(file.path,
                          {{"b", torch::tensor({1, 2}, torch::kByte)},
                           {"z", torch::tensor({1.0f})},
                           {"a", torch::tensor({2.0f})}},
                          {{"format", "pt"}});
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
      R"("z":{"dtype":"F32","shape":[1],"data_offsets":[4,8]},"b":{"dtype":"U8","shape":[2],"data_offsets":[8,10]}})";
  const auto padded = header + std::string((8 - header.size() % 8) % 8, ' ');
  const std::string bytes{0, 0, 0, 0x40, 0, 0, char(0x80), 0x3f, 1, 2};
  CHECK(file.text() == with_length(padded.size(), padded + bytes));
}

TEST_CASE("every dtype, shape and layout round-trips, bit for bit") {
  Named tensors;
  // The dtypes that this LibTorch has. Bytes are compared below, because it can't compare all dtypes.
  for (int i = 0; i < static_cast<int>(torch::ScalarType::NumOptions); ++i) {
    const auto dtype = static_cast<torch::ScalarType>(i);
    const auto* known =
        std::ranges::find(etude::safetensors_dtypes, c10::toString(dtype), &etude::FileDtype::torch_name);
    if (known == etude::safetensors_dtypes.end()) continue;
    auto tensor = at::empty({2, 3}, at::TensorOptions().dtype(dtype));
    auto* bytes = static_cast<unsigned char*>(tensor.data_ptr());
    for (std::size_t byte = 0; byte < tensor.nbytes(); ++byte)
      bytes[byte] = static_cast<unsigned char>(dtype == torch::kBool ? byte % 2 : 17 * byte + 3);
    tensors.emplace_back(known->name, tensor);
  }
  CHECK(tensors.size() >= 11);
  tensors.emplace_back("scalar", torch::full({}, 3.5));
  tensors.emplace_back("empty", torch::zeros({0, 4}));
  tensors.emplace_back("transposed", torch::arange(6).reshape({2, 3}).t());
  tensors.emplace_back("parameter", torch::ones({2}).requires_grad_());
  tensors.emplace_back("naïve \"name\"", torch::ones({1}));
  const TempFile file;
  etude::save_safetensors(file.path, tensors, {{"step", "3"}, {"text", "ü\n"}});
  const auto loaded = etude::load_safetensors(file.path);
  CHECK(loaded.tensors.size() == tensors.size());
  for (const auto& named : tensors) {
    const auto& name = named.first;
    const auto& tensor = named.second;
    CAPTURE(name);
    CHECK((at(loaded, name).scalar_type() == tensor.scalar_type()));
    CHECK(at(loaded, name).sizes() == tensor.sizes());
    const auto contiguous = tensor.detach().contiguous();
    CHECK(at(loaded, name).nbytes() == tensor.nbytes());
    CHECK((tensor.nbytes() == 0 ||
           std::memcmp(at(loaded, name).data_ptr(), contiguous.data_ptr(), tensor.nbytes()) == 0));
  }
  CHECK(loaded.metadata == std::map<std::string, std::string>{{"step", "3"}, {"text", "ü\n"}});
}

TEST_CASE("a file without tensors is valid") {
  const TempFile file;
  etude::save_safetensors(file.path, {});
  CHECK(etude::load_safetensors(file.path).tensors.empty());
}

TEST_CASE("writing into a loaded tensor doesn't change the file, which may be removed") {
  const TempFile file;
  etude::save_safetensors(file.path, {{"a", torch::tensor({1.0f, 2.0f})}, {"b", torch::tensor({3.0f})}});
  const auto before = file.text();
  torch::Tensor a, b;
  {
    const auto loaded = etude::load_safetensors(file.path);
    a = at(loaded, "a");
    b = at(loaded, "b");
  }
  a.mul_(10);
  CHECK(file.text() == before);
  fs::remove(file.path);
  CHECK(a.equal(torch::tensor({10.0f, 20.0f})));
  CHECK(b.equal(torch::tensor({3.0f})));
  CHECK_THROWS(a.resize_({100}));
}

TEST_CASE("unaligned tensors are read too") {
  // A header of 93 bytes, as other programs write it, so that no float begins at a multiple of four.
  const std::string header =
      R"({"u":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"f":{"dtype":"F32","shape":[2],"data_offsets":[1,9]}})";
  const TempFile file;
  const float values[] = {1.5f, -2.0f};
  for (std::size_t padding = 0; padding < 4; ++padding) {
    const auto text = header + std::string(padding, ' ');
    file.write(with_length(
        text.size(), text + '\x07' + std::string(reinterpret_cast<const char*>(values), sizeof values)));
    const auto loaded = etude::load_safetensors(file.path);
    CHECK(at(loaded, "f").equal(torch::tensor({1.5f, -2.0f})));
    CHECK(reinterpret_cast<std::uintptr_t>(at(loaded, "f").data_ptr()) % 4 == 0);
    CHECK(at(loaded, "u").item<int>() == 7);
  }
}

TEST_CASE("large tensors of any layout are written in row-major order") {
  const TempFile file;
  const auto numbers = torch::arange(6'000'000, torch::kInt);
  const Named tensors = {
      {"transposed", numbers.reshape({2000, 3000}).t()},
      {"long rows", numbers.reshape({3'000'000, 2}).t().unsqueeze(0)},
      {"every second", numbers.slice(0, 0, 6'000'000, 2)},
      {"expanded", numbers.slice(0, 0, 5).unsqueeze(0).expand({1'000'000, 5})},
      {"conjugated", torch::complex(numbers.to(torch::kFloat), numbers.to(torch::kFloat)).conj()}};
  etude::save_safetensors(file.path, tensors);
  const auto loaded = etude::load_safetensors(file.path);
  for (const auto& named : tensors) {
    const auto& name = named.first;
    const auto& tensor = named.second;
    CAPTURE(name);
    CHECK(at(loaded, name).equal(tensor));
  }
}

TEST_CASE("a write that fails halfway is an error and leaves the old file") {
  const TempFile file;
  etude::save_safetensors(file.path, {{"a", torch::ones({1})}});
  const auto before = file.text();
  const Named tensors = {{"a", torch::zeros({1000})}, {"b", torch::zeros({10})}};
  toy::FailingFiles whole;
  etude::save_safetensors(file.folder / "other", tensors, {}, whole);
  fs::remove(file.folder / "other");
  REQUIRE(whole.operations.size() == 7);
  for (std::int64_t at = 1; at <= 6; ++at) {
    CAPTURE(at);
    toy::FailingFiles files(at);
    CHECK_THROWS_WITH_AS(etude::save_safetensors(file.path, tensors, {}, files),
                         doctest::Contains("No space left on device"), etude::CheckpointError);
    CHECK(file.text() == before);
    CHECK(file.is_alone());
  }
}

TEST_CASE("a tensor that can't be saved is refused and leaves the old file") {
  const TempFile file;
  etude::save_safetensors(file.path, {{"a", torch::ones({1})}});
  const auto before = file.text();
  const auto refused = [&](const Named& tensors) {
    CHECK_THROWS_AS(etude::save_safetensors(file.path, tensors), etude::CheckpointError);
    CHECK(file.text() == before);
    CHECK(file.is_alone());
  };
  refused({{"a", torch::ones({1})}, {"a", torch::ones({1})}});
  refused({{"__metadata__", torch::ones({1})}});
  refused({{"a", torch::ones({1}, torch::kComplexDouble)}});
  refused({{"a", torch::Tensor()}});
  refused({{"a", torch::ones({2, 2}).to_sparse()}});
  refused({{"a", torch::ones({1}, torch::kMeta)}});
  refused({{"\xff", torch::ones({1})}});
  CHECK_THROWS_AS(etude::save_safetensors("/nonexistent/file", {}), etude::CheckpointError);
}

TEST_CASE("a BOOL that is neither 0 nor 1 is refused") {
  const std::string header = R"({"a":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}})";
  CHECK(contains(fault_of(with_length(header.size(), header + "\x02")), "BOOL"));
}

TEST_CASE("an error names a missing file") {
  CHECK_THROWS_WITH_AS(etude::load_safetensors("/nonexistent/file"),
                       "/nonexistent/file can't be read: No such file or directory", etude::CheckpointError);
  CHECK_THROWS_AS(etude::load_safetensors(fs::temp_directory_path()), etude::CheckpointError);
}

TEST_CASE("a file truncated anywhere is refused") {
  const TempFile file;
  etude::save_safetensors(file.path, {{"a", torch::ones({3})}, {"b", torch::ones({2}, torch::kByte)}});
  const auto whole = file.text();
  for (std::size_t length = 0; length < whole.size(); ++length) {
    CAPTURE(length);
    CHECK(fault_of(whole.substr(0, length)) != "nothing was thrown");
  }
}

}  // namespace formats_safetensors_test
