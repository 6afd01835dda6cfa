#include "etude/checkpoint/trainer_state_text.hpp"

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/reflect/json.hpp"

namespace etude::inline v0 {
namespace detail {

namespace {

/// JSON with non-finite numbers as Python writes them.
template <class T>
std::string python_json_text(const T& value) {
  auto text = to_json_text(value, KeyOrder::sorted);
  for (const std::string word : {"NaN", "Infinity", "-Infinity"}) {
    const auto quoted = ": \"" + word + "\"";  // inside a string the quotes would be escaped
    for (std::size_t at = 0; (at = text.find(quoted, at)) != text.npos;)
      text.replace(at, quoted.size(), ": " + word);
  }
  return text;
}

}  // namespace

}  // namespace detail

std::string trainer_state_text(const TrainerState& state) { return detail::python_json_text(state); }

std::string TrainerStateText::of(TrainerState& state) {
  for (; lines_ < state.log_history.size(); ++lines_) {
    auto line = detail::python_json_text(state.log_history[lines_]);
    line.pop_back();
    history_ += lines_ == 0 ? "\n    " : ",\n    ";
    for (const char c : line) {
      history_ += c;
      if (c == '\n') history_ += "    ";
    }
  }
  struct Aside {
    TrainerState& state;
    std::vector<LogEntry> history = std::exchange(state.log_history, {});
    ~Aside() { state.log_history = std::move(history); }
  };
  auto text = [&] {
    const Aside history{state};
    return trainer_state_text(state);
  }();
  if (lines_ == 0) return text;
  constexpr std::string_view key =
      "\n  \"log_history\": [";  // only keys of the outermost object are indented this little
  text.insert(text.find(key) + key.size(), history_ + "\n  ");
  return text;
}

void TrainerStateText::forget_from(std::size_t line) {
  if (line < lines_) *this = {};
}

}  // namespace etude::inline v0
