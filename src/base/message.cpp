#include "etude/base/message.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>

#include "etude/base/console.hpp"

namespace etude::inline v0 {

void write_text(std::FILE* out, std::string_view text) noexcept {
  detail::Console::instance().write(out, text);
}

namespace detail {

namespace {

struct HandlerSlot {
  std::mutex mutex;
  std::shared_ptr<const MessageHandler> handler;
};
HandlerSlot& handler_slot() {
  // Never destroyed: other statics may print while `exit` destroys them.
  static HandlerSlot& slot = *new HandlerSlot;
  return slot;
}

}  // namespace

}  // namespace detail

MessageHandler set_message_handler(MessageHandler handler) {
  auto next = handler ? std::make_shared<const MessageHandler>(std::move(handler)) : nullptr;
  auto& slot = detail::handler_slot();
  const std::lock_guard lock(slot.mutex);
  const auto before = std::exchange(slot.handler, std::move(next));
  return before ? *before : MessageHandler();
}

void detail::message(std::string_view level, std::int64_t rank, std::string_view text) {
  const auto origin = rank < 0 ? "" : fmt::format("rank {}: ", rank);
  auto& slot = handler_slot();
  std::unique_lock lock(slot.mutex);
  const auto handler = slot.handler;
  lock.unlock();
  if (!handler) return write_text(stderr, fmt::format("etude: {}{}: {}\n", origin, level, text));
  try {
    (*handler)(level, fmt::format("{}{}", origin, text));
  } catch (...) {
  }
}

}  // namespace etude::inline v0
