#!/bin/sh
# symbols.sh OBJECT: an object file of a program with a trainer has no virtual table of a trainer, a handler or a callback, and no
# code of the loop, which is in the library. Of templates over trainers or handlers, it has only those listed below.
set -eu
symbols=$(nm --demangle --defined-only "$1" | sed 's/^[0-9a-f]* . //')
failed=0

refuse() { # WHAT SYMBOLS
  [ -z "$2" ] && return
  printf '%s:\n%s\n' "$1" "$2"
  failed=1
}

echo "$symbols" | grep -q 'EventTables::raise<etude::v0::TrainerBase<' || refuse "No event is raised through a table" "$1"
refuse "Virtual tables" "$(echo "$symbols" | grep 'vtable for' | grep -E 'Trainer|Handler|Callback|Announce|EventSource')"
refuse "Code of the loop" "$(echo "$symbols" | grep -E '^([a-z].* )?etude::v0::(detail::)?[A-Za-z]*(Loop|Update|Batches|Steps|Requests|Checkpoints|Summary|Evaluation|Core)[A-Za-z]*(<[^(]*>)?::' |
  grep -vE '::(SteppedTraining|TrainerCore)::')"
refuse "A template over trainers or handlers" "$(echo "$symbols" | grep -E '<[^(]*(TrainerBase|CallbackHandler)<' | grep -E '^([a-z].* )?etude::v0::' |
  grep -vE 'etude::v0::(detail::)?(TrainerBase|Trainer|CallbackHandler|EventTables::(raise|raise_to_all)|methods_of|event_handlers|Composition|check_[a-z_]*)\b')"
exit $failed
