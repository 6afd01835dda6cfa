#pragma once

#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <exception>
#include <functional>

#include "etude/base/error.hpp"
#include "etude/libtorch/device_graph.hpp"

namespace etude::inline v0 {

ETUDE_INLINE bool has_device_graphs([[maybe_unused]] torch::DeviceType device) {
#if ETUDE_HAS_DEVICE_GRAPHS
  return at::has_graph_impl(device);
#else
  return false;
#endif
}

ETUDE_INLINE DeviceGraph::DeviceGraph(torch::Device device) : device_(device) {
  if (!has_device_graphs(device.type()))
    throw Error(fmt::format("this LibTorch can't capture graphs on the device {}", device.str()));
  if (device.is_cpu()) return;
  const c10::impl::VirtualGuardImpl impl(device.type());
  if (!device_.has_index()) device_ = impl.getDevice();
  own_ = impl.getStreamFromGlobalPool(device_);
  before_ = impl.exchangeStream(*own_);
  order(*before_, *own_);
}

ETUDE_INLINE DeviceGraph::~DeviceGraph() {
  if (!own_) return;
  try {
    order(*own_, *before_);
  } catch (const std::exception&) {  // the device has failed, which its next use reports
  }
  c10::impl::VirtualGuardImpl(device_.type()).exchangeStream(*before_);
}

ETUDE_INLINE void DeviceGraph::order(const c10::Stream& earlier, const c10::Stream& later) const {
  c10::Event event(device_.type());
  event.record(earlier);
  event.block(later);
}

#if ETUDE_HAS_DEVICE_GRAPHS

ETUDE_INLINE void DeviceGraph::capture(const std::function<void()>& work) {
  graph_.reset();  // frees its memory first
  auto graph = at::create_graph_impl(device_.type());
  // Threads that load data may use the device meanwhile.
  graph->capture_begin({0, 0}, at::GraphCaptureMode::ThreadLocal);
  try {
    work();
  } catch (...) {
    const auto error = std::current_exception();
    try {
      graph->capture_end();  // fails too, if the capture was invalidated
    } catch (const std::exception&) {
    }
    std::rethrow_exception(error);
  }
  graph->capture_end();
  graph_ = std::move(graph);
}

ETUDE_INLINE void DeviceGraph::replay() { graph_->replay(); }

#else

ETUDE_INLINE void DeviceGraph::capture(const std::function<void()>&) {}
ETUDE_INLINE void DeviceGraph::replay() {}

#endif

}  // namespace etude::inline v0
