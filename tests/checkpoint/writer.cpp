#include "etude/checkpoint/writer.hpp"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "common/folder.hpp"
#include "common/gate.hpp"
#include "common/quick_files.hpp"
#include "etude/base/error.hpp"
#include "etude/checkpoint/model_files.hpp"
#include "etude/io/folder.hpp"
#include "etude/training_arguments.hpp"

namespace checkpoint_writer_test {

using etude::CheckpointWriter;
using Files = std::shared_ptr<etude::FileSystem>;

etude::TrainingArguments in(const toy::Folder& folder, bool save_async) {
  etude::TrainingArguments args;
  args.output_dir = folder;
  args.save_async = save_async;
  return args;
}

/// Writes a checkpoint with this weight and returns its path.
std::filesystem::path write(CheckpointWriter& writer, std::int64_t step, const torch::Tensor& weight) {
  auto folder = writer.store().create(step);
  auto target = folder->target();
  writer.write(
      std::move(folder),
      {.step = step, .reason = writer.reason(), .model = {{"weight", weight}}, .tensors = {}, .texts = {}},
      std::nullopt);
  return target;
}

double weight_in(const std::filesystem::path& checkpoint) {
  etude::FolderReader folder(checkpoint);
  return etude::read_model_files(folder).front().second.item<double>();
}

void wait_until_ended(CheckpointWriter& writer) {
  for (int i = 0; i < 2000 && !writer.has_ended(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

TEST_CASE("a checkpoint is written at once, or in the background with the values that it had") {
  for (const bool async : {false, true}) {
    CAPTURE(async);
    const toy::Folder folder;
    const auto args = in(folder, async);
    toy::Gate gate;
    const Files files = std::make_shared<toy::QuickFiles>([&](std::string_view operation, const auto&) {
      if (async && operation == "write") gate.wait();
    });
    CheckpointWriter writer(args, files);
    auto weight = torch::tensor(1.0);
    const auto checkpoint = write(writer, 3, weight);
    weight.fill_(2);
    CHECK(writer.is_writing() == async);
    CHECK_FALSE(writer.has_ended());
    CHECK(std::filesystem::exists(checkpoint) == !async);
    gate.open();
    if (async) wait_until_ended(writer);
    CHECK(writer.has_ended() == async);
    writer.wait();
    CHECK_FALSE(writer.is_writing());
    CHECK(weight_in(checkpoint) == 1);
    CHECK(writer.store().has(3));
  }
}

TEST_CASE("a checkpoint waits until it is announced, and a failed one is never announced") {
  const toy::Folder folder;
  const auto args = in(folder, true);
  bool is_full = false;
  const Files files = std::make_shared<toy::QuickFiles>([&](std::string_view operation, const auto& path) {
    if (is_full && operation == "write") throw etude::detail::file_error(path, "can't be written", ENOSPC);
  });
  CheckpointWriter writer(args, files);
  CHECK_FALSE(writer.take_unannounced());
  const auto first = write(writer, 1, torch::tensor(1.0));
  writer.announce_later(first);
  writer.wait();
  CHECK(writer.take_unannounced() == first);
  CHECK_FALSE(writer.take_unannounced());

  is_full = true;
  writer.announce_later(write(writer, 2, torch::tensor(2.0)));
  CHECK_THROWS_AS(writer.wait(), etude::CheckpointError);
  CHECK_FALSE(writer.take_unannounced());
  CHECK_FALSE(writer.store().has(2));
}

TEST_CASE("a reason lasts as long as its scope") {
  const etude::TrainingArguments args;
  const Files files;
  CheckpointWriter writer(args, files);
  CHECK(writer.reason() == "periodic");
  {
    const CheckpointWriter::Reason best(writer, "best");
    CHECK(writer.reason() == "best");
  }
  CHECK(writer.reason() == "periodic");
}

TEST_CASE("a store is made once, for the output folder at that time, and again on request") {
  const toy::Folder folder;
  auto args = in(folder, false);
  const Files files = std::make_shared<toy::QuickFiles>();
  CheckpointWriter writer(args, files);
  writer.unlock();
  args.output_dir = folder / "later";
  CHECK(writer.store().output_dir() == folder / "later");
  CHECK(&writer.store().files() == files.get());
  write(writer, 1, torch::tensor(1.0));
  CHECK(writer.store().has_written());
  auto& other = writer.new_store();
  CHECK(&writer.store() == &other);
  CHECK_FALSE(other.has_written());
  REQUIRE(other.lock());
  etude::CheckpointStore rival(folder / "later");
  CHECK_FALSE(rival.lock());
  writer.unlock();
  CHECK(rival.lock());
}

}  // namespace checkpoint_writer_test
