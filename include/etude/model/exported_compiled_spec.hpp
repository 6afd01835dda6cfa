#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

/// The descriptions of compiled graphs that tools/export.py writes. They aren't trusted: reading them throws
/// a CheckpointError that begins with `where`.
namespace etude::inline v0::detail {

/// A processor's machine type, as `uname -m` prints it, and its instruction sets, as /proc/cpuinfo names
/// them.
struct Processor {
  std::string machine;
  std::set<std::string, std::less<>> features = {};
};

/// The processor of this machine, without features if /proc/cpuinfo doesn't list them.
const Processor& this_processor();

/// The features of the first processor in the text of /proc/cpuinfo.
std::set<std::string, std::less<>> processor_features(std::string_view cpuinfo);

/// One graph of compiled/manifest.json.
struct CompiledEntry {
  std::string library;         ///< the name of its library in the file's folder compiled/
  std::string operators = {};  ///< the name of the file that describes operators it calls; empty if none
  std::string torch;           ///< the version of LibTorch that it was compiled for
  torch::DeviceType device = torch::kCPU;
  std::optional<torch::ScalarType> autocast = {};  ///< the dtype of autocast, if it was compiled with it
  Processor processor = {};                        ///< the machine type and the features that it needs
  std::string capability = {};                     ///< the compute capability that it needs, on CUDA
};

/// Reads manifest.json.
std::vector<CompiledEntry> read_compiled_manifest(std::string_view json, std::string_view where);

/// Returns why a graph can't run here; empty if it can. `torch` is LibTorch's version, and `capability` the
/// GPU's, or empty if that isn't known.
std::string unmet_requirement(const CompiledEntry& entry, std::string_view torch, const Processor& processor,
                              std::string_view capability);

/// A size of a tensor that a compiled graph takes.
struct CompiledSize {
  std::int64_t fixed = -1;  ///< the size; negative if it may vary
  std::size_t symbol = 0;   ///< its index in CompiledSpec::symbols, if it may vary
};

/// A size that may vary, within limits that include both ends.
struct CompiledSymbol {
  std::string name;
  std::int64_t least = 0;
  std::optional<std::int64_t> most = {};
};

/// A tensor that a compiled graph takes. All are contiguous.
struct CompiledInput {
  enum class Kind { parameter, buffer, constant, input, scale };  // the first three as in ExportedState
  Kind kind;
  std::string name;
  torch::ScalarType dtype;
  std::vector<CompiledSize> sizes;
  bool trains = false;  ///< whether it is a parameter that required gradients when it was compiled

  /// "parameter 'weight'"
  std::string title() const;
};

/// A tensor that a compiled graph returns.
struct CompiledOutput {
  enum class Kind { loss, output, buffer, gradient };
  Kind kind;
  std::string name = {};   ///< of the buffer, or of the parameter whose gradient it is
  std::size_t index = 0;   ///< of a loss or output: its position among the outputs of the exported program
  std::size_t source = 0;  ///< of a gradient: its parameter's index in CompiledSpec::inputs
};

/// The inputs and outputs of a compiled graph, as its library describes them.
struct CompiledSpec {
  std::vector<CompiledInput> inputs;
  std::vector<CompiledOutput> outputs;
  std::vector<CompiledSymbol> symbols;
  std::size_t scale = 0;  ///< the index of the input that scales the gradients: the gradient of the loss

  /// Returns why the graph can't take `given`, a tensor for each input; empty if it can. Strides aren't
  /// checked for tensors of the batch, and the scale isn't checked at all. Without `with_batch`, only the
  /// model's tensors are checked.
  std::string why_not(const std::vector<torch::Tensor>& given, torch::Device device,
                      bool with_batch = true) const;
};

/// Reads the text that a library holds.
CompiledSpec read_compiled_spec(std::string_view json, std::string_view where);

}  // namespace etude::inline v0::detail
