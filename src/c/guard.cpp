#include "guard.hpp"

#include <etude/base/utf8.hpp>
#include <etude/libtorch/memory.hpp>
#include <etude/libtorch/torch_error.hpp>
#include <etude/version.hpp>

#include <exception>
#include <filesystem>
#include <string_view>

namespace etude::inline v0::c {

namespace {

std::string& last_error() {
  thread_local std::string text;
  return text;
}

etude_status status_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Refusal& refusal) {
    return refusal.status;
  } catch (const DataError&) {
    return ETUDE_INVALID_DATA;
  } catch (const ArgumentError&) {
    return ETUDE_INVALID_ARGUMENT;
  } catch (const MetricError&) {
    return ETUDE_INVALID_ARGUMENT;
  } catch (const CheckpointError&) {
    return ETUDE_INVALID_FILE;
  } catch (const std::filesystem::filesystem_error&) {
    return ETUDE_INVALID_FILE;
  } catch (const CommunicationError&) {
    return ETUDE_LOST_PROCESS;
  } catch (...) {
    return is_out_of_memory(error) ? ETUDE_OUT_OF_MEMORY : ETUDE_FAILED;
  }
}

std::int32_t level_of(std::string_view level) {
  return level == "error" || level == "critical" ? ETUDE_ERROR
         : level == "warning"                    ? ETUDE_WARNING
                                                 : ETUDE_INFO;
}

}  // namespace

std::string required_text(const char* text, const char* name) {
  std::string result = &required(text, name);
  if (!is_utf8(result)) refuse(ETUDE_INVALID_ARGUMENT, "{} isn't UTF-8: '{}'", name, mended_utf8(result));
  return result;
}

etude_status failed() noexcept {
  const auto error = std::current_exception();
  try {
    const auto status = status_of(error);
    leave_out_frames(error);
    last_error() = message_of(error);
    return status;
  } catch (...) {  // no memory for the text
    last_error().clear();
    return ETUDE_OUT_OF_MEMORY;
  }
}

Turn::Call::Call(Turn& turn, const char* function, bool is_nestable) : turn_(turn) {
  std::thread::id holder;
  is_outermost_ = turn_.thread_.compare_exchange_strong(holder, std::this_thread::get_id());
  if (is_outermost_) return;
  if (holder != std::this_thread::get_id())
    refuse(ETUDE_BUSY, "{} was called while another thread is in a call with the same trainer", function);
  if (!is_nestable) refuse(ETUDE_WRONG_CALL, "{} was called in a callback of the same trainer", function);
}

Turn::Call::~Call() {
  if (is_outermost_) turn_.thread_ = std::thread::id();
}

}  // namespace etude::inline v0::c

extern "C" {

const char* etude_last_error(void) { return etude::c::last_error().c_str(); }

int32_t etude_version(void) { return ETUDE_VERSION; }

etude_status etude_set_message_handler(etude_message_handler handler, void* user) {
  return etude::c::guarded([&] {
    if (!handler) {
      etude::set_message_handler(nullptr);
      return;
    }
    etude::set_message_handler([handler, user](std::string_view level, std::string_view text) {
      handler(etude::c::level_of(level), std::string(text).c_str(), user);
    });
  });
}

}  // extern "C"
