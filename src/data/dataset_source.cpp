#include "etude/data/dataset_source.hpp"

#include <fmt/format.h>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/SmallVector.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "etude/base/interrupt.hpp"
#include "etude/io/checksum.hpp"
#include "etude/io/own_threads.hpp"

namespace etude::inline v0::detail {

Batch collate(std::vector<Example> examples, std::span<const std::int64_t> indices,
              const DataCollator& collator) {
  if (!collator) return default_data_collator(examples, indices);
  Batch batch = collator(std::move(examples));
  if (batch.size > 0) return batch;
  try {
    return make_batch(std::move(batch.inputs), std::move(batch.labels));
  } catch (const DataError& error) {
    throw DataError(fmt::format("data_collator: {}", error.what()));
  }
}

namespace {

/// Copies the rows `indices[begin]`, ..., `indices[end - 1]` to the rows `begin`, ..., `end - 1`.
void copy_rows(std::byte* to, const std::byte* from, std::span<const std::int64_t> indices, std::size_t bytes,
               std::size_t begin, std::size_t end) {
  const auto in_pieces = [&]<std::size_t piece>(std::integral_constant<std::size_t, piece>) {
    for (auto i = begin; i < end; ++i)
      for (std::size_t at = 0; at < bytes; at += piece)
        std::memcpy(to + i * bytes + at, from + static_cast<std::size_t>(indices[i]) * bytes + at, piece);
  };
  // For a few bytes, calling memcpy with a size unknown at compile time costs more than the copying itself.
  if (bytes <= 512 && bytes % 16 == 0) return in_pieces(std::integral_constant<std::size_t, 16>());
  if (bytes <= 64 && bytes % 8 == 0) return in_pieces(std::integral_constant<std::size_t, 8>());
  if (bytes == 4) return in_pieces(std::integral_constant<std::size_t, 4>());
  while (begin < end) {
    auto last = begin + 1;  // Copy adjacent rows together.
    while (last < end && indices[last] == indices[last - 1] + 1) ++last;
    std::memcpy(to + begin * bytes, from + static_cast<std::size_t>(indices[begin]) * bytes,
                (last - begin) * bytes);
    begin = last;
  }
}

/// The rows of `tensor` at these indices, as one tensor. Throws DataError for an index out of range.
torch::Tensor rows_of(const torch::Tensor& tensor, std::span<const std::int64_t> indices) {
  const auto count = static_cast<std::int64_t>(indices.size()), all = tensor.size(0);
  for (const auto index : indices)
    if (index < 0 || index >= all)
      throw DataError(fmt::format("example {} was requested, but there are {}", index, all));
  const bool is_plain = tensor.layout() == at::kStrided && tensor.is_cpu() && tensor.is_contiguous() &&
                        !tensor.requires_grad() && !tensor.is_quantized() && !tensor.is_conj() &&
                        !tensor.is_neg();
  if (!is_plain) {
    const auto index = at::from_blob(const_cast<std::int64_t*>(indices.data()), {count}, at::kLong);
    return tensor.index_select(0, index.to(tensor.device()));
  }
  // Equivalent to index_select, at a fraction of its cost for short rows.
  c10::SmallVector<std::int64_t, 6> sizes(tensor.sizes().begin(), tensor.sizes().end());
  sizes[0] = count;
  auto rows = at::empty(sizes, tensor.options());
  const auto bytes = tensor.nbytes() / static_cast<std::size_t>(std::max<std::int64_t>(all, 1));
  const auto* from = static_cast<const std::byte*>(tensor.data_ptr());
  auto* to = static_cast<std::byte*>(rows.data_ptr());
  const auto rows_a_task = static_cast<std::int64_t>(131'072 / std::max<std::size_t>(bytes, 1)) + 1;
  at::parallel_for(0, count, rows_a_task, [&](std::int64_t begin, std::int64_t end) {
    copy_rows(to, from, indices, bytes, static_cast<std::size_t>(begin), static_cast<std::size_t>(end));
  });
  return rows;
}

}  // namespace

std::string fingerprint_of(std::int64_t size, const std::function<Example(std::int64_t)>& example) {
  constexpr std::int64_t most_examples = 8, most_numbers = 1024;
  Checksum sum;
  const auto add = [&](const torch::Tensor& tensor) {
    const auto text = describe(tensor);
    sum.update(std::as_bytes(std::span(text)));
    const auto numbers = tensor.detach().reshape({-1});
    const auto first = numbers.slice(0, 0, std::min(numbers.numel(), most_numbers)).cpu().contiguous();
    sum.update({static_cast<const std::byte*>(first.data_ptr()), first.nbytes()});
  };
  const auto count = std::min(size, most_examples);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto parts = std::max<std::int64_t>(count - 1, 1);  // includes first and last, without overflow
    const auto [inputs, labels] = example((size - 1) / parts * i + (size - 1) % parts * i / parts);
    for (const auto& tensor : inputs) add(tensor);
    for (const auto& tensor : labels) add(tensor);
  }
  return sum.hex();
}

namespace {

/// Tensors whose first dimension is the number of examples. A batch is a copy, so that a model that works in
/// place doesn't change the dataset.
class TensorSource final : public DatasetSource {
 public:
  TensorSource(Tensors inputs, Tensors labels) : all_(make_batch(std::move(inputs), std::move(labels))) {
    check_row_per_example(all_, "in a dataset of tensors, ");
  }

  std::optional<std::int64_t> size() const override { return all_.size; }
  bool is_indexed() const override { return true; }
  std::shared_ptr<DatasetSource> copy() const override { return std::make_shared<TensorSource>(*this); }

  std::string fingerprint() const override {
    for (const auto* tensors : {&all_.inputs, &all_.labels})
      for (const auto& tensor : *tensors)
        if (tensor.layout() != at::kStrided || tensor.is_quantized()) return {};
    return fingerprint_of(all_.size, [this](std::int64_t i) {
      const auto row = [&](const torch::Tensor& tensor) { return tensor.select(0, i); };
      return Example{all_.inputs.transform(row), all_.labels.transform(row)};
    });
  }

  Batch fetch(std::span<const std::int64_t> indices, const DataCollator& collator, std::uint64_t) override {
    if (collator) {
      std::vector<Example> examples;
      for (const auto i : indices) {
        const auto row = [&](const torch::Tensor& tensor) { return tensor.select(0, i).clone(); };
        examples.push_back({all_.inputs.transform(row), all_.labels.transform(row)});
      }
      return collate(std::move(examples), indices, collator);
    }
    const auto rows = [&](const torch::Tensor& tensor) { return rows_of(tensor, indices); };
    return {all_.inputs.transform(rows), all_.labels.transform(rows),
            static_cast<std::int64_t>(indices.size())};
  }

 private:
  Batch all_;
};

}  // namespace

void Turns::begin() {
  const int here = fork_count();
  for (int taken = nowhere; !taken_in_.compare_exchange_strong(taken, here, std::memory_order_acquire);
       taken = nowhere) {
    if (taken != here)
      throw Error(
          "this process was forked while a thread was reading the stream dataset for its parent: the "
          "child can't read it; end the child with _exit, or fork before train()");
    interruption_point();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

std::shared_ptr<DatasetSource> tensor_source(Tensors inputs, Tensors labels) {
  return std::make_shared<TensorSource>(std::move(inputs), std::move(labels));
}

Batch DatasetSource::fetch(std::span<const std::int64_t>, const DataCollator&, std::uint64_t) {
  throw DataError("a stream dataset can't be asked for examples by index");
}

std::optional<Batch> DatasetSource::next(std::int64_t, const DataCollator&) {
  throw DataError("a dataset with an index isn't a stream");
}

void throw_cannot_be_copied(std::string_view dataset) {
  throw ArgumentError(
      fmt::format("dataloader_num_workers: must be 0, because each worker needs a copy of the dataset "
                  "and {} can't be copied",
                  dataset));
}

}  // namespace etude::inline v0::detail
