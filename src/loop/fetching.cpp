#include "etude/loop/fetching.hpp"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <exception>
#include <new>
#include <utility>

#include "etude/base/error.hpp"
#include "etude/base/message.hpp"
#include "etude/data/failed_example.hpp"
#include "etude/libtorch/torch_error.hpp"
#include "etude/loop/event_source.hpp"

namespace etude::inline v0 {

void detail::place_dataset_error(const TrainingArguments& args, std::string dataset) {
  const auto error = std::current_exception();
  const auto failed = std::exchange(last_failed_example(), {});
  if (failed.error == error) dataset += fmt::format(", in get({})", failed.index);
  try {
    throw;
  } catch (c10::Error& torch_error) {
    add_place(torch_error, dataset);
  } catch (const Error&) {
  } catch (const std::bad_alloc&) {  // A smaller batch may fit.
  } catch (...) {
    message(args, LogLevel::error, "{}: {}", dataset, message_of(error));
  }
}

}  // namespace etude::inline v0
