#pragma once

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <typeinfo>
#include <utility>

#include "etude/base/error.hpp"
#include "etude/reflect/type_name.hpp"

namespace etude::inline v0 {

/// Holds any object that prepares the data (a tokenizer, a scaler, a vocabulary) and has `save(directory)`.
/// The object is saved with every checkpoint and accessible in every event. A tokenizer may have a
/// `pad_token_id`, a number or an optional number, as a member or a function.
class ProcessingClass {
 public:
  ProcessingClass() = default;

  template <class T>
    requires(!std::same_as<T, ProcessingClass>)
  ProcessingClass(T object) : ProcessingClass(std::make_shared<T>(std::move(object))) {}

  template <class T>
  ProcessingClass(std::shared_ptr<T> object) : object_(object), type_(&typeid(T)) {
    static_assert(
        requires(const std::filesystem::path& directory) { object->save(directory); },
        "a processing_class needs save(const std::filesystem::path& directory)");
    save_ = [](void* self, const std::filesystem::path& directory) {
      static_cast<T*>(self)->save(directory);
    };
    if constexpr (requires { Number(object->pad_token_id()); }) {
      pad_token_id_ = [](void* self) { return Number(static_cast<T*>(self)->pad_token_id()); };
    } else if constexpr (requires { Number(object->pad_token_id); }) {
      pad_token_id_ = [](void* self) { return Number(static_cast<T*>(self)->pad_token_id); };
    }
  }

  explicit operator bool() const { return object_ != nullptr; }
  void save(const std::filesystem::path& directory) const { save_(object_.get(), directory); }

  /// The id of the padding token; unset if the object has none or there is no object.
  std::optional<std::int64_t> pad_token_id() const {
    return object_ && pad_token_id_ ? pad_token_id_(object_.get()) : std::nullopt;
  }

  /// The object itself. Throws `ArgumentError` if it isn't a `T`.
  template <class T>
  T& as() const {
    if (!object_ || *type_ != typeid(T))
      throw ArgumentError(std::string("processing_class is ") + (object_ ? "of another type" : "not set") +
                          ", not a " + std::string(type_name<T>()));
    return *static_cast<T*>(object_.get());
  }

 private:
  using Number = std::optional<std::int64_t>;

  std::shared_ptr<void> object_;
  const std::type_info* type_ = nullptr;
  void (*save_)(void*, const std::filesystem::path&) = nullptr;
  Number (*pad_token_id_)(void*) = nullptr;
};

}  // namespace etude::inline v0
