#include "etude/data/tensors_of.hpp"

#include "etude/base/error.hpp"

namespace etude::inline v0::detail {

void TensorCollector::tensor(const torch::Tensor& tensor) {
  if (!tensor.defined()) return;
  tensors_.push_back(tensor);
  names_.push_back(path_);
}

Tensors TensorCollector::take() && {
  if (!named_) names_.clear();
  return {std::move(tensors_), std::move(names_)};
}

}  // namespace etude::inline v0::detail

namespace etude::inline v0 {

void TensorsOf<Tensors>::collect(const Tensors& value, detail::TensorCollector& out) {
  for (std::size_t i = 0; i < value.size(); ++i) {
    value.names().empty() ? out.positional(i, value[i]) : out.named(value.names()[i], value[i]);
  }
}

void TensorsOf<c10::IValue>::collect(const c10::IValue& value, detail::TensorCollector& out) {
  if (value.isTensor()) {
    out.tensor(value.toTensor());
  } else if (value.isTuple()) {
    const auto& tuple = value.toTupleRef();
    const auto type = value.type();
    const auto& schema = type->expectRef<c10::TupleType>().schema();
    for (std::size_t i = 0; i < tuple.size(); ++i) {
      const c10::IValue& part = tuple.elements()[i];
      schema ? out.named(schema->arguments()[i].name(), part) : out.positional(i, part);
    }
  } else if (value.isList() || value.isTensorList()) {
    std::size_t i = 0;
    for (const c10::IValue& part : value.toListRef()) out.positional(i++, part);
  } else if (value.isGenericDict()) {
    for (const auto& item : value.toGenericDict()) {
      if (!item.key().isString())
        throw DataError("a dict of tensors must have strings for keys, not " + item.key().tagKind());
      out.named(item.key().toStringRef(), item.value());
    }
  } else if (!value.isNone()) {
    throw DataError("a tensor, or a tuple, list or dict of tensors, was expected, not " + value.tagKind());
  }
}

}  // namespace etude::inline v0
