#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <torch/types.h>

#include <functional>
#include <memory>
#include <optional>

namespace etude::inline v0 {

/// Captures a device's work. Each kind of device has a different implementation; CUDA's is in
/// `etude/libtorch/cuda_graph.hpp`.
class GraphCapture {
 public:
  GraphCapture() = default;
  GraphCapture(const GraphCapture&) = delete;
  GraphCapture& operator=(const GraphCapture&) = delete;
  virtual ~GraphCapture() = default;

  /// Begins to capture the work that the calling thread queues on its current stream; other threads may use
  /// the device.
  virtual void begin() = 0;
  virtual void end() = 0;
  virtual void replay() = 0;
};

/// Registers `make` for captures on devices of this type, for the rest of the process, unless one is
/// registered.
void register_graph_capture(torch::DeviceType device, std::unique_ptr<GraphCapture> (*make)());

/// Whether captures are registered for devices of this type.
bool has_device_graphs(torch::DeviceType device);

/// Device work that is captured once and replayed as a whole, in a separate memory pool. While this object
/// lives, the calling thread's work for the device goes to a separate stream, as captures require.
class DeviceGraph {
 public:
  /// Throws Error unless `has_device_graphs`.
  explicit DeviceGraph(torch::Device device);
  DeviceGraph(const DeviceGraph&) = delete;
  DeviceGraph& operator=(const DeviceGraph&) = delete;
  ~DeviceGraph();

  /// Captures the work that `work` queues on the device, without running it, and replaces any work captured
  /// before. Rethrows exceptions of `work`; the graph is then empty.
  void capture(const std::function<void()>& work);

  /// Runs the captured work, on the same tensors at the addresses that they had in the capture. Doesn't wait
  /// for the device.
  void replay();

 private:
  /// Makes `later` wait for the work queued in `earlier`.
  void order(const c10::Stream& earlier, const c10::Stream& later) const;

  torch::Device device_;
  std::optional<c10::Stream> before_, own_;  // streams of the thread; none on the CPU
  std::unique_ptr<GraphCapture> graph_;
};

}  // namespace etude::inline v0
