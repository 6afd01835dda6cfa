#include "etude/model/equal.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace etude::inline v0 {
namespace detail {

namespace {

/// One element as text, with enough digits to distinguish it from any other value.
std::string element_text(const torch::Tensor& element) {
  if (element.is_complex()) {
    const auto value = torch::view_as_real(element);
    return fmt::format("({}, {})", element_text(value[0]), element_text(value[1]));
  }
  if (element.scalar_type() == torch::kBool) return element.item<bool>() ? "true" : "false";
  if (!element.is_floating_point()) return std::to_string(element.to(torch::kLong).item<std::int64_t>());
  if (element.scalar_type() == torch::kDouble) return fmt::format("{}", element.item<double>());
  return fmt::format("{}", element.to(torch::kFloat).item<float>());
}

/// The indices of an element, computed from its number in row-major order.
std::vector<std::int64_t> place_of(std::int64_t number, at::IntArrayRef sizes) {
  std::vector<std::int64_t> place(sizes.size());
  for (std::size_t d = sizes.size(); d-- > 0; number /= sizes[d]) place[d] = number % sizes[d];
  return place;
}

Comparison with_name(std::string_view name, Comparison comparison) {
  if (!comparison) comparison.difference = fmt::format("{}: {}", name, comparison.difference);
  return comparison;
}

}  // namespace

}  // namespace detail

Comparison equal(const torch::Tensor& a, const torch::Tensor& b) {
  if (!a.defined() || !b.defined()) {
    const auto text = [](const torch::Tensor& tensor) { return tensor.defined() ? "defined" : "undefined"; };
    return {a.defined() == b.defined() ? "" : fmt::format("one is {} and the other {}", text(a), text(b))};
  }
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes())
    return {fmt::format("{} and {}", describe(a), describe(b))};
  const auto plain = [](const torch::Tensor& tensor) {
    const auto dense = tensor.layout() == torch::kStrided ? tensor.detach() : tensor.detach().to_dense();
    return dense.resolve_conj().resolve_neg().cpu().contiguous();
  };
  const auto left = plain(a), right = plain(b);
  const auto* x = static_cast<const char*>(left.data_ptr());
  const auto* y = static_cast<const char*>(right.data_ptr());
  const auto size = static_cast<std::size_t>(left.element_size());
  if (left.numel() == 0 || std::memcmp(x, y, left.nbytes()) == 0) return {};
  std::int64_t number = 0;
  for (; std::memcmp(x, y, size) == 0; ++number) x += size, y += size;
  return {fmt::format("element {} is {} and {}", detail::place_of(number, left.sizes()),
                      detail::element_text(left.flatten()[number]),
                      detail::element_text(right.flatten()[number]))};
}

Comparison equal(const std::vector<NamedTensor>& a, const std::vector<NamedTensor>& b) {
  const std::map<std::string, torch::Tensor> left(a.begin(), a.end()), right(b.begin(), b.end());
  for (const auto& [name, tensor] : a) {
    const auto found = right.find(name);
    if (found == right.end()) return {fmt::format("{} is only in the first", name)};
    if (auto comparison = detail::with_name(name, etude::equal(tensor, found->second)); !comparison)
      return comparison;
  }
  for (const auto& [name, tensor] : b)
    if (!left.contains(name)) return {fmt::format("{} is only in the second", name)};
  return {};
}

Comparison equal(const Tensors& a, const Tensors& b) {
  if (a.size() != b.size()) return {fmt::format("{} tensors and {}", a.size(), b.size())};
  if (a.names() != b.names()) return {fmt::format("the names are {} and {}", a.names(), b.names())};
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto name = a.names().empty() ? fmt::format("tensor {}", i) : a.names()[i];
    if (auto comparison = detail::with_name(name, etude::equal(a[i], b[i])); !comparison) return comparison;
  }
  return {};
}

Comparison equal(const Model& a, const Model& b) { return etude::equal(a.state_dict(), b.state_dict()); }

Comparison equal(const torch::nn::Module& a, const torch::nn::Module& b) {
  return etude::equal(state_dict(a), state_dict(b));
}

}  // namespace etude::inline v0
