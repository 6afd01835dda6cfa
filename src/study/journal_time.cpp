#include "etude/study/journal_time.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>

#include "etude/reflect/read_text.hpp"

namespace etude::inline v0::detail {

namespace {

std::string isoformat(std::time_t seconds) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}", fmt::gmtime(seconds));
}

}  // namespace

std::string journal_time() {
  const auto now = std::chrono::system_clock::now();
  const auto microseconds =
      std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count() % 1'000'000;
  return fmt::format("{}.{:06}+00:00", isoformat(std::chrono::system_clock::to_time_t(now)), microseconds);
}

std::optional<double> seconds_of_journal_time(std::string_view text) {
  constexpr std::string_view offset = "+00:00";
  constexpr int first_year = 1;
  if (text.ends_with(offset)) text.remove_suffix(offset.size());
  const std::string local(text);
  std::tm time{};
  const char* rest = ::strptime(local.c_str(), "%Y-%m-%dT%H:%M:%S", &time);
  if (rest == nullptr || time.tm_year < first_year - 1900) return {};
  const auto seconds = ::timegm(&time);
  auto again = isoformat(seconds);
  std::uint64_t microseconds = 0;
  if (*rest == '.') {
    microseconds = read_number<std::uint64_t>(rest + 1).value_or(0) % 1'000'000;
    again += fmt::format(".{:06}", microseconds);
  }
  // strptime accepts more, such as spaces and the 30th of February.
  if (again != local) return {};
  return static_cast<double>(seconds) + static_cast<double>(microseconds) / 1e6;
}

}  // namespace etude::inline v0::detail
