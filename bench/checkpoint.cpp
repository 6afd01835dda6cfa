/// Measures the cost of checkpoints compared with plainly writing and reading the same bytes in the same run,
/// for a model of 537 MB with AdamW moments, 1.6 GB in all. `checkpoint_bench [FOLDER] [ROUNDS]`: FOLDER is
/// on the disk to measure.

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <etude/checkpoint/resume_point.hpp>
#include <etude/etude.hpp>
#include <etude/io/folder.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "measure.hpp"

namespace {

struct Wide : torch::nn::Module {
  Wide() {
    for (int i = 0; i < 8; ++i)
      layers.push_back(register_module("layer" + std::to_string(i), torch::nn::Linear(4096, 4096)));
  }
  torch::Tensor forward(torch::Tensor x) {
    for (auto& layer : layers) x = torch::relu(layer(x));
    return x;
  }
  std::vector<torch::nn::Linear> layers;
};

void check(bool good, const char* what) {
  if (!good) throw etude::Error(std::string(what) + ": " + std::strerror(errno));
}

void write_plainly(const std::string& path, const std::vector<char>& bytes) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  check(file >= 0, "open");
  constexpr std::size_t piece = std::size_t{1} << 20;
  for (std::size_t at = 0; at < bytes.size();) {
    const auto n = ::write(file, bytes.data() + at, std::min(piece, bytes.size() - at));
    check(n > 0, "write");
    at += static_cast<std::size_t>(n);
  }
  check(::fsync(file) == 0 && ::close(file) == 0, "fsync");
}

std::size_t read_plainly(const std::string& path, std::size_t size) {
  const std::unique_ptr<char[]> bytes(new char[size]);  // unlike a vector, not zeroed first
  const int file = ::open(path.c_str(), O_RDONLY);
  check(file >= 0, "open");
  std::size_t at = 0;
  while (at < size) {
    const auto n = ::read(file, bytes.get() + at, std::min(std::size_t{1} << 30, size - at));
    check(n > 0, "read");
    at += static_cast<std::size_t>(n);
  }
  ::close(file);
  return at + static_cast<unsigned char>(bytes[size / 2]);
}

etude::TrainerOptions options(const std::string& folder, bool async) {
  return {.model = std::make_shared<Wide>(),
          .args = {.output_dir = folder,
                   .per_device_train_batch_size = 1,
                   .max_steps = 1,
                   .save_strategy = etude::SaveStrategy::no,
                   .save_async = async,
                   .disable_tqdm = true},
          .loss = torch::nn::MSELoss(),
          .train_dataset = {torch::randn({2, 4096}), torch::randn({2, 4096})}};
}

std::size_t size_of(const std::filesystem::path& folder) {
  std::size_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) bytes += entry.file_size();
  return bytes;
}

using bench::median, bench::seconds;

}  // namespace

int main(int argc, char** argv) {
  // A separate folder, since it is removed at the end.
  const auto folder =
      std::filesystem::path(argc > 1 ? argv[1] : ".") / fmt::format("checkpoint_bench_output_{}", ::getpid());
  const int rounds = argc > 2 ? std::stoi(argv[2]) : 5;
  std::filesystem::create_directories(folder);
  etude::Trainer<etude::NoDefaultCallbacks> sync(options((folder / "sync").string(), false)),
      async(options((folder / "async").string(), true));
  sync.train();
  async.train();
  const auto checkpoint = sync.save_checkpoint();
  async.save_checkpoint();  // allocates its memory, which is reused
  async.wait_for_checkpoint();
  const std::vector<char> bytes(size_of(checkpoint), 'x');

  std::vector<double> save, load, stall;
  for (int i = 0; i < rounds; ++i) {
    const auto plain = (folder / "plain").string();
    const double write = seconds([&] { write_plainly(plain, bytes); });
    const double saved = seconds([&] { sync.save_checkpoint(); });
    read_plainly(plain, bytes.size());
    const double read = seconds([&] { read_plainly(plain, bytes.size()); });
    const double loaded = seconds([&] {
      etude::FolderReader reader(checkpoint);
      reader.verify();
      const auto point = etude::read_resume_point(reader);
      sync.model().load_state_dict(point.model);
      sync.optimizer()->load_state(*point.optimizer);
    });
    const double stalled = seconds([&] { async.save_checkpoint(); });
    async.wait_for_checkpoint();
    fmt::print(
        "round {}: write+fsync {:.2f} s, save {:.2f} s, read {:.2f} s, load {:.2f} s, stall {:.3f} s\n", i,
        write, saved, read, loaded, stalled);
    save.push_back(write / saved);
    load.push_back(read / loaded);
    stall.push_back(stalled / saved);
  }
  fmt::print("\n| {:.1f} GB, {} rounds | median |\n|---|---|\n", static_cast<double>(bytes.size()) / 1e9,
             rounds);
  fmt::print("| bandwidth of a save, relative to one sequential write with fsync | {:.2f} |\n", median(save));
  fmt::print(
      "| bandwidth of a load (verified, into the model and the optimizer), relative to one read | {:.2f} |\n",
      median(load));
  fmt::print("| stall of an asynchronous save, relative to a synchronous one | {:.3f} |\n", median(stall));
  std::filesystem::remove_all(folder);
}
