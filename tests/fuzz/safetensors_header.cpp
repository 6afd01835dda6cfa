// Reads a file, or if it begins with '{', a header's text and, after a NUL, the tensors' bytes, so that the
// fuzzer needn't guess the length.

#include "etude/formats/safetensors_header.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>

namespace {

void require(bool good) {
  if (!good) std::abort();
}

void check(const etude::SafeTensorsHeader& header, std::span<const std::byte> file) {
  const auto data = file.subspan(header.data_begin);
  std::set<std::string> names{"__metadata__"};
  std::uint64_t position = 0;
  for (const auto& entry : header.tensors) {
    require(names.insert(entry.name).second);
    require(entry.begin == position && entry.end >= entry.begin && entry.end <= data.size());
    position = entry.end;
    require(entry.shape.size() <= 64);
    unsigned __int128 bytes = entry.dtype->item_size;
    bool empty = false;
    for (const auto size : entry.shape) {
      require(size >= 0);
      empty = empty || size == 0;
      bytes *= static_cast<unsigned __int128>(std::max<std::int64_t>(size, 1));
      require(bytes <= INT64_MAX);
    }
    require(entry.end - entry.begin == (empty ? 0 : bytes));
    const auto items = data.subspan(entry.begin, entry.end - entry.begin);
    require(etude::detail::are_bools(items) == std::ranges::all_of(items, [](auto byte) {
              return byte == std::byte{0} || byte == std::byte{1};
            }));
  }
  require(position == data.size());

  auto copy = etude::safetensors_header_bytes(header.tensors, header.metadata);
  copy.append(data.size(), '\0');
  const auto again = etude::read_safetensors_header(std::as_bytes(std::span(copy)));
  require(again.metadata == header.metadata && again.tensors.size() == header.tensors.size());
  // The order of tensors that begin at the same byte, of which all but one are empty, isn't defined.
  std::set<std::string> found;
  for (const auto& entry : again.tensors) found.insert(entry.name);
  for (const auto& entry : header.tensors) require(found.contains(entry.name));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string file(reinterpret_cast<const char*>(data), size);
  if (file.starts_with('{')) {
    const auto end = std::min(file.find('\0'), size);
    const std::uint64_t length = end;
    file.erase(end, 1).insert(0, reinterpret_cast<const char*>(&length), sizeof length);
  }
  try {
    const auto bytes = std::as_bytes(std::span(file));
    check(etude::read_safetensors_header(bytes), bytes);
  } catch (const etude::CheckpointError&) {
  }
  return 0;
}
