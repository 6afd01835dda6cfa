#include "etude/libtorch/memory.hpp"

#include <doctest/doctest.h>
#include <torch/types.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <stdexcept>

namespace libtorch_memory_test {

template <class Throw>
bool runs_out(Throw throw_it) {
  try {
    throw_it();
  } catch (...) {
    return etude::is_out_of_memory(std::current_exception());
  }
  return false;
}

TEST_CASE("running out of memory is distinguished from other errors, on the CPU, on a device, and as text") {
  CHECK(runs_out([] { throw std::bad_alloc(); }));
  CHECK(runs_out([] { static_cast<void>(torch::empty({std::int64_t{1} << 50})); }));
  CHECK(runs_out([] { C10_THROW_ERROR(OutOfMemoryError, "nothing is left"); }));
  CHECK(runs_out([] { throw std::runtime_error("RuntimeError: CUDA out of memory. Tried to allocate"); }));
  CHECK(runs_out([] { TORCH_CHECK(false, "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling it"); }));

  CHECK_FALSE(runs_out([] { throw std::runtime_error("the cashier is out of memory"); }));
  CHECK_FALSE(runs_out([] { throw std::bad_array_new_length(); }));
  CHECK_FALSE(runs_out([] { static_cast<void>(torch::ones({2}) + torch::ones({3})); }));
  CHECK_FALSE(runs_out([] { throw 7; }));
  CHECK_FALSE(etude::is_out_of_memory(nullptr));
}

#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)

TEST_CASE("memory freed at the end of the heap stays with the process") {
  etude::keep_freed_memory();
  const auto heap = [] { return mallinfo2().arena; };
  const auto before = heap();
  for (int i = 0; i < 3; ++i) {
    const auto memory = std::make_unique<char[]>(16 << 20);
    CHECK(heap() >= before + (i == 0 ? 8 << 20 : 0));  // not in a separate mapping
  }
  CHECK(heap() >= before + (8 << 20));
}

#endif

}  // namespace libtorch_memory_test
