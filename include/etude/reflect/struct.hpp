#pragma once

#include <array>
#include <boost/hana/accessors.hpp>
#include <boost/hana/concept/struct.hpp>
#include <boost/hana/detail/struct_macros.hpp>
#include <boost/hana/first.hpp>
#include <boost/hana/pair.hpp>
#include <boost/hana/second.hpp>
#include <boost/hana/string.hpp>
#include <boost/hana/tuple.hpp>
#include <boost/hana/unpack.hpp>
#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "etude/reflect/allowed.hpp"
#include "etude/reflect/for_each_argument.hpp"

/// Declares the members of the enclosing struct, once for all uses, each as `(type, name, "description",
/// default)`:
///
///     struct DataArguments {
///       ETUDE_STRUCT(DataArguments,
///                    (std::string, train_file, "text to train on"),
///                    (std::vector<std::int64_t>, widths, "sizes of the hidden layers", {64, 32}));
///     };
///
/// The struct stays an aggregate (`DataArguments{.train_file = "a.txt"}`) and is a Boost.Hana Struct. A
/// member without a default is value-initialized. A default may contain commas; a type may not, so give such
/// a type a name first. The description may be followed by the allowed values (reflect/allowed.hpp), as in
/// `"passes" | at_least(1)`: the command line checks them, `--help` lists them, and `field_faults` reports
/// violations. Works only for structs at namespace or class scope: local structs can't have member templates.
#define ETUDE_STRUCT(Type, ...)                                                                      \
  using etude_struct = Type;                                                                         \
  ETUDE_FOR_EACH(ETUDE_DETAIL_MEMBER, Type, __VA_ARGS__)                                             \
  static constexpr auto etude_field_docs() {                                                         \
    using namespace ::etude::allowed;                                                                \
    return ::etude::detail::docs_array(nullptr ETUDE_FOR_EACH(ETUDE_DETAIL_DOC, Type, __VA_ARGS__)); \
  }                                                                                                  \
  struct hana_accessors_impl {                                                                       \
    template <class EtudeSelf = Type>                                                                \
    static constexpr auto apply() {                                                                  \
      return ::etude::detail::accessors_tuple(                                                       \
          nullptr ETUDE_FOR_EACH(ETUDE_DETAIL_ACCESSOR, EtudeSelf, __VA_ARGS__));                    \
    }                                                                                                \
  }

#define ETUDE_DETAIL_MEMBER(Type, field) ETUDE_DETAIL_MEMBER_OF field
#define ETUDE_DETAIL_MEMBER_OF(type, name, doc, ...) \
  type name ETUDE_DETAIL_FIRST(                      \
      __VA_OPT__(ETUDE_DETAIL_ASSIGN, ) ETUDE_DETAIL_VALUE_INITIALISE, )(__VA_ARGS__);
#define ETUDE_DETAIL_FIRST(first, ...) first
#define ETUDE_DETAIL_ASSIGN(...) = __VA_ARGS__
#define ETUDE_DETAIL_VALUE_INITIALISE() \
  {}

#define ETUDE_DETAIL_ACCESSOR(Type, field) , ETUDE_DETAIL_ACCESSOR_OF(Type, ETUDE_DETAIL_NAME_OF field)
#define ETUDE_DETAIL_ACCESSOR_OF(...) ETUDE_DETAIL_ACCESSOR_FOR(__VA_ARGS__)
#define ETUDE_DETAIL_ACCESSOR_FOR(Type, name) ::etude::detail::accessor<#name, &Type::name>()
#define ETUDE_DETAIL_NAME_OF(type, name, ...) name

#define ETUDE_DETAIL_DOC(Type, field) ETUDE_DETAIL_DOC_OF field
#define ETUDE_DETAIL_DOC_OF(type, name, doc, ...) , ::etude::FieldDoc(doc)

namespace etude::inline v0 {
namespace detail {

template <std::size_t N>
struct name_text {
  char chars[N];
  constexpr name_text(const char (&text)[N]) {
    for (std::size_t i = 0; i < N; ++i) chars[i] = text[i];
  }
};

template <name_text Name, auto Member>
constexpr auto accessor() {
  return []<std::size_t... I>(std::index_sequence<I...>) {
    return boost::hana::make_pair(boost::hana::string_c<Name.chars[I]...>,
                                  boost::hana::struct_detail::member_ptr<decltype(Member), Member>{});
  }
  (std::make_index_sequence<sizeof(Name.chars) - 1>{});
}

template <class... Docs>
constexpr std::array<FieldDoc, sizeof...(Docs)> docs_array(std::nullptr_t, Docs... docs) {
  return {docs...};
}

template <class... Accessors>
constexpr auto accessors_tuple(std::nullptr_t, Accessors... accessors) {
  return boost::hana::make_tuple(accessors...);
}

/// The descriptions of the members; empty for a struct defined by Hana's macros.
template <class T>
inline constexpr auto field_docs = [] {
  if constexpr (requires { T::etude_field_docs(); })
    return T::etude_field_docs();
  else
    return boost::hana::unpack(boost::hana::accessors<T>(), [](const auto&... accessors) {
      return std::array{(static_cast<void>(accessors), FieldDoc(""))...};
    });
}();

}  // namespace detail

/// A struct whose members are known, through ETUDE_STRUCT or Hana's own macros (BOOST_HANA_DEFINE_STRUCT,
/// BOOST_HANA_ADAPT_STRUCT, ...), which provide no documentation.
template <class T>
concept ReflectedStruct = boost::hana::Struct<std::remove_cv_t<T>>::value;

/// Calls `visit(name, doc, member)` for each member in order of definition; `name` is a string view, and
/// `doc` a FieldDoc, which converts to one.
template <class T, class F>
  requires ReflectedStruct<T>
constexpr void for_each_field(T& object, F&& visit) {
  using Struct = std::remove_cv_t<T>;
  boost::hana::unpack(boost::hana::accessors<Struct>(), [&](const auto&... accessors) {
    auto doc = detail::field_docs<Struct>.begin();
    (visit(std::string_view(boost::hana::first(accessors).c_str()), *doc++,
           boost::hana::second(accessors)(object)),
     ...);
  });
}

/// The members' names in order of definition.
template <ReflectedStruct T>
std::vector<std::string_view> field_names() {
  std::vector<std::string_view> names;
  const T defaults{};
  for_each_field(defaults,
                 [&](std::string_view name, std::string_view, const auto&) { names.push_back(name); });
  return names;
}

/// "name is value: must be ..." for each member outside its allowed values.
template <ReflectedStruct T>
std::vector<std::string> field_faults(const T& object) {
  std::vector<std::string> faults;
  for_each_field(object, [&](std::string_view name, const FieldDoc& doc, const auto& member) {
    detail::check_field(name, doc.allowed, member, faults);
  });
  return faults;
}

}  // namespace etude::inline v0
