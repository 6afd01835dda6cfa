#pragma once

#include <c10/util/SmallVector.h>
#include <torch/types.h>

#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/data/division.hpp"

namespace etude::inline v0 {

/// The dtype's name in Python: "float32", "int64", "bool".
std::string dtype_name(torch::ScalarType dtype);

/// A tensor's dtype and shape for messages: "float32 [8, 3]".
std::string describe(const torch::Tensor& tensor);

/// Thrown when a tensor is requested where there are none, such as the labels of unlabeled data.
struct NoTensorsError : DataError {
  using DataError::DataError;
};

/// Tensors by position and, if their source names them, by name: a model's inputs and outputs, or a loss's
/// operands. Each may say how its rows are divided among the examples of a batch. Copies are cheap: tensors
/// are handles, and names and divisions are shared.
class Tensors {
 public:
  Tensors() = default;
  /// One unnamed tensor; empty if `tensor` is undefined.
  Tensors(torch::Tensor tensor) {
    if (tensor.defined()) tensors_.push_back(std::move(tensor));
  }
  template <std::same_as<torch::Tensor>... Rest>
  Tensors(torch::Tensor first, torch::Tensor second, Rest... rest) {
    tensors_.reserve(2 + sizeof...(rest));
    for (auto* tensor : {&first, &second, &rest...}) tensors_.push_back(std::move(*tensor));
  }
  // This is a template so that `{a, b}` can only mean the constructor above.
  template <std::same_as<std::vector<torch::Tensor>> Vector>
  Tensors(Vector tensors)
      : tensors_(std::make_move_iterator(tensors.begin()), std::make_move_iterator(tensors.end())) {}
  /// One tensor, and how its rows divide among the examples of its batch: `{boxes, RowsByIndex{}}`.
  Tensors(torch::Tensor tensor, Division division) : Tensors(std::move(tensor)) {
    if (!empty()) set_division(0, std::move(division));
  }
  /// Named tensors; an empty list of names leaves them unnamed. Throws DataError unless there is one name per
  /// tensor.
  Tensors(std::vector<torch::Tensor> tensors, std::vector<std::string> names);
  /// Named tensors: `{{"images", images}, {"kl", kl}}`. Throws DataError for a name that is given twice.
  Tensors(std::initializer_list<std::pair<std::string, torch::Tensor>> named);

  std::size_t size() const { return tensors_.size(); }
  bool empty() const { return tensors_.empty(); }

  /// The tensor at a position. Throws DataError if out of range.
  const torch::Tensor& operator[](std::size_t index) const { return tensors_[checked(index)]; }
  torch::Tensor& operator[](std::size_t index) { return tensors_[checked(index)]; }

  /// The tensor of that name. Throws DataError that lists the existing names.
  const torch::Tensor& operator[](std::string_view name) const { return at(name); }

  auto begin() const { return tensors_.begin(); }
  auto end() const { return tensors_.end(); }
  auto begin() { return tensors_.begin(); }
  auto end() { return tensors_.end(); }

  /// One name per tensor, or empty if they are unnamed.
  const std::vector<std::string>& names() const;

  /// The tensor of that name, or null.
  const torch::Tensor* find(std::string_view name) const;

  /// The tensor of that name. Throws DataError that lists the existing names.
  const torch::Tensor& at(std::string_view name) const;

  /// How the tensor at a position divides among the examples of its batch; RowPerExample unless it was set.
  const Division& division(std::size_t index) const;
  bool is_row_per_example(std::size_t index) const {
    return std::holds_alternative<RowPerExample>(division(index));
  }

  /// Sets the division of a tensor. Throws DataError if the index is out of range or there is no tensor of
  /// that name.
  void set_division(std::size_t index, Division division);
  void set_division(std::string_view name, Division division);

  /// The tensors at these positions, with their names and divisions.
  Tensors at_positions(const std::vector<std::size_t>& positions) const;

  /// "0", or "'boxes'" for a tensor that has a name.
  std::string title(std::size_t index) const;

  /// The only tensor. Throws DataError if there are none or several.
  const torch::Tensor& single() const;
  operator const torch::Tensor&() const { return single(); }

  /// Applies `f` to each tensor and keeps the names and divisions.
  template <std::invocable<const torch::Tensor&> F>
  Tensors transform(F f) const {
    Tensors result;
    result.tensors_.reserve(size());
    for (const auto& tensor : tensors_) result.tensors_.push_back(f(tensor));
    result.names_ = names_;
    result.divisions_ = divisions_;
    return result;
  }

  Tensors to(torch::Device device, bool non_blocking = false) const;

 private:
  std::size_t checked(std::size_t index) const;
  [[noreturn]] void refuse(const std::string& what) const;

  c10::SmallVector<torch::Tensor, 2> tensors_;  // most batches and outputs need no heap allocation
  std::shared_ptr<const std::vector<std::string>> names_;
  std::shared_ptr<const std::vector<Division>> divisions_;
};

/// "float32 [8, 3], mask: bool [8]", or "no tensors".
std::string describe(const Tensors& tensors);

}  // namespace etude::inline v0
