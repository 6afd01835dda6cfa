#include "etude/testing/laws/subject.hpp"

#include <fmt/format.h>

#include <exception>
#include <string_view>

#include "etude/base/error.hpp"
#include "etude/base/interrupt.hpp"
#include "etude/loop/event_source.hpp"
#include "etude/testing/laws/moment.hpp"
#include "etude/trainer_control.hpp"

namespace etude::inline v0::laws::detail {

void AnySubject::note_exception(std::string_view event) {
  try {
    throw;
  } catch (const Disruption&) {          // it ran an evaluation, which was disturbed
  } catch (const CommunicationError&) {  // another process was disturbed
  } catch (const StopTraining&) {
  } catch (const Interrupted&) {
  } catch (...) {
    errors.push_back(fmt::format("it throws in {}: {}", event, message_of(std::current_exception())));
  }
}

void Front::hear(const Context& e, std::string_view event) { stage->before(e, event); }

}  // namespace etude::inline v0::laws::detail
