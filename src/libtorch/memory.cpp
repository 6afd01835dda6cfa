#include "etude/libtorch/memory.hpp"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <exception>
#include <new>
#include <string_view>

namespace etude::inline v0 {

bool is_out_of_memory(const std::exception_ptr& error) {
  if (!error) return false;
  try {
    std::rethrow_exception(error);
  } catch (const c10::OutOfMemoryError&) {
    return true;
  } catch (const std::bad_array_new_length&) {
    return false;  // An impossible size, not one too large for this machine.
  } catch (const std::bad_alloc&) {
    return true;
  } catch (const std::exception& other) {
    // Messages from the CPU's allocator, the CUDA libraries, and TorchScript, which turns every exception
    // into text.
    static constexpr std::array<std::string_view, 9> words{
        "DefaultCPUAllocator: can't allocate memory",
        "DefaultCPUAllocator: not enough memory",
        "CUDA out of memory",
        "CUDA error: out of memory",
        "HIP out of memory",
        "MPS backend out of memory",
        "CUBLAS_STATUS_ALLOC_FAILED",
        "CUDNN_STATUS_ALLOC_FAILED",
        "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED"};  // no algorithm fits in so little memory
    const std::string_view what = other.what();
    return std::ranges::any_of(words, [&](auto part) { return what.find(part) != what.npos; });
  } catch (...) {
    return false;
  }
}

void keep_freed_memory() {
#if defined(__GLIBC__)
  static const bool done = [] {
    for (const char* name : {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"})
      if (std::getenv(name) != nullptr) return true;
    mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the largest value of glibc's own dynamic threshold
    mallopt(M_TRIM_THRESHOLD, 512 << 20);
    return true;
  }();
  static_cast<void>(done);
#endif
}

}  // namespace etude::inline v0
