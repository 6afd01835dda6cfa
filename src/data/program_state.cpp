#include "etude/data/program_state.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/cuda.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>

#include "etude/base/error.hpp"
#include "etude/base/utf8.hpp"
#include "etude/data/tensors.hpp"
#include "etude/libtorch/generators.hpp"
#include "etude/libtorch/random_state.hpp"

namespace etude::inline v0 {
namespace detail {

VariableWriter::Json VariableWriter::tensor(const torch::Tensor& tensor, const std::string& path) {
  if (!tensor.defined()) return nullptr;
  if (tensor.layout() != torch::kStrided || tensor.is_quantized())
    throw DataError(fmt::format("program_state: {} is {}, which no checkpoint can keep: must be dense", path,
                                describe(tensor)));
  auto name = path;
  while (!names_.insert(name).second) name += "'";  // names with dots can make two paths equal
  into_.tensors.emplace_back(name, tensor.detach());
  Json json{{"tensor", name}};
  if (!tensor.device().is_cpu()) json["device"] = tensor.device().str();
  return json;
}

VariableWriter::Json VariableWriter::generator(const at::Generator& generator, const std::string& path) {
  return generator.defined() ? tensor(generator_state(generator), path) : Json();
}

VariableWriter::Json VariableWriter::text(const std::string& text, const std::string& path) {
  return is_utf8(text) ? Json(text) : tensor(bytes_of(text), path);
}

VariableWriter::Json VariableWriter::numbers(const void* data, std::size_t size, torch::ScalarType type,
                                             const std::string& path) {
  return tensor(
      torch::from_blob(
          const_cast<void*>(data), {static_cast<std::int64_t>(size)}, [owner = owner_](void*) {}, type),
      path);
}

void VariableReader::fault(const std::string& path, std::string_view what) {
  faults.push_back(fmt::format("{} {}", path, what));
}

bool VariableReader::is_list(const Json& json, std::optional<std::size_t> size, const std::string& path) {
  const bool is = json.is_array() && (!size || json.size() == *size);
  if (!is) fault(path, size ? fmt::format("must be a list of {} values", *size) : "must be a list");
  return is;
}

bool VariableReader::has_members(const Json& json, const std::vector<std::string_view>& names,
                                 const std::string& path) {
  if (!json.is_object()) {
    fault(path, fmt::format("must be an object with the members {}", fmt::join(names, ", ")));
    return false;
  }
  const auto before = faults.size();
  for (const auto name : names)
    if (!json.contains(name)) faults.push_back(fmt::format("{}.{} is missing in the checkpoint", path, name));
  for (const auto& [name, value] : json.items())
    if (std::ranges::find(names, name) == names.end())
      faults.push_back(
          fmt::format("{}.{} is in the checkpoint, and the program has no such member", path, name));
  return faults.size() == before;
}

torch::Tensor VariableReader::named(const Json& json, const std::string& path) {
  if (json.is_object() && json.contains("tensor") && json["tensor"].is_string())
    if (const auto found = tensors_.find(json["tensor"].get<std::string>()); found != tensors_.end())
      return found->second;
  fault(path, "must be a tensor of the checkpoint");
  return {};
}

namespace {

/// The device that a tensor was saved from, or the CPU if this machine lacks it.
torch::Device device_then(const nlohmann::ordered_json& json) {
  if (!json.contains("device") || !json["device"].is_string()) return torch::kCPU;
  try {
    const torch::Device device(json["device"].get<std::string>());
    const bool is_here = !device.is_cuda() || device.index() < static_cast<int>(torch::cuda::device_count());
    return is_here ? device : torch::kCPU;
  } catch (const c10::Error&) {
    return torch::kCPU;
  }
}

}  // namespace

void VariableReader::read_tensor(const Json& json, torch::Tensor& target, const std::string& path) {
  if (json.is_null()) return assign_later([&target] { target = torch::Tensor(); });
  const auto saved = named(json, path);
  if (!saved.defined()) return;
  const bool is_set = target.defined() && target.numel() > 0;
  if (is_set && (target.sizes() != saved.sizes() || target.scalar_type() != saved.scalar_type()))
    return fault(path, fmt::format("is {} in the checkpoint: must be {}, or undefined or empty to take any",
                                   describe(saved), describe(target)));
  if (target.defined() && target.scalar_type() != saved.scalar_type())
    return fault(path, fmt::format("is {} in the checkpoint: must be {}", describe(saved), describe(target)));
  const auto device = target.defined() ? target.device() : device_then(json);
  assign_later([&target, saved, device] {
    const bool requires_grad = target.defined() && target.requires_grad();
    target = saved.to(device, /*non_blocking=*/false, /*copy=*/true).requires_grad_(requires_grad);
  });
}

void VariableReader::read_generator(const Json& json, at::Generator& target, const std::string& path) {
  if (json.is_null() && !target.defined()) return;
  if (!target.defined()) return fault(path, "is undefined: must be a generator, whose state is restored");
  const auto saved = named(json, path);
  if (!saved.defined()) return;
  assign_later(
      [&target, saved, path] { guarded(path, [&] { set_generator_state(target, saved.clone()); }); });
}

std::optional<std::string> VariableReader::read_text_of(const Json& json, const std::string& path) {
  if (json.is_string()) return json.get<std::string>();
  const auto bytes = read_numbers(json, torch::kByte, path);
  return bytes.defined() ? std::optional(text_of(bytes)) : std::nullopt;
}

torch::Tensor VariableReader::read_numbers(const Json& json, torch::ScalarType type,
                                           const std::string& path) {
  const auto saved = named(json, path);
  if (!saved.defined()) return {};
  if (saved.dim() == 1 && saved.scalar_type() == type) return saved.contiguous();
  fault(path, fmt::format("is {} in the checkpoint: must be 1-dim and {}", describe(saved),
                          describe(torch::empty({0}, type))));
  return {};
}

void VariableReader::guarded(const std::string& path, const std::function<void()>& load) {
  try {
    load();
  } catch (const std::exception& error) {
    throw CheckpointError(fmt::format("{}: its state can't be loaded: {}", path,
                                      std::string_view(error.what()).substr(0, 200)));
  }
}

}  // namespace detail

SavedVariables save_variables(const ProgramState& state) {
  const torch::NoGradGuard no_grad;
  SavedVariables saved;
  detail::VariableWriter writer(saved);
  for (const auto& [name, variable] : state) saved.values.emplace(name, variable.write_(writer, name));
  if (nlohmann::json values = saved.values; const auto bad = mend_utf8(values))
    throw DataError(fmt::format(
        "program_state: it has the string {}, which isn't UTF-8: keep bytes in a std::string or a tensor",
        *bad));
  return saved;
}

void load_variables(const ProgramState& state, const SavedVariables& saved) {
  const torch::NoGradGuard no_grad;
  const std::map<std::string, torch::Tensor> tensors(saved.tensors.begin(), saved.tensors.end());
  detail::VariableReader reader(tensors);
  std::set<std::string> names;
  for (const auto& [name, variable] : state) {
    names.insert(name);
    if (const auto found = saved.values.find(name); found != saved.values.end())
      variable.read_(reader, *found, name);
    else
      reader.faults.push_back(name + " is missing in the checkpoint");
  }
  for (const auto& [name, value] : saved.values.items())
    if (!names.contains(name))
      reader.faults.push_back(name + " is in the checkpoint, and the program has no variable of that name");
  if (!reader.faults.empty())
    throw CheckpointError(fmt::format("program_state: {}", fmt::join(reader.faults, "; ")));
  reader.assign();
}

}  // namespace etude::inline v0
