#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>

#include "etude/base/console.hpp"
#include "etude/base/linkage.hpp"
#include "etude/base/message.hpp"

namespace etude::inline v0 {

ETUDE_INLINE void write_text(std::FILE* out, std::string_view text) noexcept {
  detail::Console::instance().write(out, text);
}

namespace detail {

struct HandlerSlot {
  std::mutex mutex;
  std::shared_ptr<const MessageHandler> handler;
};
inline HandlerSlot& handler_slot() {
  // Never destroyed: other statics may print while `exit` destroys them.
  static HandlerSlot& slot = *new HandlerSlot;
  return slot;
}

}  // namespace detail

ETUDE_INLINE MessageHandler set_message_handler(MessageHandler handler) {
  auto next = handler ? std::make_shared<const MessageHandler>(std::move(handler)) : nullptr;
  auto& slot = detail::handler_slot();
  const std::lock_guard lock(slot.mutex);
  const auto before = std::exchange(slot.handler, std::move(next));
  return before ? *before : MessageHandler();
}

ETUDE_INLINE void detail::print(std::FILE* out, fmt::string_view format, fmt::format_args parts) {
  write_text(out, fmt::vformat(format, parts));
}

ETUDE_INLINE void detail::message(std::string_view level, std::int64_t rank, fmt::string_view format,
                                  fmt::format_args parts) {
  const auto origin = rank < 0 ? "" : fmt::format("rank {}: ", rank);
  auto& slot = handler_slot();
  std::unique_lock lock(slot.mutex);
  const auto handler = slot.handler;
  lock.unlock();
  if (!handler)
    return write_text(stderr, fmt::format("etude: {}{}: {}\n", origin, level, fmt::vformat(format, parts)));
  try {
    (*handler)(level, fmt::format("{}{}", origin, fmt::vformat(format, parts)));
  } catch (...) {
  }
}

}  // namespace etude::inline v0
