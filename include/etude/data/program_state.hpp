#pragma once

#include <torch/types.h>

#include <concepts>
#include <cstddef>
#include <functional>
#include <istream>
#include <iterator>
#include <locale>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "etude/base/scoped_value.hpp"
#include "etude/data/dataset_state.hpp"
#include "etude/reflect/json.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

class ProgramVariable;

/// Variables of the program by name, in the order in which a resume restores them.
using ProgramState = std::vector<std::pair<std::string, ProgramVariable>>;

/// The values of a program's variables.
struct SavedVariables {
  nlohmann::ordered_json values = nlohmann::ordered_json::object();  ///< by name; for a tensor, its name
  std::vector<std::pair<std::string, torch::Tensor>> tensors = {};   ///< views of the variables' memory
};

namespace detail {

/// A class whose `load_state()` takes what its `state()` returns.
template <class T>
concept HasState = std::is_class_v<T> &&
                   requires(const T& saved, T& loaded) {
                     loaded.load_state(std::declval<const std::remove_cvref_t<decltype(saved.state())>&>());
                   };

/// An engine or distribution of <random>.
template <class T>
concept RandomText = std::is_class_v<T> && requires(const T& saved, T& loaded, std::stringstream& stream) {
                                             typename T::result_type;
                                             stream << saved;
                                             stream >> loaded;
                                           };

template <class T>
concept SavedTuple = requires { std::tuple_size<T>::value; };

template <class T>
concept SavedMap = requires(T map, const typename T::key_type& key) {
                     typename T::mapped_type;
                     map[key];
                   };

template <class T>
concept SavedSet = std::same_as<typename T::key_type, typename T::value_type> &&
                   requires(T set, typename T::value_type value) { set.insert(std::move(value)); };

template <class T>
concept SavedSequence = requires(T list, std::size_t size) {
                          typename T::value_type;
                          list.resize(size);
                          list.begin();
                        };

/// Numbers that a LibTorch tensor can hold; unsigned ones are stored as signed ones with the same bytes.
template <class T>
concept TensorNumber = (std::integral<T> && !std::same_as<T, bool> && sizeof(T) <= 8) ||
                       std::same_as<T, float> || std::same_as<T, double>;

template <class T>
concept NumberList = SavedSequence<T> && TensorNumber<typename T::value_type> &&
                     std::contiguous_iterator<typename T::iterator> && !
std::same_as<T, std::string>;

template <TensorNumber T>
constexpr torch::ScalarType tensor_type_of() {
  if constexpr (std::floating_point<T>)
    return sizeof(T) == 4 ? torch::kFloat : torch::kDouble;
  else
    return sizeof(T) == 1   ? (std::is_signed_v<T> ? torch::kChar : torch::kByte)
           : sizeof(T) == 2 ? torch::kShort
           : sizeof(T) == 4 ? torch::kInt
                            : torch::kLong;
}

/// Lists of numbers up to this size are written as JSON, longer ones as tensors.
inline constexpr std::size_t most_numbers_in_json = 64;

template <class>
inline constexpr bool has_no_saved_form = false;

#define ETUDE_DETAIL_NO_PROGRAM_STATE                                                                       \
  "etude: no checkpoint can keep a variable of this type; use numbers, std::string, enums, torch::Tensor, " \
  "torch::Generator, engines of <random>, standard containers, std::optional, std::pair, std::tuple, an "   \
  "ETUDE_STRUCT, nlohmann::json, or a class with state() and load_state(state)"

/// Gathers the values of variables without copying tensors or long lists.
class VariableWriter {
 public:
  using Json = nlohmann::ordered_json;
  explicit VariableWriter(SavedVariables& into) : into_(into) {}

  template <class T>
  Json write(const T& value, const std::string& path) {
    if constexpr (std::same_as<T, torch::Tensor>) {
      return tensor(value, path);
    } else if constexpr (std::same_as<T, at::Generator>) {
      return generator(value, path);
    } else if constexpr (std::same_as<T, DatasetState>) {
      return {{"values", value.values},
              {"ended", value.ended},
              {"tensors", write(value.tensors, path + ".tensors")}};
    } else if constexpr (HasState<T>) {
      const auto state = std::make_shared<const std::remove_cvref_t<decltype(value.state())>>(value.state());
      const ScopedValue<std::shared_ptr<const void>> owner(owner_, state);
      return write(*state, path);
    } else if constexpr (std::same_as<T, std::string>) {
      return text(value, path);
    } else if constexpr (JsonValue<T> || OneText<T> || std::same_as<T, std::vector<bool>>) {
      return to_json_value(value);
    } else if constexpr (std::is_enum_v<T>) {
      return to_json_value(static_cast<std::underlying_type_t<T>>(value));
    } else if constexpr (RandomText<T>) {
      std::ostringstream stream;
      stream.imbue(std::locale::classic());
      stream << value;
      return stream.str();
    } else if constexpr (is_optional<T>) {
      auto json = Json::array();
      if (value) json.push_back(write(*value, path));
      return json;
    } else if constexpr (NumberList<T>) {
      if (value.size() > most_numbers_in_json)
        return numbers(value.data(), value.size(), tensor_type_of<typename T::value_type>(), path);
      return to_json_value(value);
    } else if constexpr (ReflectedStruct<T>) {
      auto json = Json::object();
      for_each_field(value, [&](std::string_view name, std::string_view, const auto& member) {
        json.emplace(std::string(name), write(member, path + "." + std::string(name)));
      });
      return json;
    } else if constexpr (SavedTuple<T>) {
      auto json = Json::array();
      std::apply([&](const auto&... item) { (json.push_back(write(item, at(path, json.size()))), ...); },
                 value);
      return json;
    } else if constexpr (SavedMap<T>) {
      auto json = Json::array();
      for (const auto& [key, item] : value) {
        const auto place = at(path, json.size());
        json.push_back(Json::array({write(key, place + ".key"), write(item, place)}));
      }
      return json;
    } else if constexpr (SavedSet<T> || SavedSequence<T>) {
      auto json = Json::array();
      for (const auto& item : value) json.push_back(write(item, at(path, json.size())));
      return json;
    } else {
      static_assert(has_no_saved_form<T>, ETUDE_DETAIL_NO_PROGRAM_STATE);
    }
  }

  static std::string at(const std::string& path, std::size_t i) {
    return path + "[" + std::to_string(i) + "]";
  }

 private:
  Json tensor(const torch::Tensor& tensor, const std::string& path);
  Json generator(const at::Generator& generator, const std::string& path);
  /// Writes text, or a tensor of bytes if it isn't UTF-8, which JSON can't hold.
  Json text(const std::string& text, const std::string& path);
  Json numbers(const void* data, std::size_t size, torch::ScalarType type, const std::string& path);

  SavedVariables& into_;
  std::set<std::string> names_;        // of the tensors so far
  std::shared_ptr<const void> owner_;  // owns the memory being written, unless the program does
};

/// Reads the values of variables, and assigns them once all are known to fit.
class VariableReader {
 public:
  using Json = nlohmann::ordered_json;
  explicit VariableReader(const std::map<std::string, torch::Tensor>& tensors) : tensors_(tensors) {}

  /// Describes the values that don't fit. Each text begins with the name of a variable or member.
  std::vector<std::string> faults;
  /// Throws CheckpointError if a `load_state` throws.
  void assign() {
    for (const auto& each : assignments_) each();
  }

  template <class T>
  void read(const Json& json, T& target, const std::string& path) {
    if constexpr (std::same_as<T, torch::Tensor>) {
      read_tensor(json, target, path);
    } else if constexpr (std::same_as<T, at::Generator>) {
      read_generator(json, target, path);
    } else if constexpr (std::same_as<T, DatasetState>) {
      if (!has_members(json, {"values", "ended", "tensors"}, path)) return;
      read(json["values"], target.values, path + ".values");
      read(json["ended"], target.ended, path + ".ended");
      read(json["tensors"], target.tensors, path + ".tensors");
    } else if constexpr (HasState<T>) {
      using State = std::remove_cvref_t<decltype(std::as_const(target).state())>;
      static_assert(std::default_initializable<State>,
                    "etude: the result of state() must be default-constructible to be read back");
      const auto state = std::make_shared<State>();
      read(json, *state, path);
      assign_later(
          [&target, state, path] { guarded(path, [&] { target.load_state(std::as_const(*state)); }); });
    } else if constexpr (std::same_as<T, std::string>) {
      if (auto text = read_text_of(json, path))
        assign_later([&target, text = *std::move(text)] { target = text; });
    } else if constexpr (JsonValue<T>) {
      assign_later([&target, json] { target = json; });
    } else if constexpr (OneText<T> || std::same_as<T, std::vector<bool>>) {
      read_plain(json, target, path);
    } else if constexpr (std::is_enum_v<T>) {
      const auto number = std::make_shared<std::underlying_type_t<T>>();
      read(json, *number, path);
      assign_later([&target, number] { target = static_cast<T>(*number); });
    } else if constexpr (RandomText<T>) {
      const auto fresh = std::make_shared<T>(target);
      std::istringstream stream(json.is_string() ? json.get<std::string>() : "");
      stream.imbue(std::locale::classic());
      if (!json.is_string() || !(stream >> *fresh))
        return fault(path, "must be the state of an engine like this one");
      assign_later([&target, fresh] { target = *fresh; });
    } else if constexpr (is_optional<T>) {
      if (!json.is_array() || json.size() > 1) return fault(path, "must be a list of at most one value");
      if (json.empty()) return assign_later([&target] { target.reset(); });
      const auto fresh = target ? std::make_shared<typename T::value_type>(*target)
                                : std::make_shared<typename T::value_type>();
      read(json[0], *fresh, path);
      assign_later([&target, fresh] { target = std::move(*fresh); });
    } else if constexpr (NumberList<T>) {
      if (json.is_array()) return read_plain(json, target, path);
      const auto bytes = read_numbers(json, tensor_type_of<typename T::value_type>(), path);
      if (!bytes.defined()) return;
      assign_later([&target, bytes] {
        const auto* first = static_cast<const typename T::value_type*>(bytes.data_ptr());
        target.assign(first, first + bytes.numel());
      });
    } else if constexpr (ReflectedStruct<T>) {
      std::vector<std::string_view> names;
      for_each_field(target, [&](std::string_view name, std::string_view, auto&) { names.push_back(name); });
      if (!has_members(json, names, path)) return;
      for_each_field(target, [&](std::string_view name, std::string_view, auto& member) {
        read(json[std::string(name)], member, path + "." + std::string(name));
      });
    } else if constexpr (SavedTuple<T>) {
      if (!is_list(json, std::tuple_size_v<T>, path)) return;
      std::size_t i = 0;
      std::apply([&](auto&... item) { (read_next(json, i, item, path), ...); }, target);
    } else if constexpr (SavedMap<T>) {
      if (!is_list(json, std::nullopt, path)) return;
      using Key = typename T::key_type;
      using Item = typename T::mapped_type;
      const auto fresh = std::make_shared<std::vector<std::pair<Key, Item>>>(json.size());
      for (std::size_t i = 0; i < json.size(); ++i) {
        const auto place = VariableWriter::at(path, i);
        if (!is_list(json[i], 2, place)) return;
        auto& [key, item] = (*fresh)[i];
        VariableReader key_reader(tensors_);  // the key must be known first, to find its current item
        key_reader.read(json[i][0], key, place + ".key");
        faults.insert(faults.end(), key_reader.faults.begin(), key_reader.faults.end());
        if (!key_reader.faults.empty()) continue;
        key_reader.assign();
        if (const auto there = target.find(key); there != target.end()) item = there->second;
        read(json[i][1], item, place);
      }
      assign_later([&target, fresh] {
        target.clear();
        for (auto& [key, item] : *fresh) target.emplace(std::move(key), std::move(item));
      });
    } else if constexpr (SavedSet<T>) {
      if (!is_list(json, std::nullopt, path)) return;
      const auto fresh = std::make_shared<std::vector<typename T::value_type>>(json.size());
      for (std::size_t i = 0; i < json.size(); ++i) read(json[i], (*fresh)[i], VariableWriter::at(path, i));
      assign_later([&target, fresh] {
        target.clear();
        for (auto& item : *fresh) target.insert(std::move(item));
      });
    } else if constexpr (SavedSequence<T>) {
      if (!is_list(json, std::nullopt, path)) return;
      const auto fresh = std::make_shared<T>(target);  // keeps members that aren't saved
      fresh->resize(json.size());
      std::size_t i = 0;
      for (auto& item : *fresh) read_next(json, i, item, path);
      assign_later([&target, fresh] { target = std::move(*fresh); });
    } else {
      static_assert(has_no_saved_form<T>, ETUDE_DETAIL_NO_PROGRAM_STATE);
    }
  }

 private:
  template <class T>
  void read_next(const Json& json, std::size_t& i, T& item, const std::string& path) {
    const auto place = i++;
    read(json[place], item, VariableWriter::at(path, place));
  }

  template <class T>
  void read_plain(const Json& json, T& target, const std::string& path) {
    const auto fresh = std::make_shared<T>();
    JsonReader reader;
    reader.read(json, *fresh, path);
    faults.insert(faults.end(), reader.faults.begin(), reader.faults.end());
    assign_later([&target, fresh] { target = *fresh; });
  }

  void assign_later(std::function<void()> assignment) { assignments_.push_back(std::move(assignment)); }
  void fault(const std::string& path, std::string_view what);
  bool is_list(const Json& json, std::optional<std::size_t> size, const std::string& path);
  /// True if the JSON is an object with exactly these members.
  bool has_members(const Json& json, const std::vector<std::string_view>& names, const std::string& path);
  void read_tensor(const Json& json, torch::Tensor& target, const std::string& path);
  void read_generator(const Json& json, at::Generator& target, const std::string& path);
  std::optional<std::string> read_text_of(const Json& json, const std::string& path);
  /// A 1-dim tensor; undefined if there is a fault.
  torch::Tensor read_numbers(const Json& json, torch::ScalarType type, const std::string& path);
  /// The tensor that the JSON names; undefined if there is a fault.
  torch::Tensor named(const Json& json, const std::string& path);
  /// Calls `load` and turns its exceptions into a CheckpointError that names the variable.
  static void guarded(const std::string& path, const std::function<void()>& load);

  const std::map<std::string, torch::Tensor>& tensors_;
  std::vector<std::function<void()>> assignments_;
};

}  // namespace detail

/// A variable of the program that checkpoints save and resuming restores. It must outlive the trainer. Its
/// type is a number, a string, an enum, a `torch::Tensor`, a `torch::Generator`, an engine of <random>, JSON,
/// a class with `state()` and `load_state(state)`, or a standard container, optional, pair, tuple or
/// ETUDE_STRUCT of these.
class ProgramVariable {
 public:
  template <class T>
    requires(!std::same_as<std::remove_cvref_t<T>, ProgramVariable>)
  ProgramVariable(T&& variable) {  // NOLINT(bugprone-forwarding-reference-overload)
    static_assert(std::is_lvalue_reference_v<T>,
                  "etude: program_state takes variables that outlive the trainer, not temporaries");
    static_assert(!std::is_const_v<std::remove_reference_t<T>>,
                  "etude: program_state takes variables that a resume can change, not constants");
    static_assert(!std::is_pointer_v<std::remove_reference_t<T>>,
                  "etude: program_state takes the variable itself, not a pointer to it");
    auto* const at = &variable;
    write_ = [at](detail::VariableWriter& writer, const std::string& name) {
      return writer.write(std::as_const(*at), name);
    };
    read_ = [at](detail::VariableReader& reader, const nlohmann::ordered_json& json,
                 const std::string& name) { reader.read(json, *at, name); };
  }

 private:
  friend SavedVariables save_variables(const ProgramState& state);
  friend void load_variables(const ProgramState& state, const SavedVariables& saved);

  std::function<nlohmann::ordered_json(detail::VariableWriter&, const std::string&)> write_;
  std::function<void(detail::VariableReader&, const nlohmann::ordered_json&, const std::string&)> read_;
};

/// Returns the current values of the variables. The tensors are views of the variables' memory. Throws
/// DataError for text that isn't UTF-8 in a variable of JSON.
SavedVariables save_variables(const ProgramState& state);

/// Assigns the saved values to the variables. Tensors are copied to the device of the variable's tensor or,
/// if that is undefined, to the device that it was saved from. Throws CheckpointError, with the variable or
/// member, if a name exists on one side only, or a value has another type or shape (an undefined tensor takes
/// any value, an empty tensor any shape). In that case nothing is changed, unless a `load_state` threw.
void load_variables(const ProgramState& state, const SavedVariables& saved);

}  // namespace etude::inline v0
