#include "etude/libtorch/device_graph.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "etude/base/error.hpp"

namespace etude::inline v0 {

namespace detail {

namespace {

using MakeGraphCapture = std::unique_ptr<GraphCapture> (*)();

std::map<torch::DeviceType, MakeGraphCapture>& graph_captures() {
  static std::map<torch::DeviceType, MakeGraphCapture> all;
  return all;
}

}  // namespace

}  // namespace detail

void register_graph_capture(torch::DeviceType device, std::unique_ptr<GraphCapture> (*make)()) {
  detail::graph_captures().emplace(device, make);
}

bool has_device_graphs(torch::DeviceType device) { return detail::graph_captures().contains(device); }

DeviceGraph::DeviceGraph(torch::Device device) : device_(device) {
  if (!has_device_graphs(device.type()))
    throw Error(fmt::format("no graphs are registered for the device {}", device.str()));
  if (device.is_cpu()) return;
  const c10::impl::VirtualGuardImpl impl(device.type());
  if (!device_.has_index()) device_ = impl.getDevice();
  own_ = impl.getStreamFromGlobalPool(device_);
  before_ = impl.exchangeStream(*own_);
  order(*before_, *own_);
}

DeviceGraph::~DeviceGraph() {
  if (!own_) return;
  try {
    order(*own_, *before_);
  } catch (const std::exception&) {  // the device has failed; its next use reports that
  }
  c10::impl::VirtualGuardImpl(device_.type()).exchangeStream(*before_);
}

void DeviceGraph::order(const c10::Stream& earlier, const c10::Stream& later) const {
  c10::Event event(device_.type());
  event.record(earlier);
  event.block(later);
}

void DeviceGraph::capture(const std::function<void()>& work) {
  graph_.reset();  // frees its memory first
  auto graph = detail::graph_captures().at(device_.type())();
  graph->begin();
  try {
    work();
  } catch (...) {
    const auto error = std::current_exception();
    try {
      graph->end();  // fails too, if the capture was invalidated
    } catch (const std::exception&) {
    }
    std::rethrow_exception(error);
  }
  graph->end();
  graph_ = std::move(graph);
}

void DeviceGraph::replay() { graph_->replay(); }

}  // namespace etude::inline v0
