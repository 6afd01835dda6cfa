#include "etude/data/tensors.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "etude/base/lower_case.hpp"

namespace etude::inline v0 {

std::string dtype_name(torch::ScalarType dtype) {
  // In the order of torch::ScalarType; all later types have the same name in Python, in lower case.
  static constexpr std::array names{"uint8",   "int8",    "int16",     "int32",     "int64",     "float16",
                                    "float32", "float64", "complex32", "complex64", "complex128"};
  const auto index = static_cast<std::size_t>(dtype);
  return index < names.size() ? names[index] : detail::lower_case(c10::toString(dtype));
}

std::string describe(const torch::Tensor& tensor) {
  if (!tensor.defined()) return "an undefined tensor";
  return fmt::format("{} [{}]", dtype_name(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "));
}

Tensors::Tensors(std::vector<torch::Tensor> tensors, std::vector<std::string> names)
    : Tensors(std::move(tensors)) {
  if (names.empty()) return;
  if (names.size() != tensors_.size())
    throw DataError(fmt::format("{} names for {} tensors", names.size(), tensors_.size()));
  names_ = std::make_shared<const std::vector<std::string>>(std::move(names));
}

Tensors::Tensors(std::initializer_list<std::pair<std::string, torch::Tensor>> named) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : named) {
    if (std::ranges::find(names, name) != names.end())
      throw DataError(fmt::format("two tensors are named '{}': names must differ", name));
    names.push_back(name);
    tensors_.push_back(tensor);
  }
  if (!names.empty()) names_ = std::make_shared<const std::vector<std::string>>(std::move(names));
}

void Tensors::set_division(std::size_t index, Division division) {
  auto all = divisions_ ? *divisions_ : std::vector<Division>(size());
  all[checked(index)] = std::move(division);
  divisions_ = std::make_shared<const std::vector<Division>>(std::move(all));
}

void Tensors::set_division(std::string_view name, Division division) {
  static_cast<void>(at(name));  // throws, listing the names, if missing
  set_division(static_cast<std::size_t>(std::ranges::find(names(), name) - names().begin()),
               std::move(division));
}

Tensors Tensors::at_positions(const std::vector<std::size_t>& positions) const {
  std::vector<torch::Tensor> kept;
  std::vector<std::string> kept_names;
  std::vector<Division> kept_divisions;
  for (const auto i : positions) {
    kept.push_back((*this)[i]);
    if (names_) kept_names.push_back((*names_)[i]);
    if (divisions_) kept_divisions.push_back((*divisions_)[i]);
  }
  Tensors result(std::move(kept), std::move(kept_names));
  if (divisions_)
    result.divisions_ = std::make_shared<const std::vector<Division>>(std::move(kept_divisions));
  return result;
}

std::string Tensors::title(std::size_t index) const {
  return names_ ? fmt::format("'{}'", (*names_)[checked(index)]) : std::to_string(checked(index));
}

const torch::Tensor& Tensors::at(std::string_view name) const {
  if (const auto* found = find(name)) return *found;
  refuse(empty()  ? fmt::format("no tensor is named '{}': there are none", name)
         : names_ ? fmt::format("no tensor is named '{}'; there are: {}", name, fmt::join(names(), ", "))
                  : fmt::format("no tensor is named '{}': the {} here have no names", name, size()));
}

std::string describe(const Tensors& tensors) {
  if (tensors.empty()) return "no tensors";
  std::string text;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (i > 0) text += ", ";
    if (!tensors.names().empty()) text += tensors.names()[i] + ": ";
    text += describe(tensors[i]);
  }
  return text;
}

void Tensors::refuse(const std::string& what) const {
  if (empty()) throw NoTensorsError(what);
  throw DataError(what);
}

const std::vector<std::string>& Tensors::names() const {
  static const std::vector<std::string> none;
  return names_ ? *names_ : none;
}

const torch::Tensor* Tensors::find(std::string_view name) const {
  for (std::size_t i = 0; i < names().size(); ++i) {
    if (names()[i] == name) return &tensors_[i];
  }
  return nullptr;
}

const Division& Tensors::division(std::size_t index) const {
  static const Division by_default;
  return divisions_ ? (*divisions_)[checked(index)] : by_default;
}

const torch::Tensor& Tensors::single() const {
  if (size() != 1) refuse(fmt::format("one tensor was expected, not {}: {}", size(), describe(*this)));
  return tensors_.front();
}

Tensors Tensors::to(torch::Device device, bool non_blocking) const {
  return transform([&](const torch::Tensor& tensor) {
    return tensor.device() == device ? tensor : tensor.to(device, non_blocking);
  });
}

std::size_t Tensors::checked(std::size_t index) const {
  if (index >= size())
    refuse(fmt::format("tensor {} (counted from 0) was requested, but there are {}: {}", index, size(),
                       describe(*this)));
  return index;
}

}  // namespace etude::inline v0
