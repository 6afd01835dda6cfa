#include "fields.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "etude/base/error.hpp"
#include "etude/data/tensors.hpp"
#include "etude/reflect/nearest.hpp"
#include "guard.hpp"
#include "tensors.hpp"

namespace etude::inline v0::c {

namespace {

bool is_integer(torch::ScalarType type) { return at::isIntegralType(type, /*includeBool=*/false); }

Tensors undefined_tensors(const std::vector<std::string>& names) {
  return names.empty() ? Tensors() : Tensors(std::vector<torch::Tensor>(names.size()), names);
}

}  // namespace

Fields::Fields(const ExportedModuleImpl& model, LossName loss, const std::vector<std::string>& label_names)
    : model_(model.name()), number_(torch::kFloat), has_class_labels_(!takes_numbers(loss)) {
  std::vector<Field> labels;
  for (const auto& name : label_names) labels.push_back({.name = name, .is_label = true});
  for (const auto& input : model.inputs()) {
    const auto label = std::ranges::find(labels, input.name, &Field::name);
    // The model's shape and dtype of a label only matter if the model computes the loss.
    if (label == labels.end())
      fields_.push_back({.name = input.name, .dtype = input.dtype, .sizes = input.sizes});
    else if (loss == LossName::model)
      *label = {.name = input.name, .is_label = true, .dtype = input.dtype, .sizes = input.sizes};
  }
  inputs_ = fields_.size();
  std::vector<std::string> inputs, all_labels;
  for (const auto& field : fields_) inputs.push_back(field.name);
  for (const auto& label : labels) all_labels.push_back(label.name);
  fields_.insert(fields_.end(), labels.begin(), labels.end());
  for (auto& field : fields_)
    field.title = fmt::format("{} '{}'", field.is_label ? "label" : "input", field.name);
  no_inputs_ = undefined_tensors(inputs);
  no_labels_ = undefined_tensors(all_labels);
  for (const auto& parameter : model.parameters())
    if (parameter.is_floating_point()) {
      number_ = parameter.scalar_type();
      break;
    }
}

Batch Fields::batch(const etude_tensor* tensors, std::int32_t count, Labels labels, Memory memory,
                    std::optional<torch::Device> device) const {
  if (count < 0 || (count > 0 && !tensors))
    refuse(ETUDE_INVALID_ARGUMENT, "count is {}, and tensors {}: must be an array of that many tensors",
           count, tensors ? "is not null" : "is null");
  Batch batch{no_inputs_, no_labels_};
  const auto at = [&](std::size_t place) -> torch::Tensor& {
    return place < inputs_ ? batch.inputs[place] : batch.labels[place - inputs_];
  };
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    const auto place = place_of(tensors[i], i, labels);
    const auto& field = fields_[place];
    if (at(place).defined()) throw DataError(field.title + " is given twice");
    auto tensor = converted(view_of(tensors[i], field.title), field);
    // A copy to a GPU must be complete when the call returns.
    if (device && !(device->is_cpu() && tensor.is_cpu())) tensor = tensor.to(*device);
    if (memory == Memory::copied && tensor.data_ptr() == tensors[i].data) tensor = tensor.clone();
    at(place) = std::move(tensor);
  }
  const bool has_labels = std::ranges::any_of(batch.labels, [](const auto& each) { return each.defined(); });
  std::vector<std::string> missing;
  for (std::size_t place = 0; place < fields_.size(); ++place) {
    const bool is_needed = place < inputs_ || labels == Labels::required || has_labels;
    if (is_needed && !at(place).defined()) missing.push_back(fields_[place].name);
  }
  if (!missing.empty())
    throw DataError(fmt::format("{} {} missing: the tensors must be {}", fmt::join(missing, ", "),
                                missing.size() == 1 ? "is" : "are", names(labels)));
  if (!has_labels) batch.labels = Tensors();
  return batch;
}

Batch Fields::batch(const etude_tensor* tensors, std::int32_t count, torch::Device device,
                    Shared& last) const {
  if (match(tensors, count, last)) return last.batch;
  last = {};
  Shared made{batch(tensors, count, Labels::required, Memory::of_program, device)};
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
    made.places.push_back(place_of(tensors[i], i, Labels::required));
  if (!match(tensors, count, made)) return std::move(made.batch);
  last = std::move(made);
  return last.batch;
}

bool Fields::match(const etude_tensor* tensors, std::int32_t count, const Shared& shared) const {
  if (!tensors || shared.places.empty() || count != std::ssize(shared.places)) return false;
  for (std::size_t i = 0; i < shared.places.size(); ++i) {
    const auto place = shared.places[i];
    if (tensors[i].name ? fields_[place].name != tensors[i].name : place != i) return false;
    const auto& tensor = place < inputs_ ? shared.batch.inputs[place] : shared.batch.labels[place - inputs_];
    // A callback may have made the tensor require a gradient, which would accumulate over the steps.
    if (tensor.requires_grad() || !is_view_of(tensor, tensors[i])) return false;
  }
  return true;
}

std::string Fields::names(Labels labels) const {
  std::vector<std::string_view> all;
  for (const auto& field : fields_)
    if (!field.is_label || labels != Labels::refused) all.push_back(field.name);
  return fmt::format("{}", fmt::join(all, ", "));
}

std::size_t Fields::place_of(const etude_tensor& tensor, std::size_t position, Labels labels) const {
  const auto known = labels == Labels::refused ? inputs_ : fields_.size();
  if (!tensor.name) {
    if (position < known) return position;
    throw DataError(fmt::format("there are more than {} tensors: they must be {}", known, names(labels)));
  }
  for (std::size_t place = 0; place < known; ++place)
    if (fields_[place].name == tensor.name) return place;
  std::vector<std::string_view> all;
  for (std::size_t place = 0; place < known; ++place) all.push_back(fields_[place].name);
  throw DataError(fmt::format("tensors[{}] has the name '{}': must be one of {}{}", position, tensor.name,
                              names(labels), did_you_mean(tensor.name, all)));
}

torch::Tensor Fields::converted(torch::Tensor tensor, const Field& field) const {
  const auto given = tensor.scalar_type();
  if (field.sizes) {
    const auto& wanted = *field.sizes;
    const bool fits = static_cast<std::size_t>(tensor.dim()) == wanted.size() &&
                      std::equal(wanted.begin(), wanted.end(), tensor.sizes().begin(),
                                 [](auto want, auto size) { return want < 0 || want == size; });
    if (!fits) {
      std::vector<std::string> sizes;
      for (const auto size : wanted) sizes.push_back(size < 0 ? "*" : std::to_string(size));
      throw DataError(fmt::format("{} is {}: must be {} [{}], with any size for *", field.title,
                                  describe(tensor), dtype_name(*field.dtype), fmt::join(sizes, ", ")));
    }
  }
  if (!field.dtype) {
    if (has_class_labels_ && is_integer(given)) return tensor.to(torch::kLong);
    return has_class_labels_ && given == torch::kBool ? tensor : tensor.to(number_);
  }
  const auto wanted = *field.dtype;
  if (given == wanted) return tensor;
  const bool converts =
      (at::isFloatingType(given) && at::isFloatingType(wanted)) ||
      (is_integer(given) && is_integer(wanted) && at::elementSize(given) < at::elementSize(wanted));
  if (!converts)
    throw DataError(fmt::format("{} is {}: must be {}{}", field.title, describe(tensor), dtype_name(wanted),
                                at::isFloatingType(wanted) ? ", or another floating-point type"
                                : is_integer(wanted)       ? ", or a narrower integer type"
                                                           : ""));
  return tensor.to(wanted);
}

}  // namespace etude::inline v0::c
