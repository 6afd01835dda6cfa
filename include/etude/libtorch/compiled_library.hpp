#pragma once

#ifndef ETUDE_EXPORTED
#error "etude/libtorch/compiled_library.hpp needs a library: link etude::exported"
#endif

#include <torch/types.h>

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace etude::inline v0::libtorch {

/// Whether this LibTorch can run graphs that Python compiled ahead of time for the same version.
bool runs_compiled_graphs();

/// The compute capability of a GPU, such as "9.0"; empty if it can't be determined.
std::string cuda_capability(torch::Device device);

/// A shared library that TorchInductor compiled ahead of time (AOTInductor). Loading and running it executes
/// the library's native code. LibTorch's exceptions are propagated.
class CompiledLibrary {
 public:
  /// Loads the library for a device. If there is a file of the same name with the suffix .json, it describes
  /// the operators that the library calls. The files aren't needed afterwards.
  CompiledLibrary(const std::filesystem::path& path, torch::Device device);
  CompiledLibrary(CompiledLibrary&& other) noexcept;
  ~CompiledLibrary();

  /// The text that the exporter stored as the input half of the call spec.
  std::string spec() const;
  std::size_t input_count() const;
  std::size_t output_count() const;

  /// Runs the graph; on a GPU, in the current stream. Calls from several threads take turns.
  std::vector<torch::Tensor> run(std::vector<torch::Tensor> inputs) const;

 private:
  struct Runner;
  std::unique_ptr<Runner> runner_;
};

}  // namespace etude::inline v0::libtorch
