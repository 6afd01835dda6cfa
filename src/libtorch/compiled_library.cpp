#include "etude/libtorch/compiled_library.hpp"

#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <torch/types.h>
#include <torch/version.h>

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#define ETUDE_DETAIL_RUNS_COMPILED \
  (TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 13))

#if ETUDE_DETAIL_RUNS_COMPILED
#include <ATen/DynamicLibrary.h>
#include <torch/csrc/inductor/aoti_runner/model_container_runner.h>
#endif

namespace etude::inline v0::libtorch {

bool runs_compiled_graphs() { return ETUDE_DETAIL_RUNS_COMPILED; }

std::string cuda_capability(torch::Device device) {
  // The program may be compiled without CUDA's headers.
  using GetAttribute = int (*)(int* value, int attribute, int device);
  constexpr int major_attribute = 75, minor_attribute = 76;
  const auto get = reinterpret_cast<GetAttribute>(::dlsym(RTLD_DEFAULT, "cudaDeviceGetAttribute"));
  int major = 0, minor = 0;
  const int index = device.has_index() ? device.index() : 0;
  if (!get || get(&major, major_attribute, index) != 0 || get(&minor, minor_attribute, index) != 0) return "";
  return std::to_string(major) + "." + std::to_string(minor);
}

#if ETUDE_DETAIL_RUNS_COMPILED

namespace {

using Base = torch::inductor::AOTIModelContainerRunner;

std::unique_ptr<Base> make_runner(const std::filesystem::path& path, torch::Device device) {
  // The registry has the runners for GPUs without their headers.
  const auto& registry = torch::inductor::getAOTIModelRunnerRegistry();
  const auto found = registry.find(torch::DeviceTypeName(device.type(), /*lower_case=*/true));
  TORCH_CHECK(found != registry.end(), "this LibTorch runs no compiled graphs on ", device.type());
  return found->second(path.string(), /*num_models=*/1, device.str(), /*bin_dir=*/"",
                       /*run_single_threaded=*/false);
}

/// Gives access to the protected members of a runner.
struct Inside : Base {
  template <class Count>
  static std::size_t count(Base& runner, Count get) {
    std::size_t result = 0;
    TORCH_CHECK(get(runner.*(&Inside::container_handle_), &result) == AOTI_RUNTIME_SUCCESS,
                "the library doesn't say how many tensors it takes and returns");
    return result;
  }
  static std::size_t inputs(Base& runner) {
    return count(runner, reinterpret_cast<decltype(&AOTInductorModelContainerGetNumInputs)>(
                             (runner.*(&Inside::model_so_))->sym("AOTInductorModelContainerGetNumInputs")));
  }
  static std::size_t outputs(Base& runner) { return count(runner, runner.*(&Inside::get_num_outputs_func_)); }
};

}  // namespace

struct CompiledLibrary::Runner {
  std::unique_ptr<Base> base;
};

CompiledLibrary::CompiledLibrary(const std::filesystem::path& path, torch::Device device)
    : runner_(std::make_unique<Runner>(Runner{make_runner(path, device)})) {}

std::string CompiledLibrary::spec() const { return runner_->base->get_call_spec().front(); }
std::size_t CompiledLibrary::input_count() const { return Inside::inputs(*runner_->base); }
std::size_t CompiledLibrary::output_count() const { return Inside::outputs(*runner_->base); }

std::vector<torch::Tensor> CompiledLibrary::run(std::vector<torch::Tensor> inputs) const {
  return runner_->base->boxed_run(std::move(inputs));
}

#else

struct CompiledLibrary::Runner {};

CompiledLibrary::CompiledLibrary(const std::filesystem::path& path, torch::Device device) {
  TORCH_CHECK(false, path.string(), ": LibTorch ", TORCH_VERSION, " can't run it on ", device);
}

std::string CompiledLibrary::spec() const { return ""; }
std::size_t CompiledLibrary::input_count() const { return 0; }
std::size_t CompiledLibrary::output_count() const { return 0; }

std::vector<torch::Tensor> CompiledLibrary::run(std::vector<torch::Tensor> inputs) const { return inputs; }

#endif

CompiledLibrary::CompiledLibrary(CompiledLibrary&& other) noexcept = default;
CompiledLibrary::~CompiledLibrary() = default;

}  // namespace etude::inline v0::libtorch
