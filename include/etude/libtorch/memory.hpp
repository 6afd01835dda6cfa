#pragma once

#include <exception>
#include <initializer_list>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace etude::inline v0 {

/// Keeps memory freed at the end of each step for the next one. glibc would return it to the system and map
/// it again page by page: for a stack of 16 layers of width 256 that takes a third of a step. Does nothing if
/// the user set glibc's own variables for this (MALLOC_TRIM_THRESHOLD_, GLIBC_TUNABLES), or with other
/// allocators.
void keep_freed_memory();

/// Whether `error` means out of memory on any device; a smaller batch may then fit. The exception may keep
/// tensors alive: release it before trying again.
bool is_out_of_memory(const std::exception_ptr& error);

}  // namespace etude::inline v0
