#pragma once

#ifndef ETUDE_COMET
#error "etude/integrations/comet.hpp needs a library: link etude::comet"
#endif

/// CometCallback. It is declared in a separate file because its parts include it, too.
#include "etude/integrations/comet/comet_callback.hpp"
