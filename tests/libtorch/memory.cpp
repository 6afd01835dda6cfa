#include "etude/libtorch/memory.hpp"

#include <doctest/doctest.h>

#include <memory>

#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)

TEST_CASE("what was freed at the end of the heap stays with the process") {
  etude::keep_freed_memory();
  const auto heap = [] { return mallinfo2().arena; };
  const auto before = heap();
  for (int i = 0; i < 3; ++i) {
    const auto memory = std::make_unique<char[]>(16 << 20);
    CHECK(heap() >= before + (i == 0 ? 8 << 20 : 0));  // not mapped on its own
  }
  CHECK(heap() >= before + (8 << 20));
}

#endif
