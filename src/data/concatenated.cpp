#include "etude/data/concatenated.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "etude/base/counting.hpp"
#include "etude/base/error.hpp"
#include "etude/data/failed_example.hpp"
#include "etude/data/random.hpp"
#include "etude/io/checksum.hpp"

namespace etude::inline v0 {
namespace detail {

namespace {

class Concatenated final : public DatasetSource {
 public:
  explicit Concatenated(std::vector<std::shared_ptr<DatasetSource>> sources) : sources_(std::move(sources)) {
    for (const auto& source : sources_) {
      const auto size = *source->size();
      if (size < 0 || ends_.back() > largest_dataset - size)
        throw ArgumentError(
            fmt::format("the datasets have too many examples: must be at most {} in all", largest_dataset));
      ends_.push_back(ends_.back() + size);
    }
  }

  std::optional<std::int64_t> size() const override { return ends_.back(); }
  bool is_indexed() const override { return true; }
  bool makes_examples() const override {
    return std::ranges::all_of(sources_, [](const auto& source) { return source->makes_examples(); });
  }

  std::shared_ptr<DatasetSource> copy() const override {
    std::vector<std::shared_ptr<DatasetSource>> copies;
    for (const auto& source : sources_) copies.push_back(source->copy());
    return std::make_shared<Concatenated>(std::move(copies));
  }

  std::string fingerprint() const override {
    Checksum sum;
    bool is_known = false;
    for (std::size_t i = 0; i < sources_.size(); ++i) {
      const auto own = sources_[i]->fingerprint();
      is_known = is_known || !own.empty();
      const auto text = fmt::format("{} {}\n", ends_[i + 1], own);
      sum.update(std::as_bytes(std::span(text)));
    }
    return is_known ? sum.hex() : std::string();
  }

  Batch fetch(std::span<const std::int64_t> indices, const DataCollator& collator,
              std::uint64_t seed) override {
    const auto parts = parts_of(indices);
    const auto makes_examples = [&](const Part& part) { return sources_[part.source]->makes_examples(); };
    if (collator || std::ranges::all_of(parts, makes_examples)) {
      std::vector<Example> examples(indices.size());
      for (const auto& part : parts) take_examples(part, seed, examples);
      return collate(std::move(examples), indices, collator);
    }
    if (parts.size() == 1) return fetch(parts[0], {}, seed);
    Batch joined;
    for (const auto& part : parts) put_rows(part, fetch(part, {}, seed), indices, joined);
    return joined;
  }

 private:
  /// The examples of a batch that come from one source.
  struct Part {
    std::size_t source = 0;
    std::vector<std::int64_t> places;   // positions in the batch
    std::vector<std::int64_t> indices;  // indices in the source
  };

  std::vector<Part> parts_of(std::span<const std::int64_t> indices) const {
    std::vector<Part> parts;
    for (std::size_t place = 0; place < indices.size(); ++place) {
      const auto index = indices[place];
      if (index < 0 || index >= ends_.back())
        throw DataError(fmt::format("example {} was requested, but there are {}", index, ends_.back()));
      const auto end = std::ranges::upper_bound(ends_, index);
      const auto source = static_cast<std::size_t>(end - ends_.begin()) - 1;
      auto part = std::ranges::find(parts, source, &Part::source);
      if (part == parts.end()) part = parts.insert(part, Part{source, {}, {}});
      part->places.push_back(static_cast<std::int64_t>(place));
      part->indices.push_back(index - ends_[source]);
    }
    return parts;
  }

  Batch fetch(const Part& part, const DataCollator& collator, std::uint64_t seed) const {
    try {
      return sources_[part.source]->fetch(part.indices, collator, mix(seed, part.source));
    } catch (...) {
      auto& failed = last_failed_example();
      if (failed.error == std::current_exception()) failed.index += ends_[part.source];
      throw;
    }
  }

  void take_examples(const Part& part, std::uint64_t seed, std::vector<Example>& all) const {
    const auto take = [&](std::vector<Example> examples) {
      const auto size = static_cast<std::int64_t>(examples.size());
      check_count(part, size);
      for (std::size_t i = 0; i < examples.size(); ++i)
        all[static_cast<std::size_t>(part.places[i])] = std::move(examples[i]);
      return Batch{.inputs = {}, .labels = {}, .size = size};
    };
    fetch(part, take, seed);
  }

  static void check_count(const Part& part, std::int64_t count) {
    if (count != std::ssize(part.indices))
      throw DataError(
          fmt::format("dataset {} of those concatenated gave {} examples: must be {}, as many as were "
                      "requested",
                      part.source, count, part.indices.size()));
  }

  static void put_rows(const Part& part, const Batch& batch, std::span<const std::int64_t> indices,
                       Batch& joined) {
    check_count(part, batch.size);
    check_row_per_example(batch, "in a batch of several datasets, ");
    const auto size = static_cast<std::int64_t>(indices.size());
    const bool is_first = joined.size == 0;
    const auto places = at::tensor(part.places);
    const auto put = [&](std::string_view kind, const Tensors& rows, Tensors& all) {
      if (is_first)
        all = rows.transform([&](const torch::Tensor& tensor) {
          auto sizes = tensor.sizes().vec();
          sizes[0] = size;
          return at::empty(sizes, tensor.options());
        });
      bool fits = rows.size() == all.size() && rows.names() == all.names();
      for (std::size_t i = 0; fits && i < rows.size(); ++i)
        fits = rows[i].sizes().slice(1) == all[i].sizes().slice(1) &&
               rows[i].scalar_type() == all[i].scalar_type() && rows[i].device() == all[i].device();
      if (!fits)
        throw DataError(
            fmt::format("the {}s must be the same in all concatenated datasets: {} in a batch of {}, {} in "
                        "the rows of dataset {}",
                        kind, describe(all), size, describe(rows), part.source));
      for (std::size_t i = 0; i < rows.size(); ++i)
        all[i].index_copy_(0, places.to(rows[i].device()), rows[i]);
    };
    put("input", batch.inputs, joined.inputs);
    put("label", batch.labels, joined.labels);
    joined.size = size;
  }

  std::vector<std::shared_ptr<DatasetSource>> sources_;
  std::vector<std::int64_t> ends_ = {0};  // 0, then the first index after each source
};

}  // namespace

}  // namespace detail

Dataset concatenated(std::vector<Dataset> datasets) {
  if (datasets.empty()) throw ArgumentError("concatenated needs at least one dataset");
  std::vector<std::shared_ptr<detail::DatasetSource>> sources;
  for (std::size_t i = 0; i < datasets.size(); ++i) {
    auto& dataset = datasets[i];
    const auto refuse = [i](std::string_view fault) {
      throw ArgumentError(fmt::format("dataset {} of those to concatenate {}", i, fault));
    };
    if (!dataset) refuse("is empty: must be a dataset");
    if (!dataset.is_indexed()) refuse("is a stream: must have an index");
    if (!dataset.size()) refuse("has no size: must have one");
    if (dataset.streams()) refuse("consists of parallel streams, whose order would be lost");
    if (dataset.is_divided() != datasets[0].is_divided())
      refuse("must be divided among the processes if the first is, and only then");
    sources.push_back(dataset.source_);
  }
  datasets[0].source_ = std::make_shared<detail::Concatenated>(std::move(sources));
  return std::move(datasets[0]);
}

}  // namespace etude::inline v0
