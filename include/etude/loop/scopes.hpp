#pragma once

#include <cstddef>
#include <exception>
#include <string>
#include <vector>

namespace etude {

/// The begin events that wait for their end events, innermost last. Whatever way a loop is left, what is open
/// here is closed.
template <class Trainer>
class Scopes {
 public:
  using Close = void (*)(Trainer&);

  void open(Close close) { open_.push_back(close); }
  void drop() { open_.pop_back(); }
  std::size_t depth() const { return open_.size(); }

  /// Closes down to `depth`, innermost first.
  void close_to(std::size_t depth, Trainer& trainer) {
    while (open_.size() > depth) {
      const auto close = open_.back();
      open_.pop_back();
      close(trainer);
    }
  }

 private:
  std::vector<Close> open_;
};

/// What an exception says of itself.
inline std::string what_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

}  // namespace etude
