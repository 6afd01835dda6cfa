#include "etude/formats/safetensors.hpp"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>

#include "etude/checkpoint/model_files.hpp"
#include "etude/io/folder.hpp"

// The C++ half of safetensors_files.py, which describes the files.
namespace {

namespace fs = std::filesystem;

// Byte i of the tensor named `name`; the script has the same formula.
unsigned char byte_of(std::string_view name, std::size_t i) {
  return static_cast<unsigned char>(name == "BOOL" ? i % 2 : 17 * i + 3 * name.size());
}

torch::Tensor pattern(std::string_view name, torch::ScalarType dtype, std::vector<std::int64_t> shape) {
  auto tensor = torch::empty(shape, dtype);
  auto* bytes = static_cast<unsigned char*>(tensor.data_ptr());
  for (std::size_t i = 0; i < tensor.nbytes(); ++i) bytes[i] = byte_of(name, i);
  return tensor;
}

etude::StateDict dtypes() {
  etude::StateDict state;
  for (const auto& dtype : etude::safetensors_dtypes) {
    if (const auto type = etude::detail::scalar_type(dtype))
      state.emplace_back(dtype.name, pattern(dtype.name, *type, {2, 3}));
  }
  state.emplace_back("scalar", pattern("scalar", torch::kDouble, {}));
  state.emplace_back("empty", torch::empty({2, 0}));
  state.emplace_back("naïve \"name\"", pattern("naïve \"name\"", torch::kShort, {1, 1, 4}));
  return state;
}

etude::StateDict tied() {
  const auto weight = torch::arange(20).to(torch::kFloat).reshape({5, 4}) / 7;
  return {{"embed.weight", weight},
          {"norm.weight", torch::full({4}, 2.5f)},
          {"norm.bias", torch::full({4}, -1.f)},
          {"head.weight", weight}};
}

void check(bool good, std::string_view what) {
  if (!good) throw std::runtime_error(std::string(what));
}

bool same(const torch::Tensor& a, const torch::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         (a.nbytes() == 0 || std::memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()) == 0);
}

void check_same(const etude::StateDict& loaded, const etude::StateDict& expected) {
  check(loaded.size() == expected.size(), fmt::format("{} tensors", loaded.size()));
  for (const auto& [name, tensor] : expected) {
    const auto found = std::ranges::find(loaded, name, &etude::StateDict::value_type::first);
    check(found != loaded.end() && same(found->second, tensor), name);
  }
}

void write(const fs::path& folder) {
  etude::save_safetensors(folder / "dtypes.safetensors", dtypes(), {{"key", "välue\n"}});
  etude::save_model_files(folder / "tied", tied());
  etude::save_model_files(folder / "sharded", tied(), 90);
  etude::FolderWriter writer(etude::default_file_system(), folder / "checkpoint-1", folder / ".partial");
  etude::write_model_files(writer, tied());
  writer.commit({});
}

void read(const fs::path& folder) {
  const auto file = etude::load_safetensors(folder / "dtypes.safetensors");
  check(file.metadata == std::map<std::string, std::string>{{"key", "välue\n"}}, "metadata");
  check_same(file.tensors, dtypes());
  const auto state = etude::load_model_files(folder / "tied");
  check_same(state, tied());
  const auto address = [&](std::string_view name) {
    return std::ranges::find(state, name, &etude::StateDict::value_type::first)->second.data_ptr();
  };
  check(address("embed.weight") == address("head.weight"), "tied tensors share their memory");
  check_same(etude::load_model_files(folder / "sharded"), tied());
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::string_view command = argc > 1 ? argv[1] : "";
    if (argc == 3 && command == "write") {
      write(argv[2]);
    } else if (argc == 3 && command == "read") {
      read(argv[2]);
    } else {
      fmt::print(stderr, "usage: {} write|read FOLDER\n", argv[0]);
      return 2;
    }
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
