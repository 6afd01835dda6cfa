#pragma once

#include <ATen/core/ivalue.h>
#include <torch/ordered_dict.h>

#include <boost/hana/accessors.hpp>
#include <boost/hana/concept/struct.hpp>
#include <boost/hana/first.hpp>
#include <boost/hana/for_each.hpp>
#include <boost/hana/second.hpp>
#include <boost/hana/tuple.hpp>
#include <concepts>
#include <cstddef>
#include <map>
#include <ranges>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "etude/data/tensors.hpp"

namespace etude::inline v0 {
namespace detail {

class TensorCollector;

}  // namespace detail

/// How a type holds tensors. Specialize it, with `static void collect(const T&, detail::TensorCollector&)`,
/// for types unknown to `tensors_of`.
template <class T>
struct TensorsOf;

template <class T>
concept TensorsConvertible =
    requires(const std::remove_cvref_t<T>& value, detail::TensorCollector& collector) {
      TensorsOf<std::remove_cvref_t<T>>::collect(value, collector);
    };

namespace detail {

/// Collects tensors from nested types, in order. A tensor's name is the path to it ("hidden.0"); the names
/// are kept only if at least one path has a step with a name, not just positions.
class TensorCollector {
 public:
  void tensor(const torch::Tensor& tensor);

  template <TensorsConvertible T>
  void named(std::string_view name, const T& value) {
    named_ = true;
    descend(name, value);
  }

  template <TensorsConvertible T>
  void positional(std::size_t position, const T& value) {
    descend(std::to_string(position), value);
  }

  Tensors take() &&;

 private:
  template <class T>
  void descend(std::string_view step, const T& value) {
    const auto length = path_.size();
    if (length > 0) path_ += '.';
    path_ += step;
    TensorsOf<T>::collect(value, *this);
    path_.resize(length);
  }

  std::vector<torch::Tensor> tensors_;
  std::vector<std::string> names_;
  std::string path_;
  bool named_ = false;
};

template <class T>
concept TensorLike = std::convertible_to<const T&, torch::Tensor>;

template <class T>
concept TupleLike = requires { std::tuple_size<T>::value; } && !
std::ranges::range<T>;

template <class T>
concept OptionalLike = requires(const T& value) {
                         { value.has_value() } -> std::same_as<bool>;
                         *value;
                       };

// The second part keeps types that are ranges of themselves, such as paths, from recursing endlessly.
template <class T>
concept RangeLike = std::ranges::input_range<const T> && !
TensorLike<T> && !std::same_as<std::ranges::range_value_t<const T>, T>;

template <class T>
concept MapLike = RangeLike<T> && requires { typename T::mapped_type; } &&
                  std::convertible_to<const typename T::key_type&, std::string_view>;

template <class T>
inline constexpr bool all_convertible = false;
template <template <class...> class Tuple, class... Ts>
inline constexpr bool all_convertible<Tuple<Ts...>> = (TensorsConvertible<Ts> && ...);

template <class T>
concept HanaStruct = boost::hana::Struct<T>::value && !
TensorLike<T>;

template <class T, class Accessor>
using MemberOf =
    std::remove_cvref_t<decltype(boost::hana::second(std::declval<Accessor>())(std::declval<const T&>()))>;

template <class T, class Accessors>
inline constexpr bool members_convertible = false;
template <class T, class... Accessors>
inline constexpr bool members_convertible<T, boost::hana::tuple<Accessors...>> =
    (TensorsConvertible<MemberOf<T, Accessors>> && ...);

}  // namespace detail

template <detail::TensorLike T>
struct TensorsOf<T> {
  static void collect(const torch::Tensor& value, detail::TensorCollector& out) { out.tensor(value); }
};

template <>
struct TensorsOf<Tensors> {
  static void collect(const Tensors& value, detail::TensorCollector& out);
};

template <detail::OptionalLike T>
  requires TensorsConvertible<decltype(*std::declval<const T&>())>
struct TensorsOf<T> {
  static void collect(const T& value, detail::TensorCollector& out) {
    if (value.has_value()) TensorsOf<std::remove_cvref_t<decltype(*value)>>::collect(*value, out);
  }
};

template <detail::TupleLike T>
  requires detail::all_convertible<T>
struct TensorsOf<T> {
  static void collect(const T& value, detail::TensorCollector& out) {
    std::apply([&, i = std::size_t{0}](const auto&... parts) mutable { (out.positional(i++, parts), ...); },
               value);
  }
};

template <detail::RangeLike T>
  requires TensorsConvertible<std::ranges::range_value_t<const T>>
struct TensorsOf<T> {
  static void collect(const T& value, detail::TensorCollector& out) {
    std::size_t i = 0;
    for (const auto& part : value) out.positional(i++, part);
  }
};

template <detail::MapLike T>
  requires TensorsConvertible<typename T::mapped_type>
struct TensorsOf<T> {
  static void collect(const T& value, detail::TensorCollector& out) {
    if constexpr (requires { typename T::hasher; }) {  // sort by name: a hash table has no reliable order
      std::map<std::string_view, const typename T::mapped_type*> sorted;
      for (const auto& [name, part] : value) sorted.emplace(name, &part);
      for (const auto& [name, part] : sorted) out.named(name, *part);
    } else {
      for (const auto& [name, part] : value) out.named(name, part);
    }
  }
};

template <TensorsConvertible T>
struct TensorsOf<torch::OrderedDict<std::string, T>> {
  static void collect(const torch::OrderedDict<std::string, T>& value, detail::TensorCollector& out) {
    for (const auto& item : value) out.named(item.key(), item.value());
  }
};

template <detail::HanaStruct T>
  requires detail::members_convertible<T, decltype(boost::hana::accessors<T>())>
struct TensorsOf<T> {
  static void collect(const T& value, detail::TensorCollector& out) {
    boost::hana::for_each(boost::hana::accessors<T>(), [&](auto member) {
      out.named(boost::hana::first(member).c_str(), boost::hana::second(member)(value));
    });
  }
};

/// Collects from TorchScript values: a tensor, None, or arbitrarily nested tuples, lists and string-keyed
/// dicts of these. Throws DataError for anything else.
template <>
struct TensorsOf<c10::IValue> {
  static void collect(const c10::IValue& value, detail::TensorCollector& out);
};

/// The tensors in `value`, in order: a tensor, an optional, pair, tuple, array, vector, string-keyed map,
/// torch::OrderedDict, c10::IValue or Boost.Hana struct of these (with its members' names), arbitrarily
/// nested. Undefined tensors and empty optionals count as absent.
template <TensorsConvertible T>
Tensors tensors_of(const T& value) {
  if constexpr (std::same_as<T, Tensors> || detail::TensorLike<T>) {
    return value;
  } else {
    detail::TensorCollector collector;
    TensorsOf<T>::collect(value, collector);
    return std::move(collector).take();
  }
}

}  // namespace etude::inline v0
