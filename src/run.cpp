#include "etude/run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <string_view>

#include "etude/base/error.hpp"
#include "etude/base/interrupt.hpp"
#include "etude/base/message.hpp"
#include "etude/libtorch/torch_error.hpp"
#include "etude/reflect/command_line.hpp"

namespace etude::inline v0::detail {

int report_failure(std::string_view program) {
  const auto error = std::current_exception();
  try {
    throw;
  } catch (const HelpRequested& help) {
    write_text(stdout, help.what());
    return 0;
  } catch (const ArgumentError& wrong) {
    write_text(stderr, fmt::format("{}\n{}: --help lists all flags\n", wrong.what(), program));
    return 2;
  } catch (const Interrupted& interrupted) {
    return 128 + interrupted.signal;
  } catch (...) {
    leave_out_frames(error);
    auto text = message_of(error);
    if (!shows_frames()) {
      text.resize(text.find_last_not_of('\n') + 1);
      std::ranges::replace(text, '\n', ' ');
    }
    write_text(stderr, fmt::format("{}: {}\n", program, text));
    return 1;
  }
}

}  // namespace etude::inline v0::detail
