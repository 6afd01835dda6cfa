#pragma once

#ifndef XXH_INLINE_ALL
#define XXH_INLINE_ALL
#endif
#include <xxhash.h>

#include <cstddef>
#include <span>
#include <string>

namespace etude::inline v0 {

static_assert(XXH_VERSION_NUMBER >= 800, "etude: needs xxHash 0.8.0 or later, where XXH3's values are final");

/// Incremental XXH3 (128 bits). Detects corruption at memory speed; not a defense against deliberate
/// tampering.
class Checksum {
 public:
  Checksum() { XXH3_128bits_reset(&state_); }

  void update(std::span<const std::byte> bytes) {
    if (!bytes.empty()) XXH3_128bits_update(&state_, bytes.data(), bytes.size());
  }

  /// The checksum so far: 32 hexadecimal digits, as `xxhsum -H2` prints them.
  std::string hex() const;

 private:
  XXH3_state_t state_;
};

/// The checksum of `bytes`.
std::string checksum(std::span<const std::byte> bytes);

}  // namespace etude::inline v0
