#pragma once

#include <cstdlib>
#include <exception>
#include <initializer_list>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace etude {

/// Keeps what a training frees at the end of each step for the next one. glibc would give it back to the
/// system and have it mapped again page by page: for a stack of 16 layers of 256 that is a third of a step.
/// Who has set glibc's own variables for that (MALLOC_TRIM_THRESHOLD_, GLIBC_TUNABLES) is left alone; other
/// allocators are.
inline void keep_freed_memory() {
#if defined(__GLIBC__)
  static const bool done = [] {
    for (const char* name : {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"})
      if (std::getenv(name) != nullptr) return true;
    mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the largest that glibc comes to by itself
    mallopt(M_TRIM_THRESHOLD, 512 << 20);
    return true;
  }();
  static_cast<void>(done);
#endif
}

/// Whether it says that memory has run out, on whatever device, so that a smaller batch may fit. What it
/// holds may keep tensors alive: let go of it before trying again.
bool is_out_of_memory(const std::exception_ptr& error);

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/libtorch/impl/memory.ipp"
#endif
