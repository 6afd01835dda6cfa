#include "etude/base/base64.hpp"

#include <boost/archive/iterators/base64_from_binary.hpp>
#include <boost/archive/iterators/binary_from_base64.hpp>
#include <boost/archive/iterators/transform_width.hpp>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace etude::inline v0::detail {

std::string base64(std::string_view bytes) {
  using namespace boost::archive::iterators;
  using Digits = base64_from_binary<transform_width<std::string_view::const_iterator, 6, 8>>;
  std::string text(Digits(bytes.begin()), Digits(bytes.end()));
  text.resize((bytes.size() + 2) / 3 * 4, '=');
  return text;
}

std::optional<std::string> from_base64(std::string_view text) {
  using namespace boost::archive::iterators;
  using Bytes = transform_width<binary_from_base64<std::string_view::const_iterator>, 8, 6>;
  constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  while (text.ends_with('=')) text.remove_suffix(1);
  if (text.find_first_not_of(digits) != text.npos || text.size() % 4 == 1) return std::nullopt;
  std::string bytes;
  // Stops before the end, whose last bits are less than a byte.
  for (Bytes byte(text.begin()); bytes.size() < text.size() * 3 / 4; ++byte) bytes += *byte;
  return bytes;
}

}  // namespace etude::inline v0::detail
