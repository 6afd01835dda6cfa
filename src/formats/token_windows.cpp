#include "etude/formats/token_windows.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>

#include "etude/base/error.hpp"
#include "etude/data/dataset_source.hpp"
#include "etude/formats/mapped_tensor.hpp"

namespace etude::inline v0 {
namespace detail {

namespace {

std::int64_t item_size(TokenType type) { return std::int64_t{1} << static_cast<int>(type); }

}  // namespace

}  // namespace detail

TokenWindows::TokenWindows(const std::filesystem::path& file, const TokenWindowsOptions& options)
    : file_(file), options_(options) {
  const auto check = [](const char* name, std::int64_t value) {
    if (value < 1) throw ArgumentError(fmt::format("{} is {}: must be at least 1", name, value));
  };
  check("context", options.context);
  if (options.stride) check("stride", *options.stride);
  if (options.vocab_size) check("vocab_size", *options.vocab_size);

  const auto mapped = detail::map_data(file);
  const auto size = static_cast<std::int64_t>(mapped->bytes().size());
  if (size % detail::item_size(options.type) != 0)
    throw DataError(fmt::format("{} has {} bytes: must be a multiple of {}, the size of a {}", file.string(),
                                size, detail::item_size(options.type), to_string(options.type)));
  bytes_ = detail::mapped_tensor(mapped, mapped->bytes(), {size}, at::kByte);
  if (token_count() - 1 < options.context)
    throw DataError(fmt::format("{} has {} tokens: must be more than context, {}", file.string(),
                                token_count(), options.context));
}

std::int64_t TokenWindows::token_count() const { return bytes_.numel() / detail::item_size(options_.type); }

std::size_t TokenWindows::size() const {
  const auto last_start = token_count() - 1 - options_.context;
  return static_cast<std::size_t>(last_start / options_.stride.value_or(options_.context) + 1);
}

template <class Token>
void TokenWindows::read(std::size_t index, std::int64_t* inputs, std::int64_t* labels) const {
  const auto start = static_cast<std::int64_t>(index) * options_.stride.value_or(options_.context);
  const auto* tokens = static_cast<const Token*>(bytes_.data_ptr()) + start;
  std::int64_t largest = 0;
  for (std::int64_t i = 0; i <= options_.context; ++i) {
    const std::int64_t token = tokens[i];
    largest = largest < token ? token : largest;
    if (i < options_.context) inputs[i] = token;
    if (i > 0) labels[i - 1] = token;
  }
  if (!options_.vocab_size || largest < *options_.vocab_size) return;
  std::int64_t place = 0;
  while (tokens[place] != largest) ++place;
  throw DataError(fmt::format("{}: token {} at place {}: must be less than vocab_size, {}", file_.string(),
                              largest, start + place, *options_.vocab_size));
}

Batch TokenWindows::get_batch(BatchRequestType indices) const {
  const auto count = static_cast<std::int64_t>(indices.size());
  const auto inputs = at::empty({count, options_.context}, at::kLong), labels = at::empty_like(inputs);
  auto* input = static_cast<std::int64_t*>(inputs.data_ptr());
  auto* label = static_cast<std::int64_t*>(labels.data_ptr());
  for (const auto index : indices) {
    if (index >= size())
      throw DataError(fmt::format("example {} was requested, but there are {}", index, size()));
    switch (options_.type) {
      case TokenType::uint8:
        read<std::uint8_t>(index, input, label);
        break;
      case TokenType::uint16:
        read<std::uint16_t>(index, input, label);
        break;
      case TokenType::uint32:
        read<std::uint32_t>(index, input, label);
        break;
    }
    input += options_.context;
    label += options_.context;
  }
  return make_batch(inputs, labels);
}

std::string TokenWindows::fingerprint() const {
  return detail::fingerprint_of(static_cast<std::int64_t>(size()), [this](std::int64_t i) {
    const auto index = static_cast<std::size_t>(i);
    auto window = get_batch(index);
    return Example{std::move(window.inputs), std::move(window.labels)};
  });
}

}  // namespace etude::inline v0
