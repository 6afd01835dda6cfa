#pragma once

#if !__has_include(<cuda_runtime_api.h>)
#error \
    "etude/libtorch/cuda_graph.hpp needs the headers of the CUDA toolkit, such as those of the package nvidia-cuda-runtime"
#endif

#include <ATen/core/GraphImplInterface.h>
#include <ATen/cuda/CUDAGraph.h>

#include <memory>
#include <string>

namespace etude::inline v0::libtorch {

/// Graphs of CUDA through the interface for any device, for a LibTorch that doesn't have them there (2.15
/// doesn't). Including this in a source file of a program registers them, so that `cuda_graph` works.
class CudaGraph final : public at::GraphImplInterface {
 public:
  explicit CudaGraph(const at::GraphImplArgs& args) : graph_(args.keep_graph) {}

  void capture_begin(c10::MempoolId_t pool, at::GraphCaptureMode mode) override {
    graph_.capture_begin(pool, mode == at::GraphCaptureMode::ThreadLocal ? cudaStreamCaptureModeThreadLocal
                               : mode == at::GraphCaptureMode::Relaxed   ? cudaStreamCaptureModeRelaxed
                                                                         : cudaStreamCaptureModeGlobal);
  }
  void capture_end() override { graph_.capture_end(); }
  void instantiate() override { graph_.instantiate(); }
  void replay() override { graph_.replay(); }
  void reset() override { graph_.reset(); }
  c10::MempoolId_t pool() const override { return graph_.pool(); }
  void enable_debug_mode() override { graph_.enable_debug_mode(); }
  void debug_dump(const std::string& path) override {
    static_cast<void>(path);  // CUDAGraph has it only in some versions
  }

 private:
  mutable at::cuda::CUDAGraph graph_;
};

inline const bool has_registered_cuda_graph = [] {
  if (at::has_graph_impl(c10::DeviceType::CUDA)) return false;
  at::GraphImplRegistry()->Register(c10::DeviceTypeName(c10::DeviceType::CUDA),
                                    [](at::GraphImplArgs args) -> std::unique_ptr<at::GraphImplInterface> {
                                      return std::make_unique<CudaGraph>(args);
                                    });
  return true;
}();

}  // namespace etude::inline v0::libtorch
