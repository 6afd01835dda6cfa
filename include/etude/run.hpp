#pragma once

#include <concepts>
#include <cstddef>
#include <functional>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "etude/base/parameters.hpp"
#include "etude/reflect/command_line.hpp"

namespace etude::inline v0 {
namespace detail {

template <class Function>
concept HasOneSignature = requires(Function function) { std::function(function); };

/// Reports the exception being handled on standard error, and returns the exit status.
int report_failure(std::string_view program);

template <class Function, class... Structs>
int run_main(int argc, const char* const* argv, Function& function, std::tuple<Structs...> defaults) {
  static_assert(std::invocable<Function&, Structs...>,
                "etude: the function of run() takes the arguments whose defaults stand before it");
  try {
    auto call = [&] {
      if constexpr (sizeof...(Structs) == 0) {
        return function();
      } else {
        auto parsed = parse_or_exit(argc, argv, std::move(defaults));
        if constexpr (sizeof...(Structs) == 1)
          return function(std::move(parsed));
        else
          return std::apply(function, std::move(parsed));
      }
    };
    if constexpr (std::is_void_v<decltype(call())>) {
      call();
      return 0;
    } else {
      return call();
    }
  } catch (...) {
    return report_failure(program_name(argc, argv));
  }
}

}  // namespace detail

/// Implements `main`: fills structs from the command line as `parse_arguments` does, calls a function with
/// them, and returns the exit status.
///
///     int main(int argc, char** argv) {
///       return etude::run(argc, argv, etude::TrainingArguments{.output_dir = "runs"},
///                         [](const etude::TrainingArguments& args) { ... });
///     }
///
/// The last argument is the function; the ones before it are defaults. Without defaults, the types of the
/// function's parameters determine which structs are parsed. Returns the function's result, or 0 if it
/// returns nothing; 2 for wrong arguments; 128 plus the signal's number if a signal interrupted a training
/// and the program handles that signal; and 1 for any other exception, which is printed to standard error as
/// one line.
template <class... Parts>
int run(int argc, const char* const* argv, Parts... parts) {
  constexpr auto last = sizeof...(Parts) - 1;
  static_assert(sizeof...(Parts) > 0, "etude: run() needs a function");
  std::tuple<Parts...> all(std::move(parts)...);
  auto& function = std::get<last>(all);
  if constexpr (last > 0) {
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return detail::run_main(argc, argv, function, std::make_tuple(std::move(std::get<I>(all))...));
    }
    (std::make_index_sequence<last>());
  } else {
    using Function = std::tuple_element_t<last, std::tuple<Parts...>>;
    static_assert(
        detail::HasOneSignature<Function>,
        "etude: the function of run() is generic: name its parameter types, or give defaults before it");
    using Deduced = decltype(std::function(function));
    return detail::run_main(argc, argv, function, typename detail::Parameters<Deduced>::Types());
  }
}

}  // namespace etude::inline v0
