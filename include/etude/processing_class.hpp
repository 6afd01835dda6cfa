#pragma once

#include <concepts>
#include <filesystem>
#include <memory>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include "etude/error.hpp"
#include "etude/reflect/type_name.hpp"

namespace etude {

/// Whatever prepares the data (a tokenizer, a scaler, a vocabulary): any object with `save(directory)`. It is
/// stored with every checkpoint and reachable from every event.
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
  }

  explicit operator bool() const { return object_ != nullptr; }
  void save(const std::filesystem::path& directory) const { save_(object_.get(), directory); }

  /// The object itself. Throws `ArgumentError` if it is not a `T`.
  template <class T>
  T& as() const {
    if (!object_ || *type_ != typeid(T))
      throw ArgumentError(std::string("processing_class is ") + (object_ ? "of another type" : "not set") +
                          ", not a " + std::string(type_name<T>()));
    return *static_cast<T*>(object_.get());
  }

 private:
  std::shared_ptr<void> object_;
  const std::type_info* type_ = nullptr;
  void (*save_)(void*, const std::filesystem::path&) = nullptr;
};

}  // namespace etude
