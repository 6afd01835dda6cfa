// Fuzzes an archive, or if it doesn't begin like one, the pickle in it, which no checksum protects then.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "etude/formats/torch_archive.hpp"

namespace {

// The guarantee for a tensor, computed another way: its last element is within its storage.
void check(const etude::TorchStateDict& state_dict) {
  for (const auto& tensor : state_dict.tensors) {
    if (tensor.bytes() == 0) continue;
    auto end = static_cast<__int128>(tensor.offset) + 1;
    for (std::size_t i = 0; i < tensor.sizes.size(); ++i) {
      if (tensor.strides[i] < 0) std::abort();
      end += static_cast<__int128>(tensor.sizes[i] - 1) * tensor.strides[i];
    }
    if (tensor.offset < 0 || end * static_cast<__int128>(tensor.item_size) > tensor.storage_bytes)
      std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    if (bytes.starts_with("PK")) {
      const etude::TorchArchive archive(bytes, "fuzz");
      const auto state_dict = archive.state_dict();
      check(state_dict);
      for (const auto& tensor : state_dict.tensors) {
        std::string storage(tensor.storage_bytes, '\0');
        archive.read_storage(tensor.storage, storage.data());
      }
    } else {
      static const auto globals = etude::detail::torch_globals();
      const auto document = etude::pickle::unpickle(bytes, globals, "fuzz");
      check(etude::read_torch_state_dict(document, bytes.size(), "", "fuzz"));
    }
  } catch (const etude::CheckpointError&) {
  }
  return 0;
}
