#pragma once

#include <torch/version.h>

// LibTorch's targets say whether it has Gloo; their packages leave out Gloo's own headers.
#if defined(USE_C10D_GLOO) && __has_include(<gloo/algorithm.h>)
#define ETUDE_HAS_GLOO 1
#include <torch/csrc/distributed/c10d/Store.hpp>
#else
#define ETUDE_HAS_GLOO 0
#endif

#include <chrono>
#include <string>

#include "etude/io/launch.hpp"

#if ETUDE_HAS_GLOO
namespace etude::inline v0::detail {

/// A store that the processes of a training share, at MASTER_ADDR and MASTER_PORT: each call returns a new
/// one, so all processes must call it as often. Throws CommunicationError that names where they meet.
c10::intrusive_ptr<c10d::Store> meet(const Launch& launch, std::chrono::milliseconds timeout);

/// LibTorch's messages go on with the C++ stack.
inline std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace etude::inline v0::detail
#endif

#ifndef ETUDE_COMPILED
#include "etude/parallel/impl/rendezvous.ipp"
#endif
