#pragma once

#if !__has_include(<cuda_runtime_api.h>)
#error \
    "etude/libtorch/cuda_graph.hpp needs the headers of the CUDA toolkit, such as those of the package nvidia-cuda-runtime"
#endif

#include <ATen/cuda/CUDAGraph.h>

#include <memory>

#include "etude/libtorch/device_graph.hpp"

namespace etude::inline v0::libtorch {

/// Captures CUDA graphs. Including this header in a source file of a program registers this class, so
/// `cuda_graph` works.
class CudaGraph final : public GraphCapture {
 public:
  void begin() override { graph_.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal); }
  void end() override { graph_.capture_end(); }
  void replay() override { graph_.replay(); }

 private:
  at::cuda::CUDAGraph graph_;
};

inline const bool has_registered_cuda_graph = [] {
  register_graph_capture(torch::kCUDA,
                         []() -> std::unique_ptr<GraphCapture> { return std::make_unique<CudaGraph>(); });
  return true;
}();

}  // namespace etude::inline v0::libtorch
