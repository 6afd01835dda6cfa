#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <torch/types.h>

#include <functional>
#include <memory>
#include <optional>

#if __has_include(<ATen/core/GraphImplInterface.h>)
#include <ATen/core/GraphImplInterface.h>
#define ETUDE_HAS_DEVICE_GRAPHS 1
#else
#define ETUDE_HAS_DEVICE_GRAPHS 0
#endif

#include "etude/base/linkage.hpp"

namespace etude::inline v0 {

/// Whether LibTorch captures the work of such a device in graphs: newer versions have the interface, and a
/// device has an implementation if one is registered in at::GraphImplRegistry.
bool has_device_graphs(torch::DeviceType device);

/// Work of a device, captured once and replayed as a whole, from its own pool of memory. While this lives,
/// the calling thread's work for the device goes to a stream of its own, as captures require.
class DeviceGraph {
 public:
  /// Throws Error unless `has_device_graphs`.
  explicit DeviceGraph(torch::Device device);
  DeviceGraph(const DeviceGraph&) = delete;
  DeviceGraph& operator=(const DeviceGraph&) = delete;
  ~DeviceGraph();

  /// Captures the work that `work` gives the device, which isn't done yet, in place of the work it held.
  /// Rethrows its exceptions, and then holds nothing.
  void capture(const std::function<void()>& work);

  /// Does the work again, with the tensors of the capture: all memory is where it was. Doesn't wait for the
  /// device.
  void replay();

 private:
  /// Makes `later` wait for the work queued in `earlier`.
  void order(const c10::Stream& earlier, const c10::Stream& later) const;

  torch::Device device_;
  std::optional<c10::Stream> before_, own_;  // streams of the thread; none on the CPU
#if ETUDE_HAS_DEVICE_GRAPHS
  std::unique_ptr<at::GraphImplInterface> graph_;
#endif
};

}  // namespace etude::inline v0

#ifndef ETUDE_COMPILED
#include "etude/libtorch/impl/device_graph.ipp"
#endif
