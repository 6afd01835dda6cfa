#include "etude/base/error.hpp"

#include <exception>
#include <string>

#include "etude/base/utf8.hpp"

namespace etude::inline v0 {

std::string message_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return mended_utf8(e.what());
  } catch (...) {
    return "an exception that isn't a std::exception";
  }
}

}  // namespace etude::inline v0
