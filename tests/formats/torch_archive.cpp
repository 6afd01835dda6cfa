#include "etude/formats/torch_archive.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <zip.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/fault_of.hpp"
#include "common/folder.hpp"
#include "common/pickle_bytes.hpp"
#include "common/zip_bytes.hpp"
#include "etude/base/error.hpp"

namespace formats_torch_archive_test {

using toy::contains;
using namespace std::string_literals;
using toy::ZipEntry;
namespace pickled = toy::pickled;

// The file of `torch.save({"w": torch.tensor([1., 2.])})`, except for the padding.
std::vector<ZipEntry> saved(const std::string& pickle = pickled::dict(
                                {{"w", pickled::tensor({.count = 2, .sizes = {2}, .strides = {1}})}})) {
  return {{"m/data.pkl", pickled::file(pickle)},
          {"m/byteorder", "little"},
          {"m/data/0", "\0\0\x80\x3f\0\0\0\x40"s},
          {"m/version", "3\n"}};
}

std::string fault_of(const std::string& bytes) {
  const auto fault = toy::fault_of<etude::CheckpointError>([&] {
    const etude::TorchArchive archive(bytes, "x.pt");
    for (const auto& tensor : archive.state_dict().tensors) {
      std::string storage(tensor.storage_bytes, '\0');
      archive.read_storage(tensor.storage, storage.data());
    }
  });
  CHECK((fault == "nothing was thrown" || fault.starts_with("x.pt: ")));
  return fault;
}
std::string fault_of(const std::vector<ZipEntry>& entries) { return fault_of(toy::zip_bytes(entries)); }

std::vector<ZipEntry> with(std::vector<ZipEntry> entries, ZipEntry more) {
  entries.push_back(std::move(more));
  return entries;
}

// The entries, compressed by libzip.
std::string deflated(const std::filesystem::path& path, const std::vector<ZipEntry>& entries) {
  auto* archive = zip_open(path.c_str(), ZIP_CREATE | ZIP_TRUNCATE, nullptr);
  REQUIRE(archive);
  for (const auto& entry : entries) {
    auto* source = zip_source_buffer(archive, entry.data.data(), entry.data.size(), 0);
    const auto index = zip_file_add(archive, entry.name.c_str(), source, 0);
    REQUIRE(index >= 0);
    REQUIRE(zip_set_file_compression(archive, static_cast<zip_uint64_t>(index), ZIP_CM_DEFLATE, 9) == 0);
  }
  REQUIRE(zip_close(archive) == 0);
  return toy::read_text(path);
}

TEST_CASE("tensors and the bytes of their storages are read") {
  const auto bytes = toy::zip_bytes(saved());
  const etude::TorchArchive archive(bytes, "x.pt");
  const auto state_dict = archive.state_dict();
  REQUIRE(state_dict.tensors.size() == 1);
  CHECK(state_dict.tensors[0].name == "w");
  CHECK(archive.storage_size("0") == 8);
  std::vector<float> values(2);
  archive.read_storage("0", values.data());
  CHECK(values == std::vector<float>{1, 2});
}

TEST_CASE("a file that ends anywhere but at its end is refused") {
  const auto whole = toy::zip_bytes(saved());
  REQUIRE(fault_of(whole) == "nothing was thrown");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    CAPTURE(size);
    CHECK(fault_of(whole.substr(0, size)) != "nothing was thrown");
  }
}

TEST_CASE("a changed bit is an error, or changes nothing that is read") {
  const auto whole = toy::zip_bytes(saved());
  int read = 0;
  for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    auto damaged = whole;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    CAPTURE(bit);
    if (fault_of(damaged) != "nothing was thrown") continue;
    ++read;
    const etude::TorchArchive archive(damaged, "x.pt");
    const auto tensors = archive.state_dict().tensors;
    REQUIRE(tensors.size() == 1);
    CHECK(tensors[0].name == "w");
    CHECK(tensors[0].sizes == std::vector<std::int64_t>{2});
    std::string storage(8, 'x');
    archive.read_storage("0", storage.data());
    CHECK(storage == saved()[2].data);
  }
  CHECK(read < 8 * 200);  // times, versions, and names of entries that aren't read
}

TEST_CASE("the error about another kind of archive names the kind") {
  CHECK(contains(fault_of({{"a", "b"}, {"c", "d"}}), "torch.save didn't write it: it has no data.pkl"));
  CHECK(contains(fault_of({{"data.pkl", "N"}, {"c", "d"}}), "it has no data.pkl"));
  CHECK(contains(fault_of({{"a/b/data.pkl", "N"}, {"c", "d"}}), "it has no data.pkl"));
  CHECK(contains(fault_of(with(saved(), {"m/constants.pkl", "x"})), "it is a TorchScript archive"));
  CHECK(contains(fault_of(with(saved(), {"n/data.pkl", "x"})), "it has a second pickle: 'n/data.pkl'"));
  auto big = saved();
  big[1].data = "big";
  CHECK(contains(fault_of(big), "byteorder: only 'little' can be read"));
  big[1].data = std::string(1'000'000, 'l');
  CHECK(contains(fault_of(big), "byteorder: only 'little' can be read"));
  auto old = saved();
  old.erase(old.begin() + 1);
  CHECK(fault_of(old) == "nothing was thrown");
}

TEST_CASE("a pipe is refused without waiting") {
  const toy::Folder folder;
  REQUIRE(mkfifo((folder / "pipe").c_str(), 0600) == 0);
  CHECK_THROWS_WITH_AS(etude::TorchArchive(folder / "pipe"),
                       ((folder / "pipe").string() + ": it isn't a file").c_str(), etude::CheckpointError);
}

TEST_CASE("the format from before PyTorch 1.6 is reported") {
  // pickle.dumps(0x1950a86a20f9469cfc6c, 2), which torch.save(_use_new_zipfile_serialization=False) begins
  // with.
  const toy::Folder folder;
  toy::write_text(folder / "old.pt", "\x80\x02\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19.\x80\x02M\xe9\x03."s);
  CHECK_THROWS_WITH_AS(etude::TorchArchive(folder / "old.pt"),
                       ((folder / "old.pt").string() +
                        ": it has the format used before PyTorch 1.6; load it in Python and save it again")
                           .c_str(),
                       etude::CheckpointError);
}

TEST_CASE("missing storages and storages of another size are refused") {
  auto missing = saved();
  missing.erase(missing.begin() + 2);
  CHECK(contains(fault_of(missing), "it has no 'data/0'"));
  for (const std::size_t size : {0u, 7u, 9u}) {
    auto other = saved();
    other[2].data.resize(size);
    CHECK(contains(fault_of(other),
                   fmt::format("tensor 'w': its storage has 8 bytes, but {} in the file", size)));
  }
}

TEST_CASE("a malicious pickle is refused, and nothing is executed") {
  const toy::Folder folder;
  const auto target = (folder / "owned").string();
  CHECK(contains(
      fault_of(saved(pickled::call(pickled::global("os", "system"), {pickled::text("touch " + target)}))),
      "it refers to 'system' of 'os'; only tensors and plain values can be read, and nothing is executed"));
  CHECK_FALSE(std::filesystem::exists(target));
}

TEST_CASE("compressed entries are read, and zip bombs are refused") {
  const toy::Folder folder;
  CHECK(fault_of(deflated(folder / "a", saved())) == "nothing was thrown");

  // 100 MB of zeros in 100 kB, whether a tensor views all of them or a single one.
  for (const std::int64_t seen : {25'000'000, 1}) {
    auto bomb = saved(
        pickled::dict({{"w", pickled::tensor({.count = 25'000'000, .sizes = {seen}, .strides = {1}})}}));
    bomb[2].data.assign(100'000'000, '\0');
    const auto bytes = deflated(folder / "b", bomb);
    REQUIRE(bytes.size() < 200'000);
    CHECK(contains(fault_of(bytes), "tensor 'w': too large for a file of"));
  }

  auto pickle_bomb = saved();
  pickle_bomb[0].data = "\x80\x02"s + std::string(10'000'000, 'N');
  CHECK(contains(fault_of(deflated(folder / "c", pickle_bomb)), "its pickle of 10000002 bytes is"));

  // Each byte of a pickle may become an object, so the limit is lower.
  std::string noise(300'000, '\0');
  std::mt19937 engine;
  for (auto& byte : noise) byte = static_cast<char>(engine());
  pickle_bomb[0].data += noise;
  CHECK(contains(fault_of(deflated(folder / "d", pickle_bomb)), "its pickle of 10300002 bytes is"));

  // One element, viewed 2^40 times.
  CHECK(contains(
      fault_of(saved(pickled::dict(
          {{"w", pickled::tensor({.count = 2, .sizes = {std::int64_t{1} << 40}, .strides = {0}})}}))),
      "tensor 'w': too large for a file of"));
}

TEST_CASE("all tensors are named from the root") {
  const auto one = pickled::tensor({.count = 2, .sizes = {2}, .strides = {1}});
  const auto bytes = toy::zip_bytes(saved(pickled::dict(
      {{"model", pickled::dict({{"w", one}})}, {"epoch", "K\3"}, {"ema", pickled::dict({{"w", one}})}})));
  const etude::TorchArchive archive(bytes, "x.pt");
  CHECK_THROWS_WITH_AS(archive.state_dict(), doctest::Contains("'model', 'ema'"), etude::CheckpointError);
  const auto all = archive.all_tensors();
  REQUIRE(all.tensors.size() == 2);
  CHECK(all.tensors[0].name == "model.w");
  CHECK(all.tensors[1].name == "ema.w");
  CHECK(all.skipped == std::vector<std::string>{"epoch"});
}

TEST_CASE("an empty dict has no tensors") {
  const auto bytes = toy::zip_bytes(saved("}"));
  const etude::TorchArchive archive(bytes, "x.pt");
  CHECK(archive.all_tensors().tensors.empty());
  CHECK_THROWS_WITH_AS(archive.state_dict(), "x.pt: it holds no tensors", etude::CheckpointError);
}

TEST_CASE("entries with .. in their names are refused") {
  CHECK(contains(fault_of(with(saved(), {"m/../../etc/passwd", "x"})), "its name leads out of the archive"));
}

}  // namespace formats_torch_archive_test
