#include "dataset.hpp"

#include <fmt/format.h>

#include <cstddef>

#include "guard.hpp"
#include "tensors.hpp"

namespace etude::inline v0::c {

ProgramTensors::ProgramTensors(const etude_tensor* tensors, std::int32_t count) {
  if (count < 1 || !tensors)
    refuse(ETUDE_INVALID_ARGUMENT, "count is {}, and tensors {}: must be an array of at least one tensor",
           count, tensors ? "is not null" : "is null");
  for (std::int32_t i = 0; i < count; ++i) {
    auto tensor = tensors[i];
    view_of(tensor, fmt::format("tensors[{}]", i));
    auto described = std::make_unique<Described>();
    if (tensor.name) tensor.name = described->name.emplace(tensor.name).c_str();
    described->shape.assign(tensor.shape, tensor.shape + tensor.rank);
    tensor.shape = described->shape.data();
    if (tensor.strides)
      tensor.strides = described->strides.emplace(tensor.strides, tensor.strides + tensor.rank).data();
    described_.push_back(std::move(described));
    tensors_.push_back(tensor);
  }
}

Dataset dataset_of(const ProgramTensors& tensors, const Fields& fields, Fields::Labels labels) {
  const auto& all = tensors.tensors();
  auto batch =
      fields.batch(all.data(), static_cast<std::int32_t>(all.size()), labels, Fields::Memory::of_program);
  Dataset dataset(std::move(batch.inputs), std::move(batch.labels));
  return tensors.is_divided ? already_divided(std::move(dataset)) : dataset;
}

}  // namespace etude::inline v0::c

extern "C" {

etude_status etude_dataset_create(const etude_tensor* tensors, int32_t count, etude_dataset** dataset) {
  return etude::c::guarded([&] {
    auto& result = etude::c::required(dataset, "dataset");
    result = nullptr;
    result = new etude_dataset{std::make_shared<etude::c::ProgramTensors>(tensors, count)};
  });
}

etude_status etude_dataset_set_divided(etude_dataset* dataset, int32_t is_divided) {
  return etude::c::guarded(
      [&] { etude::c::required(dataset, "dataset").tensors->is_divided = is_divided != 0; });
}

void etude_dataset_destroy(etude_dataset* dataset) { delete dataset; }

}  // extern "C"
