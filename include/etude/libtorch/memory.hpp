#pragma once

#include <c10/util/Exception.h>

#include <cstdlib>
#include <exception>
#include <initializer_list>
#include <new>
#include <string_view>

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

/// Whether this is how memory runs out, of a device or of the host: by its type where LibTorch has one, else
/// by what LibTorch's allocators and cuDNN say.
inline bool is_out_of_memory(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::bad_alloc&) {
    return true;
  } catch (const c10::OutOfMemoryError&) {
    return true;
  } catch (const c10::Error& other) {
    const std::string_view what = other.what_without_backtrace();
    for (const std::string_view sign :
         {"CUDA out of memory", "CUDNN_STATUS_NOT_SUPPORTED", "can't allocate memory"})
      if (what.find(sign) != std::string_view::npos) return true;
    return false;
  } catch (...) {
    return false;
  }
}

}  // namespace etude
